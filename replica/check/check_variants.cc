#include "replica/check/check_variants.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/automatic.h"

namespace poprun {
namespace {

/// The layers in each stage of a job.
struct Stages {
  std::vector<std::string> layers;   ///< All layers of the model.
  std::vector<std::int64_t> counts;  ///< Counted layers of each stage.
  std::vector<std::string> begins;   ///< First layer of each stage except the first.
};

/// Returns the stages of a graph. A layer that is split over stages counts towards the first of them.
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

/// Returns the stages of a variant. Ignores bugs of later passes, which the run of the variant reports.
Result<Stages> stages_of(const Variant& variant, const proto::RunConfig& config, const proto::Dataset& dataset,
                         const std::shared_ptr<onnx_import::JobModel>& onnx) {
  POPRUN_ASSIGN(CompileOptions options, compile_options(config_of(variant, config), dataset, onnx));
  std::optional<Stages> stages;
  const auto keep_stages = [&](std::string_view pass, const Job& job) {
    if (pass == "stages") {
      stages = stages_of(job.graph);
    }
    return Status{};
  };
  const Result<Program> built = plan_program(options, {.after_pass = keep_stages});
  if (!built && (!stages || built.error().code != ErrorCode::kBug)) {
    return tl::unexpected<Error>{built.error()};
  }
  POPRUN_CHECK(stages);
  return *stages;
}

std::string split_text(const Stages& stages) {
  return fmt::format("{}", fmt::join(stages.counts, " "));
}

/// Returns "pipeline.layers-per-ipu = 1 3, pipeline.device-mapping = 0 1"; empty if the compiler chooses the stages.
std::string own_stages_text(const proto::PipelineConfig& pipeline) {
  std::vector<std::string> keys;
  if (!pipeline.layers_per_ipu().empty()) {
    keys.push_back(fmt::format("pipeline.layers-per-ipu = {}", fmt::join(pipeline.layers_per_ipu(), " ")));
  }
  if (!pipeline.split().empty()) {
    keys.push_back(fmt::format("pipeline.split = {}", fmt::join(pipeline.split(), " ")));
  }
  if (!pipeline.device_mapping().empty()) {
    keys.push_back(fmt::format("pipeline.device-mapping = {}", fmt::join(pipeline.device_mapping(), " ")));
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

/// Returns the text of a note that says which rows have the stages that the job asks for.
std::string note_of_own_stages(const std::string& text, std::uint32_t own_ipus, const std::vector<Spread>& spreads) {
  std::vector<std::uint32_t> balanced;
  const Spread* own = nullptr;
  for (const Spread& spread : spreads) {
    if (spread.own_stages) {
      own = &spread;
    } else {
      balanced.push_back(spread.ipus);
    }
  }
  std::string note = own != nullptr ? fmt::format("rows on {} with split {} use the job's own stages ({})",
                                                  counted(own->ipus, "IPU"), own->split, text)
                                    : fmt::format(
                                          "no row uses the job's own stages ({}): they are for {}, which "
                                          "--check-ipus leaves out",
                                          text, counted(own_ipus, "IPU"));
  if (!balanced.empty()) {
    note += fmt::format("; rows on {} IPUs use balanced stages", fmt::join(balanced, ", "));
  }
  return note + "; rows without a schedule have a single stage";
}

class Planner {
 public:
  Planner(const proto::RunConfig& config, const proto::Dataset& dataset, std::shared_ptr<onnx_import::JobModel> onnx)
      : config_(config),
        dataset_(dataset),
        onnx_(std::move(onnx)),
        own_stages_(own_stages_text(config.pipeline())),
        own_ipus_(config.topology().ipus_per_replica()),
        phases_(config.memory().phases()) {}

  Result<CheckedVariants> run() {
    POPRUN_ASSIGN(const Stages plain, stages(Spread{}));
    has_ = fmt::format("{} has {} ({})", config_.model().name(), counted(plain.layers.size(), "layer"),
                       fmt::join(plain.layers, ", "));
    const auto& asked = config_.check().ipus();
    std::vector<std::uint32_t> wanted = asked.empty() ? default_ipus(config_) : std::vector(asked.begin(), asked.end());
    if (own_ipus_ == 1 && !own_stages_.empty() && phases_ <= 1) {
      wanted.insert(wanted.begin(), 1);
    }
    if (phases_ > 1) {
      POPRUN_TRY(add_own_phases());
    }
    for (const std::uint32_t ipus : wanted) {
      POPRUN_TRY(add(ipus, asked.empty() && ipus != own_ipus_));
    }
    if (spreads_.empty()) {
      return fail(
          ErrorCode::kUsage,
          own_stages_are_plain_
              ? fmt::format("check needs several stages, but {} results in only one; let the compiler choose the "
                            "stages, or choose other numbers of IPUs with --check-ipus",
                            own_stages_)
              : fmt::format("check needs a model that can be spread over IPUs, but {}", has_));
    }
    add_notes();
    return CheckedVariants{all_variants(split_text(plain), spreads_, config_.topology().num_replicas()), notes_};
  }

 private:
  /// Returns the stages of a spread. The job's own schedule decides which balanced stages fit.
  [[nodiscard]] Result<Stages> stages(const Spread& spread) const {
    const proto::PipelineConfig& own = config_.pipeline();
    Variant variant{spread.ipus, spread.stages, "", Schedule::kSequential, Recomputation::kNone, spread.own_stages};
    if (spread.ipus > 1 && !own.schedule().empty()) {
      variant.schedule = choice_of<Schedule>(own.schedule());
      variant.recomputation = open_choice<Recomputation>(own.recomputation())
                                  .value_or(default_recomputation(spread.ipus, variant.schedule));
    }
    return stages_of(variant, config_, dataset_, onnx_);
  }

  /// Adds the job's own phases, cut as its configuration says. Requires: the job has phases.
  Status add_own_phases() {
    const Variant variant{std::max(1U, config_.memory().phase_ipus()),
                          phases_,
                          "",
                          Schedule::kPhased,
                          Recomputation::kNone,
                          !own_stages_.empty()};
    POPRUN_ASSIGN(const Stages found, stages_of(variant, config_, dataset_, onnx_));
    spreads_.push_back({variant.ipus, phases_, split_text(found), variant.own_stages, found.begins,
                        /*phased=*/true});
    return {};
  }

  /// Adds a spread over `ipus` IPUs. With too few layers, it leaves IPUs unused or, if `is_our_choice`, is not added.
  Status add(std::uint32_t ipus, bool is_our_choice) {
    const bool own = ipus == own_ipus_ && !own_stages_.empty() && phases_ <= 1;
    Spread spread{ipus, 1, "", own};
    POPRUN_ASSIGN(const Stages found, stages(spread));
    const std::size_t count = found.counts.size();
    const bool leaves_some = !spread.own_stages && count < ipus;
    if (leaves_some && is_our_choice) {
      notes_.push_back({"check.no-runs",
                        fmt::format("no runs on {} IPUs: {}, and each IPU needs at least one layer", ipus, has_),
                        {{"ipus", ipus}}});
      return {};
    }
    if (leaves_some && count > 1) {
      notes_.push_back({"check.unused-ipus",
                        fmt::format("runs on {} IPUs use only {} of them: {}", ipus, count, has_),
                        {{"ipus", ipus}, {"used", count}}});
    }
    if (count > 1) {
      spread.stages = static_cast<std::uint32_t>(count);
      spread.split = split_text(found);
      spread.begins = found.begins;
      spreads_.push_back(std::move(spread));
    } else if (spread.own_stages) {
      own_stages_are_plain_ = true;
    }
    return {};
  }

  void add_notes() {
    if (!own_stages_.empty() && !own_stages_are_plain_ && phases_ <= 1) {
      notes_.push_back({"check.own-stages", note_of_own_stages(own_stages_, own_ipus_, spreads_)});
    }
    if (config_.training().gradient_accumulation() == 1 &&
        compute_batch_size(config_) == config_.data().micro_batch_size()) {
      const auto most = std::ranges::max_element(spreads_, {}, &Spread::ipus);
      notes_.push_back(
          {"check.few-micro-batches",
           fmt::format(
               "training.gradient-accumulation = 1: with one micro-batch per step, only one stage works at a "
               "time and schedules hardly differ; to compare pipelines, add --training.gradient-accumulation {}",
               2 * std::max(2U, most->ipus))});
    }
  }

  const proto::RunConfig& config_;
  const proto::Dataset& dataset_;
  std::shared_ptr<onnx_import::JobModel> onnx_;
  std::string own_stages_;  ///< The job's settings for its own stages; empty if there are none.
  std::uint32_t own_ipus_;
  std::uint32_t phases_;               ///< No phases if at most 1.
  bool own_stages_are_plain_ = false;  ///< Whether the job's own settings result in a single stage.
  std::string has_;                    ///< "small-cnn has 4 layers (...)".
  std::vector<Spread> spreads_;
  std::vector<Note> notes_;
};

}  // namespace

Result<CheckedVariants> check_variants(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       const std::shared_ptr<onnx_import::JobModel>& onnx) {
  return Planner(config, dataset, onnx).run();
}

}  // namespace poprun
