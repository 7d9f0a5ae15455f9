#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/screen/profile_screen.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kRowsOfCurves = 6;
constexpr std::size_t kMarksCompared = 3;
constexpr std::array<const char*, 2> kSides = {"from", "to"};
constexpr std::size_t kPlans = 17;  ///< Column at which changed plans begin.
constexpr std::size_t kPlansShown = 3;

/// A value in the source and in the target.
using Both = std::array<std::uint64_t, 2>;

std::int64_t difference(const Both& both) {
  return static_cast<std::int64_t>(both[1]) - static_cast<std::int64_t>(both[0]);
}

/// Formats a difference: "+1.5 MiB", "-12 B", or "-" if nothing changes.
template <typename Text>
std::string signed_text(std::int64_t difference, Text text) {
  return difference == 0
             ? "-"
             : fmt::format("{}{}", difference > 0 ? '+' : '-', text(static_cast<std::uint64_t>(std::abs(difference))));
}

class Comparison {
 public:
  Comparison(const NamedProfile& source, const NamedProfile& target, const ProfileFrame& frame)
      : sides_{&source, &target}, frame_(frame) {
    frame_.width = std::max<std::size_t>(frame_.width, 80);
  }

  std::string text() {
    heading();
    for (int ipu = 0; ipu < ipus(); ++ipu) {
      bars(ipu);
    }
    for (const int ipu : in_detail()) {
      categories(ipu);
      liveness(ipu);
      variables(ipu);
    }
    operators();
    step();
    return std::move(text_);
  }

 private:
  [[nodiscard]] const proto::Report& report(std::size_t side) const { return sides_.at(side)->profile.report(); }
  [[nodiscard]] const proto::IpuReport& ipu_of(std::size_t side, int ipu) const { return report(side).ipus(ipu); }

  [[nodiscard]] int ipus() const { return std::min(report(0).ipus_size(), report(1).ipus_size()); }

  /// Returns all IPUs if there are few of them, else only the IPU whose fullest tile changes most.
  [[nodiscard]] std::vector<int> in_detail() const {
    std::vector<int> all;
    int most = 0;
    const auto changes = [this](int ipu) {
      return std::abs(difference({ipu_of(0, ipu).balance().max(), ipu_of(1, ipu).balance().max()}));
    };
    for (int ipu = 0; ipu < ipus(); ++ipu) {
      all.push_back(ipu);
      most = changes(ipu) > changes(most) ? ipu : most;
    }
    return all.size() <= kIpusInDetail || frame_.everything ? all : std::vector<int>{most};
  }

  void heading() {
    for (const std::size_t side : {0U, 1U}) {
      text_ += fmt::format("# {} {}: {}\n", side == 0 ? "source" : "target", sides_.at(side)->name,
                           title_of(sides_.at(side)->profile));
    }
    if (report(0).ipus_size() != report(1).ipus_size()) {
      text_ += fmt::format("# IPUs 0 to {} are in both profiles\n", ipus() - 1);
    }
  }

  void bars(int ipu) {
    const std::uint64_t scale = std::max(ipu_of(0, ipu).peak(), ipu_of(1, ipu).peak());
    const std::uint64_t tile_scale = std::max(ipu_of(0, ipu).balance().max(), ipu_of(1, ipu).balance().max());
    for (const std::size_t side : {0U, 1U}) {
      const proto::IpuReport& of = ipu_of(side, ipu);
      text_ += bar_line(fmt::format("IPU {} {}", ipu, kSides.at(side)),
                        bar_parts(report(side), of.at_peak(), of.peak()), of.capacity(), frame_.width,
                        fmt::format("{} of {}", mebibytes_text(of.peak()), mebibytes_text(of.capacity())), scale);
    }
    for (const std::size_t side : {0U, 1U}) {
      const proto::IpuReport& of = ipu_of(side, ipu);
      const proto::TileReport& tile = of.fullest_tile();
      text_ += bar_line(fmt::format("tile {} {}", tile.tile(), kSides.at(side)),
                        bar_parts(report(side), tile.at_peak(), tile.peak()), of.bytes_per_tile(), frame_.width,
                        fmt::format("{} of {} B", grouped(tile.peak()), grouped(of.bytes_per_tile())), tile_scale);
    }
  }

  template <typename Text>
  void row(const std::string& name, const Both& both, Text in_words) {
    text_ += fmt::format("{:<26}{:>16}{:>16}{:>16}\n", name, in_words(both[0]), in_words(both[1]),
                         signed_text(difference(both), in_words));
  }

  void categories(int ipu) {
    text_ += fmt::format("\n{:<26}{:>16}{:>16}{:>16}\n", fmt::format("IPU {} at its peak", ipu), "source", "target",
                         "difference");
    std::set<std::string> named;
    for (const std::size_t side : {0U, 1U}) {
      for (const std::string& name : report(side).categories()) {
        if (!named.insert(name).second) {
          continue;
        }
        const Both both = {of_category(0, ipu, name), of_category(1, ipu, name)};
        if (both != Both{}) {
          row(fmt::format("  {} {}  {}", letter_of(name, true), letter_of(name, false), name), both, mebibytes_text);
        }
      }
    }
    const auto each = [&](auto of) { return Both{of(ipu_of(0, ipu)), of(ipu_of(1, ipu))}; };
    row("always live", each([](const auto& i) { return i.liveness().always_live(); }), mebibytes_text);
    row("not always live",
        each([](const auto& i) { return most_live_bytes(i.liveness()) - i.liveness().always_live(); }), mebibytes_text);
    row("all, with gaps", each([](const auto& i) { return i.peak(); }), mebibytes_text);
    row("tiles: min", each([](const auto& i) { return i.balance().min(); }), of_tile);
    row("       mean", each([](const auto& i) { return i.balance().mean(); }), of_tile);
    row("       max", each([](const auto& i) { return i.balance().max(); }), of_tile);
    row("       over the limit", each(overflowing_tiles), [](std::uint64_t tiles) { return grouped(tiles); });
  }

