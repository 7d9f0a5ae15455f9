#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "launcher/placement/placement.h"

namespace poprun::launcher {
namespace {

/// A label above the replicas that it covers.
struct Cell {
  std::string label;
  std::size_t replicas;
};

struct Row {
  std::string name;
  std::vector<Cell> cells;
};

std::string centred(const std::string& text, std::size_t width) {
  const std::size_t space = width - text.size();
  return fmt::format("{:{}}{}{:{}}", "", space / 2, text, "", space - space / 2);
}

/// Makes a row in which consecutive replicas with the same label share a cell.
template <typename Label>
Row make_row(std::string name, std::uint32_t replicas, Label label) {
  Row row{std::move(name), {}};
  for (std::uint32_t r = 0; r < replicas; ++r) {
    const std::string text = label(r);
    if (row.cells.empty() || row.cells.back().label != text) {
      row.cells.push_back({text, 0});
    }
    ++row.cells.back().replicas;
  }
  return row;
}

/// Returns the width of one replica's cell such that every label fits with a blank on each side. A cell over k replicas
/// is k * width + k - 1 wide, since it covers k - 1 bars.
std::size_t replica_width(const std::vector<Row>& rows) {
  std::size_t width = 3;
  for (const Row& row : rows) {
    for (const Cell& cell : row.cells) {
      const std::size_t needed = cell.label.size() + 2;
      while (cell.replicas * width + cell.replicas - 1 < needed) {
        ++width;
      }
    }
  }
  return width;
}

}  // namespace

std::string topology_table(const Placement& placement) {
  const std::uint32_t replicas = placement.num_replicas;
  const std::vector<Row> rows = {
      make_row("hosts", replicas,
               [&](std::uint32_t r) {
                 return placement.hosts_given ? placement.host_of(placement.instance_of(r)) : "localhost";
               }),
      make_row("ILDs", replicas,
               [&](std::uint32_t r) {
                 return std::to_string(std::int64_t{r} * placement.ipus_per_replica / placement.ipus_per_link_domain);
               }),
      make_row("instances", replicas, [&](std::uint32_t r) { return std::to_string(placement.instance_of(r)); }),
      make_row("replicas", replicas, [](std::uint32_t r) { return std::to_string(r); })};
  const std::string title = "poprun topology";
  std::size_t width = replica_width(rows);
  while (11 + 1 + replicas * (width + 1) - 1 < title.size() + 2) {
    ++width;
  }
  const std::size_t body = replicas * (width + 1) - 1;
  const std::size_t inside = 11 + 1 + body;

  std::string table = fmt::format(" {:=<{}}\n|{}|\n|{:=<{}}|\n", "", inside, centred(title, inside), "", inside);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) {
      table += fmt::format("|{:-<11}|{:-<{}}|\n", "", "", body);
    }
    table += fmt::format("| {:<9} |", rows[i].name);
    for (const Cell& cell : rows[i].cells) {
      table += fmt::format("{}|", centred(cell.label, cell.replicas * (width + 1) - 1));
    }
    table += "\n";
  }
  return table + fmt::format(" {:-<{}}\n", "", inside);
}

}  // namespace poprun::launcher
