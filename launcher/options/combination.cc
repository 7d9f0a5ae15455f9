#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/source.h"
#include "launcher/options/option_table.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::launcher {
namespace {

/// Rejects options that need half precision if the job uses float. Also resolves the loss scale.
Status resolve_precision(Options& options) {
  proto::TrainingConfig& training = *options.config.mutable_training();
  const bool half = is_half(options);
  const std::pair<const char*, bool> need_half[] = {
      {"training.master-weights = true", training.master_weights()},
      {"training.accumulator-precision = half",
       open_choice<Precision>(training.accumulator_precision()) == Precision::kHalf},
      {"training.optimizer-precision = half",
       open_choice<Precision>(training.optimizer_precision()) == Precision::kHalf},
      {"training.stochastic-rounding = true", training.stochastic_rounding()}};
  for (const auto& [what, given] : need_half) {
    if (given && !half) {
      return fail(ErrorCode::kUsage, fmt::format("{} needs model.precision = half, but it is float", what));
    }
  }
  training.set_loss_scaling(options.loss_scaling.value_or(half ? 0.0 : 1.0));
  return {};
}

/// Rejects scaling of the learning rate if gradients are sums, since sums already grow with the batch.
Status check_learning_rate_scaling(const Options& options) {
  const proto::TrainingConfig& training = options.config.training();
  const std::pair<const char*, bool> sums[] = {
      {"training.gradient-accumulation-kind",
       open_choice<AccumulationKind>(training.gradient_accumulation_kind()) == AccumulationKind::kSum},
      {"training.gradient-reduction",
       choice_of<GradientReduction>(training.gradient_reduction()) == GradientReduction::kSum}};
  for (const auto& [name, is_sum] : sums) {
    if (is_sum && choice_of<LossMean>(training.loss_mean()) != LossMean::kTokens &&
        options.learning_rate_base_batch > 0) {
      return fail(
          ErrorCode::kUsage,
          fmt::format(
              "training.scale-learning-rate = {} needs averaged gradients, but {} is sum; remove one of these settings",
              options.learning_rate_base_batch, name));
    }
  }
  return {};
}

/// Scales the learning rate linearly (Goyal et al., "Accurate, large minibatch SGD", arXiv:1706.02677, section 2.1).
void scale_learning_rate(Options& options) {
  if (options.learning_rate_base_batch == 0) {
    return;
  }
  proto::TrainingConfig& training = *options.config.mutable_training();
  const std::uint64_t batch = std::uint64_t{options.config.topology().num_replicas()} *
                              options.config.data().micro_batch_size() * training.gradient_accumulation();
  const double given = training.learning_rate();
  training.set_learning_rate(given * static_cast<double>(batch) /
                             static_cast<double>(options.learning_rate_base_batch));
  options.notes.push_back(fmt::format("learning rate {} x global batch {} / {} = {} (training.scale-learning-rate)",
                                      given, batch, options.learning_rate_base_batch, training.learning_rate()));
}

/// Checks that the keys of built-in models and of ONNX models are not mixed. Names an ONNX model after its file.
Status check_model(Options& options) {
  proto::ModelConfig& model = *options.config.mutable_model();
  if (model.onnx().empty()) {
    if (!model.trained_constants().empty()) {
      return fail(
          ErrorCode::kUsage,
          "model.trained-constants applies only to model.onnx; built-in models define which weights are trained");
    }
    return model.loss().empty()
               ? Status{}
               : Status{fail(ErrorCode::kUsage,
                             "model.loss applies only to model.onnx; built-in models have their own loss")};
  }
  Setting& name = setting_of(options, "model.name");
  const Origin onnx_from = setting_of(options, "model.onnx").origin;
  if (name.origin == Origin::kFile && onnx_from > Origin::kFile) {
    options.notes.push_back(
        fmt::format("model.onnx = {} replaces the file's model.name = {}", model.onnx(), name.text));
  } else if (name.origin != Origin::kDefault || !model.sizes().empty()) {
    const bool named = name.origin != Origin::kDefault;
    return fail(ErrorCode::kUsage, fmt::format("model.onnx and model.{} cannot be combined; give only one of them",
                                               named ? "name" : model.sizes().begin()->first));
  }
  if (model.dropout() > 0) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("model.dropout = {}: an ONNX model takes its dropout from its Dropout nodes; remove model.dropout",
                    model.dropout()));
  }
  if (choice_of<Normalisation>(model.normalisation()) != Normalisation::kBatch) {
    return fail(ErrorCode::kUsage, fmt::format("model.normalisation = {}: an ONNX model takes its normalisation from "
                                               "its nodes; remove model.normalisation",
                                               model.normalisation()));
  }
  model.set_name(std::filesystem::path(model.onnx()).filename().string());
  // --dry-run should not show this name, since it does not request a built-in model.
  name.text.clear();
  if (model.loss().empty()) {
    model.set_loss(word_of(Loss{}));
  }
  return {};
}

