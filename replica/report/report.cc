#include "replica/report/report.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/report/operator_rows.h"
#include "replica/report/tile_contents.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

constexpr std::size_t kPeaksMax = 8;
constexpr int kBarsMax = 200'000;
constexpr std::size_t kPeakPartsMax = 8;

std::uint64_t count(Bytes bytes) {
  return static_cast<std::uint64_t>(bytes.count());
}

class StepIndex {
 public:
  explicit StepIndex(const Program& program) {
    for (const proto::Function& function : program.functions()) {
      add(function, function.steps());
    }
  }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(steps_.size()); }
  /// Returns a step. Its fields are null if the Program has no step with that number.
  [[nodiscard]] PlacedStep at(std::uint32_t number) const {
    return number < steps_.size() ? steps_[number] : PlacedStep{};
  }

 private:
  void add(const proto::Function& function, const Steps& steps) {
    for (const proto::Step& step : steps) {
      steps_.resize(std::max<std::size_t>(steps_.size(), step.number() + std::size_t{1}));
      steps_[step.number()] = {&function, &step};
      add(function, step.repeat().steps());
    }
  }

  std::vector<PlacedStep> steps_;
};

/// The purposes of claims: first kinds of tensors, then known categories, then others in the order of their claims.
class Categories {
 public:
  Categories(const Program& program, const std::vector<std::string>& known) : program_(program) {
    std::ranges::for_each(kinds_of_tensors(), [this](const std::string& name) { add(name); });
    std::ranges::for_each(known, [this](const std::string& name) { add(name); });
    for (const proto::IpuMemory& memory : program.memory()) {
      for (const proto::TileClaim& claim : memory.layout().claims()) {
        add(std::string(kind_of(program, claim)));
      }
    }
  }

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  [[nodiscard]] proto::CategoryBytes sum(const proto::TileLayout& layout, const std::vector<HeldBytes>& held) const {
    std::vector<std::uint64_t> always(names_.size());
    std::vector<std::uint64_t> not_always(names_.size());
    for (const HeldBytes& one : held) {
      (one.always_live ? always : not_always)[index_.find(kind_of(program_, layout.claims(one.claim)))->second] +=
          count(one.bytes);
    }
    proto::CategoryBytes sum;
    sum.mutable_always_live()->Add(always.begin(), always.end());
    sum.mutable_not_always_live()->Add(not_always.begin(), not_always.end());
    return sum;
  }

 private:
  void add(const std::string& name) {
    if (index_.emplace(name, names_.size()).second) {
      names_.push_back(name);
    }
  }

