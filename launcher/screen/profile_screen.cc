#include "launcher/screen/profile_screen.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "launcher/screen/job_rows.h"
#include "replica/base/listed_rows.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kMarks = 5;
constexpr std::size_t kMarksInDetail = 3;  ///< Peaks shown with options and plan.

class Screen {
 public:
  Screen(const proto::Profile& profile, const ProfileFrame& frame)
      : profile_(profile), report_(profile.report()), frame_(frame) {
    frame_.width = std::max<std::size_t>(frame_.width, 80);
  }

  std::string text() {
    heading();
    notes();
    bars();
    categories();
    balance();
    for (const int ipu : in_detail()) {
      liveness_of(ipu);
    }
    for (int ipu = 0; ipu < report_.ipus_size(); ++ipu) {
      for (const proto::TileReport& tile : report_.ipus(ipu).tiles()) {
        liveness_of_tile(ipu, tile);
      }
    }
    for (const int ipu : frame_.everything ? in_detail() : std::vector<int>{fullest()}) {
      variables(static_cast<std::uint32_t>(ipu));
    }
    operators();
    if (!profile_.wall().step_seconds().empty()) {
      kinds();
    }
    run();
    return std::move(text_);
  }

 private:
  /// Returns the IPU whose fullest tile uses the most memory.
  [[nodiscard]] int fullest() const {
    const auto most =
        std::ranges::max_element(report_.ipus(), {}, [](const proto::IpuReport& ipu) { return ipu.balance().max(); });
    return static_cast<int>(most - report_.ipus().begin());
  }