/// Adds notes on options that have no effect because of other options. In inference, adds no notes on training options,
/// since one train.cfg can serve both modes.
void note_what_has_no_effect(Options& options) {
  if (options.config.inference()) {
    return;
  }
  const proto::TrainingConfig& training = options.config.training();
  const bool falls = choice_of<RateSchedule>(training.schedule()) == RateSchedule::kStep;
  const bool accumulated = accumulates(options.config);
  const bool is_adapted = !find_optimizer(training.optimizer())->adaptation.empty();
  // A file can set both steps and epochs without a note. The steps then take precedence.
  const bool asked_for_epochs = setting_of(options, "training.epochs").origin > Origin::kFile;
  struct Case {
    const char* name;
    bool has_effect;
    const char* because;
  };
  for (const auto& [name, has_effect, because] :
       {Case{"training.schedule-steps", falls, "training.schedule"},
        Case{"training.schedule-decay", falls, "training.schedule"},
        Case{"training.gradient-accumulation-kind", accumulated, "training.gradient-accumulation"},
        Case{"training.accumulator-precision", accumulated, "training.gradient-accumulation"},
        Case{"training.no-decay", training.weight_decay() > 0 || is_adapted, "training.weight-decay"},
        Case{"training.epochs", training.steps() == 0 || !asked_for_epochs, "training.steps"}}) {
    const Setting& setting = setting_of(options, name);
    if (!has_effect && setting.origin != Origin::kDefault) {
      options.notes.push_back(fmt::format("{} = {} has no effect with {} = {}", name, setting.text, because,
                                          setting_of(options, because).text));
    }
  }
  if (static_cast<float>(training.learning_rate()) == 0) {
    options.notes.push_back(
        fmt::format("a learning rate of {} is 0 in float32, so nothing is trained", training.learning_rate()));
  }
}

/// Rejects options that model.mode rules out. In inference, adds notes on dropout and random weights.
Status check_inference(Options& options) {
  if (!options.config.inference()) {
    if (options.config.model().fold_batch_norm()) {
      return fail(ErrorCode::kUsage,
                  "model.fold-batch-norm = true needs model.mode = inference: in training, batch norms use the "
                  "statistics of each batch; remove model.fold-batch-norm, or set model.mode");
    }
    return {};
  }
  for (const auto& [name, is_set] : {std::pair{"report.dump-tensors", !options.config.report().dump_tensors().empty()},
                                     std::pair{"report.trace-steps", options.config.report().trace_first() > 0}}) {
    if (is_set) {
      return fail(ErrorCode::kUsage, fmt::format("{} needs training steps, but a job with model.mode = inference runs "
                                                 "none; remove one of these settings",
                                                 name));
    }
  }
  const proto::ModelConfig& model = options.config.model();
  if (model.dropout() > 0) {
    options.notes.push_back(fmt::format(
        "model.dropout = {} has no effect with model.mode = inference: nothing is dropped", model.dropout()));
  }
  if (model.norm_span() > 1) {
    options.notes.push_back(
        fmt::format("model.norm-span = {} has no effect with model.mode = inference: norms use running statistics",
                    model.norm_span()));
  }
  if (model.initial_weights().empty() && model.onnx().empty()) {
    options.notes.push_back("model.mode = inference without model.initial-weights: the weights are random");
  }
  return {};
}

void note_partial_weights(Options& options) {
  const proto::ModelConfig& model = options.config.model();
  if (model.initial_weights_partial() && model.initial_weights().empty()) {
    options.notes.push_back("model.initial-weights-partial = true has no effect without model.initial-weights");
  }
}

