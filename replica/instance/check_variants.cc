#include "replica/instance/check_variants.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/instance/job.h"

namespace poprun {
namespace {

/// What each stage of a job holds.
struct Stages {
  std::vector<std::string> layers;   ///< All the model's.
  std::vector<std::int64_t> counts;  ///< Counted layers, by stage.
  std::vector<std::string> begins;   ///< The layer with which each stage but the first begins.
};

/// A layer that is cut counts for its first stage.
Stages stages_of(const Graph& graph) {
  Stages stages;
  std::map<std::int32_t, std::uint32_t> stage_of_layer;
  std::uint32_t last = 0;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        const auto [layer, stage, direction] = operation.origin;
        last = std::max(last, stage);
        if (layer != kNoLayer && direction == Direction::kForward) {
          const auto known = stage_of_layer.try_emplace(layer, stage).first;
          known->second = std::min(known->second, stage);
        }
      }
    }
  }
  stages.counts.resize(last + 1, 0);
  for (std::size_t k = 0; k < graph.layers.size(); ++k) {
    stages.layers.push_back(graph.layers[k].name);
    const auto stage = stage_of_layer.find(static_cast<std::int32_t>(k));
    if (stage != stage_of_layer.end()) {
      stages.counts[stage->second] += graph.layers[k].counted ? 1 : 0;
      if (stage->second > stages.begins.size()) {
        stages.begins.push_back(graph.layers[k].name);
      }
    }
  }
  return stages;
}

/// A bug of a later pass is for the run that it concerns to report.
Result<Stages> stages_on(std::uint32_t ipus, const proto::RunConfig& config,
                         const proto::Dataset& dataset,
                         const std::shared_ptr<onnx_import::JobModel>& onnx) {
  // The job's own schedule decides which balanced stages fit.
  const proto::PipelineConfig& own = config.pipeline();
  const Variant variant = ipus > 1 && config.has_pipeline()
                              ? Variant{ipus, "", own.schedule(), own.recomputation()}
                              : Variant{ipus, "", "sequential", "none"};
  POPRUN_ASSIGN(CompileOptions options, compile_options(config_of(variant, config), dataset, onnx));
  std::optional<Stages> stages;
  options.after_pass = [&](std::string_view pass, const Graph& graph) {
    if (pass == "stages") {
      stages = stages_of(graph);
    }
  };
  const Result<Program> built = plan_program(options);
  if (!built && (!stages || built.error().code != ErrorCode::kBug)) {
    return tl::unexpected<Error>{built.error()};
  }
  POPRUN_CHECK(stages);
  return *stages;
}

}  // namespace

Result<CheckedVariants> check_variants(const proto::RunConfig& config,
                                       const proto::Dataset& dataset,
                                       const std::shared_ptr<onnx_import::JobModel>& onnx) {
  CheckedVariants checked;
  const auto& asked = config.check().ipus();
  const std::vector<std::uint32_t> wanted =
      asked.empty() ? default_ipus(config) : std::vector(asked.begin(), asked.end());
  POPRUN_ASSIGN(const Stages plain, stages_on(1, config, dataset, onnx));
  const std::string has =
      fmt::format("{} has {} ({})", config.model().name(), counted(plain.layers.size(), "layer"),
                  fmt::join(plain.layers, ", "));
  std::vector<Spread> spreads;
  for (const std::uint32_t ipus : wanted) {
    POPRUN_ASSIGN(const Stages stages, stages_on(ipus, config, dataset, onnx));
    if (ipus == config.topology().ipus_per_replica() ? stages.counts.size() > 1
                                                     : stages.counts.size() == ipus) {
      spreads.push_back({ipus, fmt::format("{}", fmt::join(stages.counts, " ")), stages.begins});
    } else if (!asked.empty()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--check-ipus = {}: {}, and each IPU needs one; use lower numbers",
                              ipus, has));
    } else {
      checked.notes.push_back(
          fmt::format("no runs on {} IPUs: {}, and each IPU needs one", ipus, has));
    }
  }
  if (spreads.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("check needs a model that can be spread over IPUs, but {}", has));
  }
  checked.variants = all_variants(fmt::format("{}", fmt::join(plain.counts, " ")), spreads);
  return checked;
}

}  // namespace poprun
