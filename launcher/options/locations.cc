#include <algorithm>
#include <array>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

/// Kinds of tensor to shard across the replicas, separated by spaces or commas.
struct ShardedKinds {
  [[nodiscard]] Read<std::vector<std::string>> read(const std::string& text) const {
    std::string blanks = text;
    std::ranges::replace(blanks, ',', ' ');
    std::istringstream stream(blanks);
    std::vector<std::string> kinds;
    for (std::string word; stream >> word;) {
      if (word == "none" && text == word) {
        break;
      }
      if (!find_choice<ShardedKind>(word)) {
        return tl::unexpected<std::string>{
            fmt::format("none, or any of weights, optimizer-state and accumulators; '{}' is not one of them", word)};
      }
      kinds.push_back(word);
    }
    return kinds;
  }
};

/// REGEX=on-chip or REGEX=off-chip, or several of these separated by spaces.
struct ByTensor {
  [[nodiscard]] Read<std::vector<proto::LocationOverride>> read(const std::string& text) const {
    std::istringstream stream(text);
    std::vector<proto::LocationOverride> all;
    for (std::string word; stream >> word;) {
      const std::size_t equals = word.rfind('=');
      const auto storage =
          equals == std::string::npos ? std::nullopt : find_choice<Storage>(std::string_view{word}.substr(equals + 1));
      if (equals == 0 || !storage || storage == Storage::kAuto || !Regex{}.read(word.substr(0, equals))) {
        return refused(fmt::format("; '{}' is neither", word));
      }
      proto::LocationOverride& one = all.emplace_back();
      one.set_tensors(word.substr(0, equals));
      one.set_storage(word_of(*storage));
    }
    if (all.empty()) {
      return refused("");
    }
    return all;
  }

 private:
  static tl::unexpected<std::string> refused(const std::string& why) {
    return tl::unexpected<std::string>{
        fmt::format("REGEX=on-chip or REGEX=off-chip, several of them separated by blanks{}", why)};
  }
};

OptionRow storage(const char* name, const char* what) {
  return file_key(
      fmt::format("memory.{}", name), "WHERE", word_of(Storage{}),
      fmt::format("Where to keep {}: on-chip, in In-Processor Memory; off-chip, in Streaming Memory, from which they "
                  "are loaded when needed; auto, off-chip only if the job does not fit otherwise",
                  what),
      OneOf<Storage>{});
}

}  // namespace

std::vector<OptionRow> location_rows() {
  std::vector<OptionRow> rows = {storage("weights", "weights"), storage("optimizer-state", "the optimiser's state"),
                                 storage("accumulators", "gradient accumulators"),
                                 storage("activations", "activations stashed for the backward pass"),
                                 file_key("memory.off-chip-min-elements", "N", "2",
                                          "Smallest tensor to move off-chip, in elements; smaller ones stay on-chip",
                                          Integer{0, std::numeric_limits<std::int64_t>::max()})};
  OptionRow by_name = file_key("memory.location", "REGEX=WHERE", "",
                               "Keep the tensors whose names match REGEX on-chip or off-chip, whatever their kind and "
                               "size; if several match, the last one applies",
                               ByTensor{}, [](Options& options, const std::vector<proto::LocationOverride>& given) {
                                 options.config.mutable_memory()->mutable_location()->Add(given.begin(), given.end());
                               });
  by_name.arity = Arity::kRepeated;
  rows.push_back(std::move(by_name));
  rows.push_back(file_key(
      "memory.replicated-tensor-sharding", "KINDS", "",
      "Replicated tensors to shard across the replicas: none, or any of weights, optimizer-state and accumulators",
      ShardedKinds{}, [](Options& options, const std::vector<std::string>& kinds) {
        auto& all = *options.config.mutable_memory()->mutable_replicated_tensor_sharding();
        all.Assign(kinds.begin(), kinds.end());
      }));
  rows.push_back(file_key("memory.sharding-min-elements", "N", "8192", "Smallest tensor to shard, in elements",
                          Integer{1, std::numeric_limits<std::int64_t>::max()}));
  rows.push_back(file_key("memory.sharding-group", "N", "0",
                          "Shard tensors within groups of N consecutive replicas, so that every group holds all "
                          "tensors; 0: across all replicas",
                          Integer{0, 1 << 20}));
  return rows;
}

namespace {

/// Adds notes on size limits and groups that have no effect because nothing is off-chip or sharded. A check gets no
/// such notes, since it tries off-chip and sharded tensors itself.
void note_locations_without_effect(Options& options) {
  if (options.subcommand() == Subcommand::kCheck) {
    return;
  }
  const proto::MemoryConfig& memory = options.config.memory();
  const bool stays = std::ranges::all_of(
      std::array{memory.weights(), memory.optimizer_state(), memory.accumulators(), memory.activations()},
      [](const std::string& where) { return choice_of<Storage>(where) == Storage::kOnChip; });
  const bool is_whole = memory.replicated_tensor_sharding().empty();
  struct Case {
    std::string_view name;
    bool has_no_effect;
    std::string_view because;
  };
  for (const auto& [name, has_no_effect, because] :
       {Case{"memory.off-chip-min-elements", stays, "nothing is off-chip or auto"},
        Case{"memory.sharding-min-elements", is_whole, "memory.replicated-tensor-sharding is empty"},
        Case{"memory.sharding-group", is_whole, "memory.replicated-tensor-sharding is empty"}}) {
    const Setting& setting = *std::ranges::find(options.settings, name, &Setting::name);
    if (has_no_effect && setting.origin != Origin::kDefault) {
      options.notes.push_back(fmt::format("{} = {} has no effect: {}", name, setting.text, because));
    }
  }
}

Status check_groups(std::string_view key, std::uint32_t group, std::uint32_t replicas, std::string_view otherwise) {
  if (group > 0 && replicas % group != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} = {}: {} cannot be divided into groups of {}; use a divisor of {}, or {}", key, group,
                            counted(replicas, "replica"), group, replicas, otherwise));
  }
  return {};
}

}  // namespace

bool accumulates(const proto::RunConfig& config) {
  const std::uint32_t compute = config.data().compute_batch_size();
  return config.training().gradient_accumulation() > 1 || (compute > 0 && compute < config.data().micro_batch_size());
}

Status check_locations(Options& options) {
  const proto::RunConfig& config = options.config;
  const proto::MemoryConfig& memory = config.memory();
  const auto& sharded = memory.replicated_tensor_sharding();
  const std::uint32_t replicas = config.topology().num_replicas();
  if (lists(sharded, ShardedKind::kAccumulators) && accumulates(config) &&
      choice_of<GradientReduction>(config.training().gradient_reduction()) != GradientReduction::kEveryMicroBatch) {
    return fail(ErrorCode::kUsage, fmt::format("memory.replicated-tensor-sharding = accumulators needs gradients that "
                                               "are reduced in every micro-batch, but training.gradient-reduction = "
                                               "{}; set it to every-micro-batch",
                                               config.training().gradient_reduction()));
  }
  // With --real, there are two jobs: that of the replicas that run, and that of all whose time is computed.
  for (const std::uint32_t all : {replicas, std::max(config.topology().timed_replicas(), replicas)}) {
    POPRUN_TRY(check_groups("memory.sharding-group", memory.sharding_group(), all, "0 for one group of all replicas"));
    POPRUN_TRY(check_groups("model.norm-span", config.model().norm_span(), all, "1 for statistics of each replica"));
  }
  note_locations_without_effect(options);
  return {};
}

}  // namespace poprun::launcher