/// Returns the divisor of `number` that is nearest to `from` in one direction: if `step` is -1, the largest that is at
/// most `from`; if `step` is 1, the smallest that is at least `from`. Requires: 1 <= from <= number.
std::uint32_t divisor(std::uint32_t number, std::uint32_t from, int step) {
  while (number % from != 0) {
    from += static_cast<std::uint32_t>(step);
  }
  return from;
}

/// Checks that all compute batches of a micro-batch have the same size, since their gradients are accumulated.
Status check_compute_batch(Options& options) {
  const std::uint32_t micro = options.config.data().micro_batch_size();
  const std::uint32_t compute = options.config.data().compute_batch_size();
  if (compute == 0) {
    return {};
  }
  if (compute > micro || micro % compute != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.compute-batch-size = {} does not divide data.micro-batch-size = {}; use {}", compute,
                            micro, divisor(micro, std::min(compute, micro), -1)));
  }
  if (options.config.inference() && compute < micro) {
    options.notes.push_back(
        fmt::format("data.compute-batch-size = {} has no effect with model.mode = inference, which keeps nothing for a "
                    "backward pass; reduce data.micro-batch-size instead",
                    compute));
  }
  return {};
}

/// Checks --num-instances. Its default is one instance per replica.
Status resolve_instances(Options& options) {
  proto::Topology& topology = *options.config.mutable_topology();
  const std::uint32_t replicas = topology.num_replicas();
  if (topology.num_instances() == 0) {
    topology.set_num_instances(replicas);
  }
  constexpr std::uint32_t kReplicasRunMax = 4096;
  const bool is_planned = options.subcommand() == Subcommand::kScale || options.subcommand() == Subcommand::kEstimate;
  if (replicas > kReplicasRunMax && !is_planned) {
    return fail(ErrorCode::kUsage,
                fmt::format("--num-replicas = {}: a job can have at most {} replicas; estimate and scale plan "
                            "larger jobs, and --real N runs only N of the replicas",
                            replicas, grouped(kReplicasRunMax)));
  }
  const std::uint32_t instances = topology.num_instances();
  const char* const count = topology.timed_replicas() > 0 ? "--real" : "--num-replicas";
  if (instances > replicas) {
    return fail(ErrorCode::kUsage,
                fmt::format("--num-instances = {} is more than {} = {}; an instance needs at least one replica",
                            instances, count, replicas));
  }
  if (replicas % instances != 0) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{} = {} is not divisible by --num-instances = {}, but every instance must "
                    "have the same number of replicas; use {} or {} instances",
                    count, replicas, instances, divisor(replicas, instances, -1), divisor(replicas, instances, 1)));
  }
  if (!options.mpirun.instance_local_args.empty() && options.mpirun.instance_local_args.rbegin()->first >= instances) {
    return fail(ErrorCode::kUsage,
                fmt::format("--instance-mpi-local-args: there is no instance {}; instances are numbered 0 to {}",
                            options.mpirun.instance_local_args.rbegin()->first, instances - 1));
  }
  if (options.output.only_instance >= static_cast<std::int64_t>(instances)) {
    return fail(
        ErrorCode::kUsage,
        fmt::format(
            "--only-output-from-instance = {}: there is no instance with this number; instances are numbered 0 to {}",
            options.output.only_instance, instances - 1));
  }
  return {};
}

/// Rejects gradient buckets if tiles are exact: a tensor is then contiguous only while an operation uses it.
Status check_tiles(Options& options) {
  if (choice_of<TileStorage>(options.config.memory().tiles()) != TileStorage::kExact) {
    return {};
  }
  if (options.config.training().gradient_bucket_bytes() > 0) {
    return fail(ErrorCode::kUsage,
                "memory.tiles = exact cannot be combined with training.gradient-bucket, whose exchanges overlap with "
                "other operations; leave out one of them");
  }
  return {};
}

/// Rejects a trace of steps whose tensors are dumped, which takes time.
Status check_trace(const Options& options) {
  if (options.config.report().trace_first() > 0 && !options.config.report().dump_tensors().empty()) {
    return fail(ErrorCode::kUsage,
                "report.trace-steps cannot be combined with report.dump-tensors, since dumps take time that the trace "
                "would show; leave out one of them");
  }
  return {};
}

