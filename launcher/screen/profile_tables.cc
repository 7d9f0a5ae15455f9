#include "launcher/screen/profile_tables.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::launcher {

std::string shortened(std::string_view text, std::size_t width) {
  constexpr std::string_view kMore = "..";
  if (text.size() <= width) {
    return std::string(text);
  }
  return fmt::format("{}{}", text.substr(0, width - std::min(width, kMore.size())), kMore.substr(0, width));
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t lines) {
  std::string wrapped;
  const std::size_t room = width - indent;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t blank = text.size() <= room ? text.size() : text.rfind(' ', room);
    const bool breaks = line < lines && blank != std::string_view::npos && blank > 0;
    wrapped += fmt::format("{:{}}{}\n", "", indent, breaks ? text.substr(0, blank) : shortened(text, room));
    text.remove_prefix(breaks ? std::min(blank + 1, text.size()) : text.size());
  }
  return wrapped;
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string change(double from, double to) {
  return from > 0 ? fmt::format("{:+.1f} %", 100 * (to / from - 1)) : "";
}

std::string of_tile(std::uint64_t bytes) {
  return fmt::format("{} B", grouped(bytes));
}

char letter_of(std::string_view category, bool always_live) {
  static const std::map<std::string_view, char> kLetters = {
      {"weights", 'w'},      {"optimiser state", 'o'}, {"running statistics", 'r'}, {"constants", 'k'},
      {"gradients", 'g'},    {"activations", 'a'},     {"host data", 'd'},          {"metrics", 'm'},
      {"stashes", 's'},      {"temporaries", 't'},     {"vertex code", 'v'},        {"vertex state", 'e'},
      {"control code", 'c'}, {"exchange code", 'x'},   {"between IPUs", 'i'},       {"host exchange", 'h'},
      {"gaps", '_'}};
  const auto known = kLetters.find(category);
  const char letter = known == kLetters.end() ? '?' : known->second;
  return always_live ? static_cast<char>(std::toupper(letter)) : letter;
}

std::vector<BarPart> bar_parts(const proto::Report& report, const proto::CategoryBytes& bytes, std::uint64_t peak) {
  std::vector<BarPart> parts;
  std::uint64_t live = 0;
  for (const bool always : {true, false}) {
    const auto& by_category = always ? bytes.always_live() : bytes.not_always_live();
    for (int c = 0; c < by_category.size(); ++c) {
      parts.push_back({letter_of(report.categories(c), always), by_category[c]});
      live += by_category[c];
    }
  }
  parts.push_back({'-', peak - std::min(peak, live)});
  return parts;
}

std::string bar_line(const std::string& name, const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                     const std::string& figures, std::uint64_t scale) {
  constexpr std::size_t kBarFigures = 28;
  const std::size_t bar = width - kBarName - kBarFigures;
  return fmt::format("{:<{}}{:<{}}  {}\n", name, kBarName, memory_bar(parts, limit, bar, scale), bar, figures);
}

std::string peak_line(std::size_t number, const proto::Peak& peak, std::uint64_t limit, std::size_t width) {
  const std::string line = fmt::format("{} {:>12}  step {}, {}: {}", number, bytes_label(peak.bytes(), limit),
                                       grouped(peak.step()), peak.function(), peak.operation());
  return shortened(line, width) + "\n";
}

std::vector<NamedStep> function_beginnings(const proto::Report& report) {
  std::vector<NamedStep> names;
  for (const proto::FunctionTree& function : report.functions()) {
    const proto::TreeNode* first = function.nodes().empty() ? nullptr : &function.nodes(0);
    while (first != nullptr && !first->nodes().empty()) {
      first = &first->nodes(0);
    }
    if (first != nullptr) {
      names.push_back({first->step(), function.name()});
    }
  }
  return names;
}

std::uint64_t total_cycles(const proto::Cost& cost) {
  return cost.compute_cycles() + cost.exchange_cycles() + cost.link_cycles() + cost.host_cycles() +
         cost.streaming_cycles() + cost.sync_cycles();
}

std::uint64_t bytes_of(const proto::CategoryBytes& bytes, int category) {
  return bytes.always_live(category) + bytes.not_always_live(category);
}