  [[nodiscard]] std::uint64_t of_category(std::size_t side, int ipu, const std::string& name) const {
    const auto& names = report(side).categories();
    const auto at = std::ranges::find(names, name);
    return at == names.end() ? 0 : bytes_of(ipu_of(side, ipu).at_peak(), static_cast<int>(at - names.begin()));
  }

  struct Curve {
    const proto::Liveness& liveness;
    std::uint64_t limit;
  };

  void liveness(int ipu) {
    curves(ipu, fmt::format("IPU {}", ipu), [](const proto::IpuReport& of) {
      return Curve{of.liveness(), of.capacity()};
    });
    if (frame_.everything) {
      curves(ipu, fmt::format("the fullest tile of IPU {}", ipu), [](const proto::IpuReport& of) {
        return Curve{of.fullest_tile().liveness(), of.bytes_per_tile()};
      });
    }
  }

  /// Draws the curves of both profiles to the same scale.
  template <typename CurveOf>
  void curves(int ipu, const std::string& name, CurveOf curve_of) {
    std::uint64_t top = 0;
    for (const std::size_t side : {0U, 1U}) {
      const Curve curve = curve_of(ipu_of(side, ipu));
      top = std::max(top, top_of(most_live_bytes(curve.liveness), curve.limit));
    }
    for (const std::size_t side : {0U, 1U}) {
      const Curve curve = curve_of(ipu_of(side, ipu));
      text_ += fmt::format("\n# liveness of {}, {}\n", name, side == 0 ? "source" : "target");
      text_ += liveness_curve(
          curve.liveness,
          {.width = frame_.width, .rows = kRowsOfCurves, .limit = curve.limit, .top = top, .marks = kMarksCompared},
          function_beginnings(report(side)));
      const int peaks = std::min(curve.liveness.peaks_size(), static_cast<int>(kMarksCompared));
      for (int i = 0; i < peaks; ++i) {
        text_ += peak_line(static_cast<std::size_t>(i) + 1, curve.liveness.peaks(i), curve.limit, frame_.cut());
      }
    }
  }

  /// The values of a row in both profiles and, for an operator, its plans.
  struct Row {
    Both both = {};
    std::array<std::string, 2> plans = {};
  };
  using Rows = std::map<std::string, Row>;

  /// Lists the rows that change, from the largest change to the smallest.
  template <typename Text>
  void changes(const Rows& rows, std::string_view unit, Text in_words) {
    std::vector<std::pair<std::string, Row>> changed;
    std::ranges::copy_if(rows, std::back_inserter(changed),
                         [](const auto& entry) { return difference(entry.second.both) != 0; });
    std::ranges::stable_sort(changed, std::ranges::greater{},
                             [](const auto& entry) { return std::abs(difference(entry.second.both)); });
    if (changed.empty()) {
      text_ += "  no difference\n";
      return;
    }
    text_ += fmt::format("{:>15}{:>15}{:>15}  {}\n", "source", "target", "difference", unit);
    for (std::size_t i = 0; i < std::min(changed.size(), kRowsOfTables); ++i) {
      const auto& [name, row] = changed[i];
      text_ += shortened(fmt::format("{:>15}{:>15}{:>15}  {}", in_words(row.both[0]), in_words(row.both[1]),
                                     signed_text(difference(row.both), in_words), name),
                         frame_.cut());
      text_ += "\n" + (i < kPlansShown ? changed_plan(row) : "");
    }
  }

  /// Formats an operator's two plans. Returns "" if one is missing or if they are the same.
  [[nodiscard]] std::string changed_plan(const Row& row) const {
    const auto& [from, to] = row.plans;
    return from.empty() || to.empty() || from == to
               ? ""
               : wrapped("from " + from, kPlans, frame_.cut(), 2) + wrapped("to   " + to, kPlans, frame_.cut(), 2);
  }

  void variables(int ipu) {
    Rows rows;
    for (const std::size_t side : {0U, 1U}) {
      for (const proto::Variable* variable : variables_at_peak(report(side), static_cast<std::uint32_t>(ipu))) {
        rows[variable->name()].both.at(side) += variable->bytes();
      }
    }
    text_ += fmt::format("\n# variables at the peaks of IPU {}, by difference\n", ipu);
    changes(rows, "name", mebibytes_text);
  }

  void operators() {
    Rows rows;
    for (const std::size_t side : {0U, 1U}) {
      for (const proto::OperatorRow* op : longest_operators(report(side))) {
        Row& row = rows[name_of(*op)];
        row.both.at(side) += total_cycles(op->cost());
        row.plans.at(side) = op->plan();
      }
    }
    text_ += "\n# cycles of operators in a step, by difference\n";
    changes(rows, "operator", [](std::uint64_t cycles) { return grouped(cycles); });
  }

  void step() {
    const double from = sides_[0]->profile.device().step_seconds();
    const double to = sides_[1]->profile.device().step_seconds();
    text_ +=
        fmt::format("\n{:<14} {} to {}, {}\n", sides_[1]->profile.config().inference() ? "device batch" : "device step",
                    duration_text(from), duration_text(to), change(from, to));
  }

  std::array<const NamedProfile*, 2> sides_;
  ProfileFrame frame_;
  std::string text_;
};

}  // namespace

std::string profile_comparison(const NamedProfile& source, const NamedProfile& target, const ProfileFrame& frame) {
  return Comparison(source, target, frame).text();
}

}  // namespace poprun::launcher