/// Rejects dumps if outlining is on, because outlining changes the names by which dumps find tensors.
Status check_outlining(const Options& options) {
  if (choice_of<Outlining>(options.config.memory().outlining()) == Outlining::kOn &&
      !options.config.report().dump_tensors().empty()) {
    return fail(ErrorCode::kUsage,
                "memory.outlining = on cannot be combined with report.dump-tensors, since layers that share a function "
                "do not keep the names of their tensors; leave out one of them");
  }
  return {};
}

/// Clears the options for checkpoints and restarts unless the job trains.
void resolve_checkpoints(Options& options) {
  const bool trains = options.subcommand() == Subcommand::kRun && !options.config.inference();
  for (const char* name : {"checkpoint-every", "resume", "restarts"}) {
    const Setting& setting = setting_of(options, name);
    const bool is_of_a_loss =
        name == std::string_view("checkpoint-every") && options.config.what_if().losses_size() > 0;
    if (!trains && !is_of_a_loss && setting.text != find_row(name)->fallback) {
      options.notes.push_back(fmt::format("--{} has no effect: only training takes checkpoints", name));
    }
  }
  if (!trains) {
    options.checkpoints.every = {};
    options.checkpoints.resume.clear();
    options.restarts.count_max = 0;
  }
  if (options.restarts.count_max > 0 && options.checkpoints.every.steps == 0 &&
      options.checkpoints.every.seconds == 0) {
    options.notes.emplace_back(
        "--restarts without --checkpoint-every: after a failure, the job restarts from the point at which it began");
  }
  if (options.checkpoints.dir.empty()) {
    options.checkpoints.dir = options.output.dir + "/checkpoints";
    setting_of(options, "checkpoint-dir").derived = options.checkpoints.dir;
  }
}

/// Checks the options for hosts, metrics and heartbeats.
Status check_connections(Options& options) {
  if (!options.hosts.lists.empty() && !options.hosts.file.empty()) {
    return fail(ErrorCode::kUsage, "--host and --hostfile cannot be combined; give only one of them");
  }
  if (!options.metrics.address.empty() && options.metrics.port == 0) {
    options.notes.push_back(
        fmt::format("--metrics-address {} has no effect without --metrics-port", options.metrics.address));
  }
  if (options.timeouts.heartbeat_seconds < 2 * options.timeouts.heartbeat_interval_seconds) {
    return fail(ErrorCode::kUsage,
                fmt::format("--heartbeat-timeout = {} must be at least twice --heartbeat-interval = {}",
                            options.timeouts.heartbeat_seconds, options.timeouts.heartbeat_interval_seconds));
  }
  return {};
}

}  // namespace

Status check_trains(const Options& options, const std::string& option) {
  if (options.subcommand() != Subcommand::kRun || options.config.inference()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} applies only to training jobs and their --dry-run; leave it out here", option));
  }
  return {};
}

bool is_half(const Options& options) {
  return choice_of<Precision>(options.config.model().precision()) == Precision::kHalf;
}

std::vector<std::string> check_together(Options& options) {
  std::vector<std::string> broken;
  const auto check = [&](const Status& rule) {
    if (!rule) {
      broken.push_back(rule.error().message);
    }
    return rule.has_value();
  };
  check(resolve_real(options));
  check(check_subcommand_rules(options));
  check(check_model(options));
  check(resolve_hyper_parameters(options));
  check(resolve_precision(options));
  if (check(check_learning_rate_scaling(options))) {
    scale_learning_rate(options);
  }
  note_what_has_no_effect(options);
  check(check_inference(options));
  check(check_compute_batch(options));
  note_partial_weights(options);
  options.config.mutable_data()->set_source(
      hostio::source_with(options.config.data().source(), options.source_parameters));
  if (check(check_pipeline(options))) {  // Both checks below need a valid pipeline.
    check(check_products(options));
    check(check_locations(options));
  }
  check(check_tiles(options));
  check(check_outlining(options));
  check(check_trace(options));
  check(resolve_instances(options));
  check(resolve_what_if(options));
  check(check_corruption(options));
  resolve_checkpoints(options);
  check(check_connections(options));
  return broken;
}

}  // namespace poprun::launcher