std::vector<const proto::Variable*> variables_at_peak(const proto::Report& report, std::uint32_t ipu) {
  const std::uint32_t step = report.ipus(static_cast<int>(ipu)).liveness().worst_step();
  std::vector<const proto::Variable*> variables;
  for (const proto::Variable& variable : report.variables()) {
    const bool lives = std::ranges::any_of(
        variable.lives(), [step](const proto::Span& span) { return span.first() <= step && step <= span.last(); });
    if (variable.ipu() == ipu && lives) {
      variables.push_back(&variable);
    }
  }
  return variables;
}

std::string lives_text(const proto::Variable& variable) {
  if (variable.always_live() || variable.lives().empty()) {
    return "always live";
  }
  const std::uint32_t first = variable.lives(0).first();
  const std::uint32_t last = variable.lives(variable.lives_size() - 1).last();
  if (first == last) {
    return fmt::format("step {}", grouped(first));
  }
  const std::string steps = fmt::format("steps {} to {}", grouped(first), grouped(last));
  return variable.lives_size() == 1 ? steps : fmt::format("{}, {} times", steps, variable.lives_size());
}

std::string tiles_text(const proto::Variable& variable, std::uint64_t tiles) {
  if (variable.tiles() == tiles) {
    return "all tiles";
  }
  if (variable.tiles() == 1) {
    return fmt::format("tile {}", variable.first_tile());
  }
  const std::string range = fmt::format("tiles {} to {}", variable.first_tile(), variable.last_tile());
  const bool whole = variable.last_tile() - variable.first_tile() + 1 == variable.tiles();
  return whole ? range : fmt::format("{}, {} of them", range, variable.tiles());
}

std::vector<KindRow> kinds_of_operators(const proto::Profile& profile) {
  const auto& seconds = profile.wall().step_seconds();
  std::map<std::string, KindRow> by_kind;
  for (const proto::OperatorRow& op : profile.report().operators()) {
    if (op.host_function() == profile.report().step_function()) {
      KindRow& row = by_kind[op.operation().substr(0, op.operation().find(' '))];  // "copy of 3 tensors"
      row.calls += op.calls();
      row.cycles += total_cycles(op.cost());
      row.flops += op.plan().empty() ? 0 : op.cost().flops();  // Replicas may divide other operators.
      row.seconds += static_cast<int>(op.step()) + 1 < seconds.size() ? seconds[static_cast<int>(op.step())] : 0;
    }
  }
  by_kind["(waiting for the replicas of the host)"].seconds = seconds[seconds.size() - 1];
  std::vector<KindRow> rows;
  for (auto& [kind, row] : by_kind) {
    row.kind = kind;
    if (row.cycles > 0 || row.seconds > 0) {
      rows.push_back(row);
    }
  }
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const KindRow& row) { return std::pair(row.seconds, row.cycles); });
  return rows;
}

std::vector<const proto::OperatorRow*> longest_operators(const proto::Report& report) {
  std::vector<const proto::OperatorRow*> rows;
  for (const proto::OperatorRow& row : report.operators()) {
    if (row.host_function() == report.step_function() && total_cycles(row.cost()) > 0) {
      rows.push_back(&row);
    }
  }
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const proto::OperatorRow* row) { return total_cycles(row->cost()); });
  return rows;
}

std::uint64_t step_cycles(const proto::Report& report) {
  std::uint64_t cycles = 0;
  for (const proto::OperatorRow* row : longest_operators(report)) {
    cycles += total_cycles(row->cost());
  }
  return cycles;
}

std::string name_of(const proto::OperatorRow& row) {
  return row.name().empty() ? row.operation() : fmt::format("{} '{}'", row.operation(), row.name());
}

std::string title_of(const proto::Profile& profile) {
  const std::uint32_t ipus = profile.config().topology().ipus_per_replica();
  return fmt::format("{} on {} of {}", profile.config().model().name(), counted(ipus, "IPU"),
                     profile.config().device().ipu());
}

std::uint64_t overflowing_tiles(const proto::IpuReport& ipu) {
  std::uint64_t tiles = 0;
  for (const proto::TileClassReport& one : ipu.classes()) {
    for (const proto::Span& span : one.tiles()) {
      tiles += one.overflowed() > 0 ? span.last() - span.first() + 1 : 0;
    }
  }
  return tiles;
}

}  // namespace poprun::launcher