  [[nodiscard]] std::vector<int> in_detail() const {
    const auto ipus = static_cast<std::size_t>(report_.ipus_size());
    if (ipus > kIpusInDetail && !frame_.everything) {
      return {fullest()};
    }
    std::vector<int> all(ipus);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  [[nodiscard]] std::vector<ListedRow> listed() const {
    const auto ipus = static_cast<std::size_t>(report_.ipus_size());
    return frame_.everything ? all_rows(ipus) : listed_rows(ipus, static_cast<std::size_t>(fullest()));
  }

  void heading() {
    text_ += fmt::format("# profile of {}", title_of(profile_));
    std::uint64_t over = 0;
    for (const proto::IpuReport& ipu : report_.ipus()) {
      over += overflowing_tiles(ipu);
    }
    text_ += over == 0 ? ": fits\n" : fmt::format(": does not fit, {} over the limit\n", counted(over, "tile"));
  }

  /// Shows all notes in full, as --dry-run does.
  void notes() {
    for (const proto::Note& note : profile_.notes()) {
      const std::string lines = wrapped(note.text(), kBarName, frame_.width, note.text().size());
      text_ += fmt::format("{:<{}}{}", "note", kBarName, lines.substr(kBarName));
    }
  }

  void bars() {
    for (const ListedRow& row : listed()) {
      if (row.left_out > 0) {
        text_ += fmt::format("..          {}, which -v shows\n", counted(row.left_out, "IPU"));
      }
      const proto::IpuReport& ipu = report_.ipus(static_cast<int>(row.index));
      text_ +=
          bar_line(fmt::format("IPU {}", row.index), bar_parts(report_, ipu.at_peak(), ipu.peak()), ipu.capacity(),
                   frame_.width, fmt::format("{} of {}", mebibytes_text(ipu.peak()), mebibytes_text(ipu.capacity())));
      const proto::TileReport& tile = ipu.fullest_tile();
      text_ += bar_line(fmt::format("  tile {}", tile.tile()), bar_parts(report_, tile.at_peak(), tile.peak()),
                        ipu.bytes_per_tile(), frame_.width,
                        fmt::format("{} of {} B", grouped(tile.peak()), grouped(ipu.bytes_per_tile())));
    }
  }

  /// Shows the bytes of each category. One IPU gets columns for the bytes that are always live, for those that are not,
  /// and for its fullest tile. Several IPUs get one column each.
  void categories() {
    const std::vector<int> ipus = in_detail();
    const bool one = ipus.size() == 1;
    std::vector<std::string> names;
    if (one) {
      names = {"always live", "not always", fmt::format("tile {}", report_.ipus(ipus[0]).fullest_tile().tile())};
    } else {
      for (const int ipu : shown_columns(ipus)) {
        names.push_back(fmt::format("IPU {}", ipu));
      }
    }
    text_ += "\n";
    cells(one ? fmt::format("IPU {} at its peak", ipus[0]) : "at the peak of each", names);
    Figures others(names.size());
    for (int c = 0; c < report_.categories_size(); ++c) {
      const std::string& name = report_.categories(c);
      const Figures bytes = bytes_of_category(ipus, c);
      if (is_small(bytes, ipus)) {
        std::ranges::transform(others, bytes, others.begin(), std::plus{});
      } else {
        figures(fmt::format("  {} {}  {}", letter_of(name, true), letter_of(name, false), name), bytes, one);
      }
    }
    if (others != Figures(names.size())) {
      figures("       others", others, one);
    }
    figures("  -    unused", unused(ipus), one);
  }

  /// The figures in a row of the table, one per column.
  using Figures = std::vector<std::uint64_t>;

  [[nodiscard]] Figures bytes_of_category(const std::vector<int>& ipus, int c) const {
    if (ipus.size() == 1) {
      const proto::IpuReport& ipu = report_.ipus(ipus[0]);
      return {ipu.at_peak().always_live(c), ipu.at_peak().not_always_live(c),
              bytes_of(ipu.fullest_tile().at_peak(), c)};
    }
    Figures bytes;
    for (const int ipu : shown_columns(ipus)) {
      bytes.push_back(bytes_of(report_.ipus(ipu).at_peak(), c));
    }
    return bytes;
  }

  /// Returns whether all figures are below a thousandth of the peak.
  [[nodiscard]] bool is_small(const Figures& bytes, const std::vector<int>& ipus) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const proto::IpuReport& ipu = report_.ipus(ipus[ipus.size() == 1 ? 0 : i]);
      const bool is_tile = ipus.size() == 1 && i == 2;
      if (1000 * bytes[i] >= std::max<std::uint64_t>(1, is_tile ? ipu.fullest_tile().peak() : ipu.peak())) {
        return false;
      }
    }
    return true;
  }

  /// Returns the bytes that the plans leave unused because tiles of an IPU reach their peaks at different steps.
  [[nodiscard]] Figures unused(const std::vector<int>& ipus) const {
    const auto of = [](std::uint64_t peak, const proto::Liveness& liveness) {
      return peak - std::min(peak, most_live_bytes(liveness));
    };
    if (ipus.size() == 1) {
      const proto::IpuReport& ipu = report_.ipus(ipus[0]);
      return {0, of(ipu.peak(), ipu.liveness()), of(ipu.fullest_tile().peak(), ipu.fullest_tile().liveness())};
    }
    Figures bytes;
    for (const int ipu : shown_columns(ipus)) {
      bytes.push_back(of(report_.ipus(ipu).peak(), report_.ipus(ipu).liveness()));
    }
    return bytes;
  }

  /// Adds a row. `one` says whether only one IPU is shown; if so, the last column is for its fullest tile.
  void figures(const std::string& name, const Figures& bytes, bool one) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      texts.push_back(bytes[i] == 0                  ? "-"
                      : one && i + 1 == bytes.size() ? of_tile(bytes[i])
                                                     : mebibytes_text(bytes[i]));
    }
    cells(name, texts);
  }

  /// Returns the first `ipus`, as many as fit.
  [[nodiscard]] std::vector<int> shown_columns(const std::vector<int>& ipus) const {
    const std::size_t room = (frame_.width - kCategoryName) / kCell;
    return {ipus.begin(), ipus.begin() + static_cast<std::ptrdiff_t>(std::min(room, ipus.size()))};
  }

  void cells(const std::string& name, const std::vector<std::string>& cells) {
    text_ += fmt::format("{:<{}}", name, kCategoryName);
    for (const std::string& cell : cells) {
      text_ += fmt::format("{:>{}}", cell, kCell);
    }
    text_ += "\n";
  }

  void balance() {
    text_ += fmt::format("\n{:<12}{:>12} {:<10}{:>12}{:>14} {:<10}{:>7}\n", "tiles, bytes", "min", "(tile)", "mean",
                         "max", "(tile)", "kinds");
    for (const ListedRow& row : listed()) {
      const proto::IpuReport& ipu = report_.ipus(static_cast<int>(row.index));
      const proto::TileBalance& b = ipu.balance();
      text_ += fmt::format("{:<12}{:>12} {:<10}{:>12}{:>14} {:<10}{:>7}\n", fmt::format("  IPU {}", row.index),
                           grouped(b.min()), fmt::format("({})", b.min_tile()), grouped(b.mean()), grouped(b.max()),
                           fmt::format("({})", b.max_tile()), grouped(ipu.classes_size()));
    }
  }

  void liveness_of(int ipu) {
    const proto::IpuReport& report = report_.ipus(ipu);
    curve(fmt::format("liveness of IPU {}", ipu), report.liveness(), report.capacity());
  }

  void liveness_of_tile(int ipu, const proto::TileReport& tile) {
    curve(fmt::format("liveness of tile {} of IPU {}; the tile needs {} including gaps", tile.tile(), ipu,
                      of_tile(tile.peak())),
          tile.liveness(), report_.ipus(ipu).bytes_per_tile());
  }

  void curve(const std::string& title, const proto::Liveness& liveness, std::uint64_t limit) {
    text_ += fmt::format("\n# {}, over {}\n", title, counted(report_.steps(), "step"));
    text_ += liveness_curve(liveness, {.width = frame_.width, .limit = limit, .marks = kMarks},
                            function_beginnings(report_));
    const auto peaks = static_cast<std::size_t>(liveness.peaks_size());
    for (std::size_t i = 0; i < std::min(peaks, kMarks); ++i) {
      peak(i + 1, liveness.peaks(static_cast<int>(i)), limit);
    }
  }

  void peak(std::size_t number, const proto::Peak& peak, std::uint64_t limit) {
    text_ += peak_line(number, peak, limit, frame_.cut());
    if (number > (in_detail().size() == 1 ? kMarksInDetail : 1)) {
      return;
    }
    for (const auto& [label, detail] : {std::pair<const char*, std::string>{"options", peak.attributes()},
                                        {"plan", peak.plan()},
                                        {"holds", largest(peak, limit)}}) {
      const std::string lines = wrapped(detail, kDetail, frame_.cut(), 2);
      text_ += lines.empty() ? "" : fmt::format("{:>{}}  {}", label, kDetail - 2, lines.substr(kDetail));
    }
  }

  /// Formats the largest parts: "12.3 MiB conv1, 4.5 MiB temporaries of 'conv2'".
  static std::string largest(const proto::Peak& peak, std::uint64_t limit) {
    std::string text;
    for (const proto::PeakPart& part : peak.largest()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", bytes_label(part.bytes(), limit), part.name());
    }
    return text;
  }

  void variables(std::uint32_t ipu) {
    const proto::IpuReport& report = report_.ipus(static_cast<int>(ipu));
    const std::uint64_t tiles = report.capacity() / report.bytes_per_tile();
    const auto live = static_cast<double>(most_live_bytes(report.liveness()));
    const std::vector<const proto::Variable*> all = variables_at_peak(report_, ipu);
    text_ += fmt::format("\n# largest of {} at the peak of IPU {}, step {}\n", counted(all.size(), "variable"), ipu,
                         grouped(report.liveness().worst_step()));
    std::size_t room = 0;  // Width of the names.
    for (std::size_t i = 0; i < std::min(all.size(), kRowsOfTables); ++i) {
      room = std::max(room, with_type(*all[i]).size());
    }
    room = std::min(room, frame_.cut() - kLeft - kLives - (is_wide() ? kTiles : 0));
    text_ += fmt::format("{:>11}{:>8}  {:<{}}  {}\n", "bytes", "of live", "name", room,
                         is_wide() ? fmt::format("{:<{}}tiles", "lives", kLives) : "lives");
    for (std::size_t i = 0; i < std::min(all.size(), kRowsOfTables); ++i) {
      variable(*all[i], live, tiles, room);
    }
  }

  static std::string with_type(const proto::Variable& variable) {
    return variable.type().empty() ? variable.name() : fmt::format("{}  {}", variable.name(), variable.type());
  }

  void variable(const proto::Variable& variable, double live, std::uint64_t tiles, std::size_t room) {
    const std::string row =
        fmt::format("{:>11}{:>8}  {:<{}}  {:<{}}{}", mebibytes_text(variable.bytes()),
                    percent(static_cast<double>(variable.bytes()) / live), shortened(with_type(variable), room), room,
                    lives_text(variable), is_wide() ? kLives : 0, is_wide() ? tiles_text(variable, tiles) : "");
    text_ += shortened(row, frame_.cut()) + "\n";
  }

  void operators() {
    const std::vector<const proto::OperatorRow*> rows = longest_operators(report_);
    const std::uint64_t all = step_cycles(report_);
    text_ += fmt::format("\n# longest of {} in a {}, {} cycles in all\n", counted(rows.size(), "operator"),
                         profile_.config().inference() ? "pass over the items" : "step", grouped(all));
    text_ += fmt::format(
        "{:>12}{:>8}{:>7}{:>9}{}  operator\n", "cycles", "of all", "calls", "of peak",
        is_wide() ? fmt::format("{:>9}{:>9}{:>9}{:>9}{:>9}", "compute", "exchange", "links", "off chip", "sync") : "");
    for (std::size_t i = 0; i < std::min(rows.size(), kRowsOfTables); ++i) {
      one_operator(*rows[i], all);
    }
  }

  void kinds() {
    const std::vector<KindRow> rows = kinds_of_operators(profile_);
    const auto all = [&](auto KindRow::*figure) {
      return std::accumulate(rows.begin(), rows.end(), 0.0,
                             [&](double sum, const KindRow& row) { return sum + static_cast<double>(row.*figure); });
    };
    const double all_cycles = all(&KindRow::cycles);
    const double all_seconds = all(&KindRow::seconds);
    text_ += fmt::format(
        "\n# kinds of operators in a step: device clock, and wall clock of this machine\n"
        "{:>12}{:>8}{:>11}{:>8}{:>10}{:>7}  kind\n",
        "cycles", "of all", "wall", "of all", "GFLOP/s", "calls");
    for (std::size_t i = 0; i < std::min(rows.size(), kRowsOfTables); ++i) {
      const KindRow& row = rows[i];
      const double speed = row.seconds > 0 ? static_cast<double>(row.flops) / row.seconds / 1e9 : 0;
      const std::string line =
          fmt::format("{:>12}{:>8}{:>11}{:>8}{:>10}{:>7}  {}", grouped(row.cycles),
                      percent(static_cast<double>(row.cycles) / all_cycles), duration_text(row.seconds),
                      percent(row.seconds / all_seconds), speed > 0 ? fmt::format("{:.1f}", speed) : "-",
                      grouped(row.calls), row.kind);
      text_ += shortened(line, frame_.cut()) + "\n";
    }
  }

  void one_operator(const proto::OperatorRow& op, std::uint64_t all) {
    const proto::Cost& cost = op.cost();
    const auto cycles = static_cast<double>(total_cycles(cost));
    std::string row =
        fmt::format("{:>12}{:>8}{:>7}{:>9}", grouped(total_cycles(cost)), percent(cycles / static_cast<double>(all)),
                    grouped(op.calls()), op.cost().flops() > 0 ? percent(op.share_of_peak()) : "-");
    if (is_wide()) {
      for (const std::uint64_t part : {cost.compute_cycles(), cost.exchange_cycles(), cost.link_cycles(),
                                       cost.host_cycles() + cost.streaming_cycles(), cost.sync_cycles()}) {
        row += fmt::format("{:>9}", part == 0 ? "-" : percent(static_cast<double>(part) / cycles));
      }
    }
    row += "  " + name_of(op);
    if (is_wide() && !op.plan().empty()) {
      row += fmt::format("  {}", op.plan());
    }
    text_ += shortened(row, frame_.cut()) + "\n";
  }

  void run() {
    const proto::DeviceTime& device = profile_.device();
    text_ += fmt::format("\n{:<14} {}, {} ({})\n", profile_.config().inference() ? "device batch" : "device step",
                         duration_text(device.step_seconds()), rate_text(device.samples_per_second()),
                         device_clock_text(profile_.config().device().ipu(), device.compared_error()));
    if (device.has_disturbed()) {
      text_ += fmt::format("{:<14} {}\n", "  what if", disturbed_text(device.disturbed()));
    }
    if (!profile_.has_outcome()) {
      text_ += fmt::format("{:<14} nothing; all times are those of the device clock\n", "executed");
      return;
    }
    const proto::WallTime& wall = profile_.wall();
    const bool inference = profile_.config().inference();
    text_ += fmt::format(
        "{:<14} {}, {:.2f} s wall\n", "executed",
        inference ? counted(profile_.outcome().test_items(), "item") : counted(profile_.outcome().steps(), "step"),
        inference ? wall.evaluation_seconds() : wall.training_seconds());
    for (int ipu = 0; ipu < profile_.measured_peak_bytes_size(); ++ipu) {
      measured(ipu);
    }
  }

  void measured(int ipu) {
    const proto::IpuMemory& planned = profile_.planned_memory(ipu);
    const bool exact = find_choice<TileStorage>(profile_.config().memory().tiles()) == TileStorage::kExact;
    const std::uint64_t peak = profile_.measured_peak_bytes(ipu);
    const std::uint64_t expected = exact ? planned.peak() : planned.images_peak();
    text_ +=
        fmt::format("{:<14} {} used{}{}\n", fmt::format("  IPU {}", ipu), mebibytes_text(peak),
                    exact ? " on its tiles" : " by contiguous tensors",
                    peak == expected ? ", as planned" : fmt::format(", but {} was planned", mebibytes_text(expected)));
  }

  /// Returns whether the frame has space for plans, tiles and cycles by kind.
  [[nodiscard]] bool is_wide() const { return frame_.width >= kWide; }

  static constexpr std::size_t kDetail = 16;  ///< Column at which a peak's options, plan and variables begin.
  static constexpr std::size_t kWide = 140;
  static constexpr std::size_t kLeft = 23;   ///< Width of a variable's bytes and share, with spaces.
  static constexpr std::size_t kLives = 24;  ///< Including spaces, like kTiles.
  static constexpr std::size_t kTiles = 36;
  static constexpr std::size_t kCategoryName = 24;
  static constexpr std::size_t kCell = 14;

  const proto::Profile& profile_;
  const proto::Report& report_;
  ProfileFrame frame_;
  std::string text_;
};

}  // namespace

std::string profile_screen(const proto::Profile& profile, const ProfileFrame& frame) {
  return Screen(profile, frame).text();
}

}  // namespace poprun::launcher