  const Program& program_;
  std::vector<std::string> names_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// The steps that read and write each tensor.
class Uses {
 public:
  explicit Uses(const Program& program)
      : reads_(static_cast<std::size_t>(program.tensors_size())), writes_(reads_.size()) {
    for (const proto::Function& function : program.functions()) {
      add(function.steps());
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> reads(const proto::TileClaim& claim) const { return steps(claim, reads_); }
  [[nodiscard]] std::vector<std::uint32_t> writes(const proto::TileClaim& claim) const { return steps(claim, writes_); }

 private:
  using StepLists = std::vector<std::vector<std::uint32_t>>;  // By tensor.

  void add(const Steps& steps) {
    for (const proto::Step& step : steps) {
      const StepTensors tensors = tensors_of(step);
      for (const std::uint32_t tensor : tensors.reads) {
        reads_.at(tensor).push_back(step.number());
      }
      for (const std::uint32_t tensor : tensors.writes) {
        writes_.at(tensor).push_back(step.number());
      }
      add(step.repeat().steps());
    }
  }

  /// Returns the steps of all tensors of a claim, ascending, each once.
  [[nodiscard]] static std::vector<std::uint32_t> steps(const proto::TileClaim& claim, const StepLists& lists) {
    std::vector<std::uint32_t> all;
    for (const std::uint32_t tensor : claim.tensors()) {
      all.insert(all.end(), lists.at(tensor).begin(), lists.at(tensor).end());
    }
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  }

  StepLists reads_;
  StepLists writes_;
};

class IpuReporter {
 public:
  /// All arguments must outlive the reporter.
  IpuReporter(const Program& program, const StepIndex& steps, const Categories& categories, const Uses& uses,
              std::uint32_t ipu)
      : program_(program),
        steps_(steps),
        categories_(categories),
        uses_(uses),
        ipu_(ipu),
        memory_(program.memory(static_cast<int>(ipu))),
        layout_(memory_.layout()) {
    for (int claim = 0; claim < layout_.claims_size(); ++claim) {
      names_.push_back(name_of(layout_.claims(claim)));
    }
  }

  [[nodiscard]] proto::IpuReport report(const std::vector<std::uint32_t>& tiles) const {
    proto::IpuReport report;
    report.set_capacity(memory_.capacity());
    report.set_bytes_per_tile(memory_.bytes_per_tile());
    report.set_peak(memory_.peak());
    const LivenessCurve all = liveness_of_ipu(memory_);
    *report.mutable_at_peak() = categories_.sum(layout_, held_on_ipu(memory_, all.worst_step()));
    *report.mutable_balance() = balance();
    *report.mutable_liveness() = liveness(all, [this](std::uint32_t step) { return held_on_ipu(memory_, step); });
    *report.mutable_fullest_tile() = tile_report(memory_.fullest_tile());
    for (const std::uint32_t tile : tiles) {
      *report.add_tiles() = tile_report(tile);
    }
    for (const proto::TileClass& one : layout_.classes()) {
      *report.add_classes() = class_report(one);
    }
    return report;
  }

  [[nodiscard]] std::vector<proto::Variable> variables() const {
    std::vector<proto::Variable> variables(static_cast<std::size_t>(layout_.claims_size()));
    for (int i = 0; i < layout_.claims_size(); ++i) {
      describe(layout_.claims(i), variables[static_cast<std::size_t>(i)]);
      variables[static_cast<std::size_t>(i)].set_name(names_[static_cast<std::size_t>(i)]);
    }
    for (const proto::TileClass& one : layout_.classes()) {
      for (int i = 0; i < one.bytes_size(); ++i) {
        if (one.bytes(i) > 0) {
          add_tiles(one, one.bytes(i), variables[static_cast<std::size_t>(i)]);
        }
      }
    }
    return variables;
  }

 private:
  [[nodiscard]] std::string name_of(const proto::TileClaim& claim) const {
    if (const proto::Tensor* tensor = main_tensor(program_, claim); tensor != nullptr) {
      return tensor->name();
    }
    const bool has_one_step = claim.lives_size() == 1 && claim.lives(0).first() == claim.lives(0).last();
    const proto::Step* step = has_one_step ? steps_.at(claim.lives(0).first()).step : nullptr;
    if (step == nullptr) {
      return claim.category();
    }
    return fmt::format("{} of {}", claim.category(),
                       step->has_execute() ? fmt::format("'{}'", step->execute().name()) : operation_text(*step));
  }

  [[nodiscard]] proto::TileBalance balance() const {
    proto::TileBalance balance;
    std::uint64_t sum = 0;
    std::uint64_t tiles = 0;
    for (const proto::TileClass& one : layout_.classes()) {
      sum += one.peak() * static_cast<std::uint64_t>(one.tiles_size());
      // Classes are in the order of their first tiles.
      if (tiles == 0 || one.peak() < balance.min()) {
        balance.set_min(one.peak());
        balance.set_min_tile(one.tiles(0));
      }
      if (tiles == 0 || one.peak() > balance.max()) {
        balance.set_max(one.peak());
        balance.set_max_tile(one.tiles(0));
      }
      tiles += static_cast<std::uint64_t>(one.tiles_size());
    }
    balance.set_mean(tiles == 0 ? 0 : sum / tiles);
    return balance;
  }

  template <typename HeldAt>
  [[nodiscard]] proto::Liveness liveness(const LivenessCurve& curve, HeldAt held_at) const {
    proto::Liveness liveness;
    liveness.set_always_live(count(curve.always));
    for (const Bytes bytes : curve.not_always) {
      liveness.add_not_always_live(count(bytes));
    }
    liveness.set_worst_step(curve.worst_step());
    for (const std::uint32_t step : highest_peaks(curve.not_always, kPeaksMax)) {
      proto::Peak& peak = *liveness.add_peaks();
      peak.set_step(step);
      peak.set_bytes(count(curve.always + curve.not_always[step]));
      describe(steps_.at(step), peak);
      for (const HeldBytes& held : held_at(step)) {
        if (!held.always_live && peak.largest_size() < static_cast<int>(kPeakPartsMax)) {
          proto::PeakPart& part = *peak.add_largest();
          part.set_name(names_[static_cast<std::size_t>(held.claim)]);
          part.set_bytes(count(held.bytes));
        }
      }
    }
    return liveness;
  }

  static void describe(const PlacedStep& placed, proto::Peak& peak) {
    if (placed.step != nullptr) {
      peak.set_function(placed.function->name());
      peak.set_operation(operation_text(*placed.step));
      peak.set_attributes(placed.step->execute().attributes());
      peak.set_plan(placed.step->execute().plan());
    }
  }

  [[nodiscard]] proto::TileReport tile_report(std::uint32_t tile) const {
    const LivenessCurve curve = liveness_of_tile(memory_, tile);
    proto::TileReport report;
    report.set_tile(tile);
    report.set_peak(class_of_tile(memory_, tile).peak());
    *report.mutable_at_peak() = categories_.sum(layout_, held_on_tile(memory_, tile, curve.worst_step()));
    *report.mutable_liveness() = liveness(curve, [&](std::uint32_t step) { return held_on_tile(memory_, tile, step); });
    return report;
  }

  [[nodiscard]] proto::TileClassReport class_report(const proto::TileClass& one) const {
    const LivenessCurve curve = liveness_of_tile(memory_, one.tiles(0));
    proto::TileClassReport report;
    for (const std::uint32_t tile : one.tiles()) {
      const int spans = report.tiles_size();
      if (spans > 0 && report.tiles(spans - 1).last() + 1 == tile) {
        report.mutable_tiles(spans - 1)->set_last(tile);
      } else {
        proto::Span& span = *report.add_tiles();
        span.set_first(tile);
        span.set_last(tile);
      }
    }
    report.set_peak(one.peak());
    report.set_always_live(count(curve.always));
    report.set_not_always_live(count(curve.most() - curve.always));
    report.set_gaps(one.peak() - count(curve.most()));
    report.set_overflowed(one.peak() - std::min(one.peak(), memory_.bytes_per_tile()));
    report.set_worst_step(curve.worst_step());
    *report.mutable_at_peak() = categories_.sum(layout_, held_on_tile(memory_, one.tiles(0), curve.worst_step()));
    return report;
  }

  void describe(const proto::TileClaim& claim, proto::Variable& variable) const {
    variable.set_category(std::string(kind_of(program_, claim)));
    variable.set_ipu(ipu_);
    *variable.mutable_lives() = claim.lives();
    variable.set_always_live(claim.lives_size() == 1 && claim.lives(0).first() == 0 &&
                             claim.lives(0).last() + 1 == steps_.size());
    const proto::Tensor* main = main_tensor(program_, claim);
    if (main == nullptr) {
      return;
    }
    variable.set_type(main->type());
    const std::vector<std::uint32_t> reads = uses_.reads(claim);
    const std::vector<std::uint32_t> writes = uses_.writes(claim);
    variable.mutable_read_at()->Assign(reads.begin(), reads.end());
    variable.mutable_written_at()->Assign(writes.begin(), writes.end());
    for (const std::uint32_t id : claim.tensors()) {
      const proto::Tensor& tensor = program_.tensors(static_cast<int>(id));
      if (&tensor != main) {
        variable.add_shared_with(tensor.name());
      }
    }
  }

  static void add_tiles(const proto::TileClass& one, std::uint64_t bytes, proto::Variable& variable) {
    const auto tiles = static_cast<std::uint32_t>(one.tiles_size());
    const std::uint32_t first = one.tiles(0);
    const std::uint32_t last = one.tiles(one.tiles_size() - 1);
    const bool begins = variable.tiles() == 0;
    variable.set_first_tile(begins ? first : std::min(variable.first_tile(), first));
    variable.set_last_tile(std::max(variable.last_tile(), last));
    variable.set_tiles(variable.tiles() + tiles);
    variable.set_bytes(variable.bytes() + bytes * tiles);
    variable.set_largest_share(std::max(variable.largest_share(), bytes));
  }

  const Program& program_;
  const StepIndex& steps_;
  const Categories& categories_;
  const Uses& uses_;
  std::uint32_t ipu_;
  const proto::IpuMemory& memory_;
  const proto::TileLayout& layout_;
  std::vector<std::string> names_;  ///< One per claim.
};

/// Returns the tiles of an IPU that the options ask for, each of them once.
std::vector<std::uint32_t> tiles_of(std::uint32_t ipu, const ReportOptions& options) {
  std::vector<std::uint32_t> tiles;
  for (const ProfiledTile& asked : options.tiles) {
    if (asked.ipu.value_or(ipu) == ipu && std::ranges::count(tiles, asked.tile) == 0) {
      tiles.push_back(asked.tile);
    }
  }
  return tiles;
}

void add_nodes(const Steps& steps, google::protobuf::RepeatedPtrField<proto::TreeNode>& nodes) {
  for (const proto::Step& step : steps) {
    proto::TreeNode& node = *nodes.Add();
    node.set_step(step.number());
    node.set_text(operation_text(step));
    add_nodes(step.repeat().steps(), *node.mutable_nodes());
  }
}

/// Sorts variables, the largest first. Returns the new index of each.
std::vector<std::uint32_t> sort_by_size(std::vector<proto::Variable>& variables) {
  std::vector<std::uint32_t> order(variables.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint32_t i) { return variables[i].bytes(); });
  std::vector<std::uint32_t> places(variables.size());
  std::vector<proto::Variable> sorted;
  for (const std::uint32_t from : order) {
    places[from] = static_cast<std::uint32_t>(sorted.size());
    sorted.push_back(std::move(variables[from]));
  }
  variables = std::move(sorted);
  return places;
}

/// Adds the contents of the tiles of each class. `places` begins with the places of the layout's claims.
void add_contents(const proto::TileLayout& layout, std::span<const std::uint32_t> places, proto::IpuReport& report) {
  for (int c = 0; c < layout.classes_size(); ++c) {
    const proto::TileClass& one = layout.classes(c);
    proto::TileClassReport& contents = *report.mutable_classes(c);
    for (int claim = 0; claim < one.bytes_size(); ++claim) {
      if (one.bytes(claim) > 0) {
        contents.add_variables(places[static_cast<std::size_t>(claim)]);
        contents.add_bytes(one.bytes(claim));
        contents.add_offsets(one.offsets(claim));
      }
    }
  }
}

}  // namespace

proto::Report report(const Program& program, const Device& device, const ReportOptions& options) {
  const StepIndex steps(program);
  const Uses uses(program);
  const Categories categories(program, options.categories);
  proto::Report report = step_report(program, options.step_function, kBarsMax);
  report.set_steps(steps.size());
  report.mutable_categories()->Assign(categories.names().begin(), categories.names().end());
  std::vector<proto::Variable> variables;
  struct Owner {
    std::uint32_t ipu;
    std::uint32_t first_variable;  ///< Before sorting.
  };
  std::vector<Owner> owners;  // The IPUs in the report.
  for (int ipu = 0; ipu < program.memory_size(); ++ipu) {
    if (!program.memory(ipu).has_layout()) {
      continue;
    }
    const auto number = static_cast<std::uint32_t>(ipu);
    const IpuReporter reporter(program, steps, categories, uses, number);
    proto::IpuReport& one = *report.add_ipus();
    one = reporter.report(tiles_of(number, options));
    one.set_interleaved_from(count(device.interleaved_from));
    std::vector<proto::Variable> own = reporter.variables();
    owners.push_back({number, static_cast<std::uint32_t>(variables.size())});
    variables.insert(variables.end(), std::move_iterator(own.begin()), std::move_iterator(own.end()));
  }
  const std::vector<std::uint32_t> places = sort_by_size(variables);
  for (std::size_t k = 0; k < owners.size(); ++k) {
    const std::span own = std::span(places).subspan(owners[k].first_variable);
    add_contents(program.memory(static_cast<int>(owners[k].ipu)).layout(), own,
                 *report.mutable_ipus(static_cast<int>(k)));
  }
  report.mutable_variables()->Assign(std::move_iterator(variables.begin()), std::move_iterator(variables.end()));
  for (proto::OperatorRow& row : operator_rows(program, device, options.step_function)) {
    *report.add_operators() = std::move(row);
  }
  return report;
}

proto::Report step_report(const Program& program, const std::string& step_function, int bars_max) {
  proto::Report report;
  report.set_step_function(step_function);
  for (const proto::Function& function : program.functions()) {
    proto::FunctionTree& tree = *report.add_functions();
    tree.set_name(function.name());
    add_nodes(function.steps(), *tree.mutable_nodes());
  }
  add_timeline(program, report, bars_max);
  return report;
}

}  // namespace poprun
