#include "replica/compilation/job_inputs.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/choices/choices.h"
#include "replica/models/layers/model.h"
#include "replica/program/host_contract.h"
#include "replica/report/out_of_memory.h"

namespace poprun {
namespace {

Result<std::vector<StreamedTensor>> streamed_tensors(const proto::Dataset& dataset, std::uint32_t micro_batch_size) {
  std::vector<StreamedTensor> tensors;
  for (const proto::StreamTensor& source : dataset.tensors()) {
    std::string text = fmt::format("{}[{}", source.element(), micro_batch_size);
    for (const std::uint32_t dimension : source.sample_shape()) {
      text += fmt::format(",{}", dimension);
    }
    POPRUN_ASSIGN(TensorType type, parse_type(text + "]"));
    tensors.push_back({source.name(), std::move(type)});
  }
  return tensors;
}

/// Returns the job's pipeline options, or the defaults if it has none.
PipelineOptions stage_options(const proto::RunConfig& job) {
  if (!job.has_pipeline()) {
    return {};
  }
  const proto::PipelineConfig& config = job.pipeline();
  return {.layers_per_ipu = {config.layers_per_ipu().begin(), config.layers_per_ipu().end()},
          .split = {config.split().begin(), config.split().end()},
          .device_mapping = {config.device_mapping().begin(), config.device_mapping().end()},
          .schedule = choice_of<Schedule>(config.schedule()),
          .recomputation = open_choice<Recomputation>(config.recomputation()),
          .recomputation_checkpoints = config.recomputation_checkpoints(),
          .recompute = config.recompute(),
          .recomputation_memory = config.recomputation_memory()};
}

PipelineOptions pipeline_options(const proto::RunConfig& job) {
  PipelineOptions options = stage_options(job);
  options.phases = std::max(1U, job.memory().phases());
  options.phase_ipus = std::max(1U, job.memory().phase_ipus());
  return options;
}

/// Returns the job's choice of outlining. Dumps need the tensors' own names, which outlined layers do not keep. The
/// launcher always sets the field. Unit tests leave it empty, so that nothing is outlined.
Outlining outlining_of(const proto::RunConfig& config) {
  const auto asked = open_choice<Outlining>(config.memory().outlining());
  return config.report().dump_tensors().empty() ? asked.value_or(Outlining::kOff) : Outlining::kOff;
}

template <typename T, typename Value>
std::vector<ProductSetting<T>> product_settings(
    const google::protobuf::RepeatedPtrField<proto::ProductSetting>& settings, Value value) {
  std::vector<ProductSetting<T>> all;
  for (const proto::ProductSetting& setting : settings) {
    ProductSetting<T>& made = all.emplace_back();
    made.text = setting.text();
    made.operators = setting.operators();
    made.value = value(setting);
    made.products = open_choice<ProductKind>(setting.products());
    if (setting.has_ipu()) {
      made.ipu = setting.ipu();
    }
    if (setting.has_stage()) {
      made.stage = setting.stage();
    }
  }
  return all;
}

LocationOptions location_options(const proto::MemoryConfig& config) {
  LocationOptions options{.weights = choice_of<Storage>(config.weights()),
                          .optimizer_state = choice_of<Storage>(config.optimizer_state()),
                          .accumulators = choice_of<Storage>(config.accumulators()),
                          .activations = choice_of<Storage>(config.activations()),
                          .off_chip_elements_min = static_cast<std::int64_t>(config.off_chip_min_elements())};
  for (const proto::LocationOverride& one : config.location()) {
    options.overrides.push_back({one.tensors(), choice_of<Storage>(one.storage())});
  }
  return options;
}

ShardingOptions sharding_options(const proto::MemoryConfig& config) {
  const auto& kinds = config.replicated_tensor_sharding();
  return {.weights = lists(kinds, ShardedKind::kWeights),
          .optimizer_state = lists(kinds, ShardedKind::kOptimizerState),
          .accumulators = lists(kinds, ShardedKind::kAccumulators),
          .elements_min = static_cast<std::int64_t>(config.sharding_min_elements()),
          .group = config.sharding_group()};
}

SerialisationOptions serialisation_options(const proto::ModelConfig& config) {
  SerialisationOptions options;
  options.embedding = std::max<std::int64_t>(1, config.embedding_serialisation_factor());
  for (const proto::ProductSetting& setting : config.serialised_matmuls()) {
    options.matmuls.push_back({setting.text(), setting.operators(), setting.slices()});
  }
  for (const proto::ProductSetting& setting : config.serialised_sequence()) {
    options.sequence.push_back({setting.text(), setting.operators(), setting.slices()});
  }
  return options;
}

/// Sets aside tiles of the device for I/O. Errors: kUsage if no tiles remain to compute, or if PopART would reject the
/// number.
Status set_io_tiles(const proto::DeviceConfig& config, Device& device) {
  constexpr std::uint32_t kMin = 32;
  constexpr std::uint32_t kMax = 192;
  const std::uint32_t count = config.io_tiles();
  const bool is_small = config.tiles() > 0;
  if (count == 0) {
    return {};
  }
  if (count % 2 != 0 || count > kMax || (count < kMin && !is_small)) {
    return fail(ErrorCode::kUsage, fmt::format("device.io-tiles = {}: use an even number from {} to {}, or 0", count,
                                               is_small ? 2 : kMin, kMax));
  }
  if (count >= device.tiles) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("device.io-tiles = {}: none of the {} tiles (device.tiles) would compute; use fewer I/O tiles",
                    count, device.tiles));
  }
  device.io_tiles = count;
  device.tiles -= device.io_tiles;
  return {};
}

using Build = std::function<ModelOutputs(Builder&, const ModelInputs&)>;

Status use_built_in(const proto::ModelConfig& config, CompileOptions& options, Build& build,
                    std::map<std::string, std::int64_t>& sizes) {
  POPRUN_ASSIGN(const Model model, find_model(config.name()));
  if (config.dropout() > 0 && !model.has_dropout) {
    return fail(ErrorCode::kUsage, fmt::format("model.dropout = {}: {} has no dropout; leave this option out",
                                               config.dropout(), model.name));
  }
  if (choice_of<Normalisation>(config.normalisation()) != Normalisation::kBatch && !model.has_batch_norm) {
    return fail(ErrorCode::kUsage, fmt::format("model.normalisation = {}: {} has no batch normalisation to replace; "
                                               "leave this option out",
                                               config.normalisation(), model.name));
  }
  POPRUN_ASSIGN(sizes, sizes_of(model, {config.sizes().begin(), config.sizes().end()}));
  options.model = model.name;
  build = model.build;
  return {};
}

}  // namespace

Result<Device> device_of(const proto::DeviceConfig& config) {
  POPRUN_ASSIGN(Device device, find_device(config.ipu()));
  if (config.tiles() > device.tiles) {
    return fail(ErrorCode::kUsage, fmt::format("device.tiles = {}: {} has {} tiles; use at most that many",
                                               config.tiles(), device.name, device.tiles));
  }
  if (config.bytes_per_tile() % 8 != 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("device.bytes-per-tile = {}: use a multiple of 8, because a tile loads 8 bytes at a time",
                            config.bytes_per_tile()));
  }
  if (config.tiles() > 0) {
    device.tiles = config.tiles();
  }
  if (config.bytes_per_tile() > 0) {
    device.bytes_per_tile = Bytes{static_cast<std::int64_t>(config.bytes_per_tile())};
  }
  if (config.streaming_bytes() > 0) {
    device.streaming_bytes = Bytes{static_cast<std::int64_t>(config.streaming_bytes())};
  }
  POPRUN_TRY(set_io_tiles(config, device));
  return device;
}

PlannerOptions planner_options(const proto::RunConfig& config) {
  return {.available_memory =
              product_settings<std::int64_t>(config.memory().available_memory_proportion(),
                                             [](const proto::ProductSetting& s) { return std::int64_t{s.permille()}; }),
          .partials = product_settings<Precision>(config.model().partials(), [](const proto::ProductSetting& s) {
            return choice_of<Precision>(s.partials());
          })};
}

Result<std::shared_ptr<onnx_import::JobModel>> onnx_model_of(const proto::ModelConfig& model,
                                                             const std::string& bytes) {
  if (model.onnx().empty()) {
    return nullptr;
  }
  return onnx_import::JobModel::parse(model.onnx(), bytes, choice_of<Loss>(model.loss()), model.trained_constants());
}

Result<CompileOptions> compile_options(const proto::RunConfig& config, const proto::Dataset& dataset,
                                       std::shared_ptr<onnx_import::JobModel> onnx) {
  CompileOptions options;
  Build build;
  std::map<std::string, std::int64_t> sizes;
  if (onnx == nullptr) {
    POPRUN_TRY(use_built_in(config.model(), options, build, sizes));
  } else {
    options.model = config.model().name();
    options.given_names = onnx->names();
    build = [onnx](Builder& builder, const ModelInputs& inputs) { return onnx->build(builder, inputs); };
  }
  if (dataset.no_train_label() && !config.inference()) {
    return fail(ErrorCode::kData, fmt::format("{}: every label is below 0, so all are ignored and nothing would be "
                                              "learned; use class numbers of 0 and above as labels",
                                              config.data().source()));
  }
  POPRUN_ASSIGN(options.device, device_of(config.device()));
  options.tile_layout = choice_of<TileStorage>(config.memory().tiles()) == TileStorage::kExact;
  POPRUN_ASSIGN(options.inputs, streamed_tensors(dataset, compute_batch_size(config)));
  const double dropout = config.model().dropout();
  const bool half = choice_of<Precision>(config.model().precision()) == Precision::kHalf;
  options.replicas = config.topology().num_replicas();
  options.forward = [build, dataset, sizes, dropout, half, replicas = options.replicas, inputs = options.inputs,
                     frozen = config.training().frozen(),
                     normalisation = choice_of<Normalisation>(config.model().normalisation())](
                        Builder& builder, const std::vector<TensorId>& tensors, bool training) {
    ModelInputs given{.names = {},
                      .tensors = tensors,
                      .classes = dataset.classes(),
                      .label_classes = dataset.label_classes() > 0 ? dataset.label_classes() : dataset.classes(),
                      .replicas = replicas,
                      .mean = static_cast<double>(dataset.mean()),
                      .deviation = static_cast<double>(dataset.deviation()),
                      .dropout = dropout,
                      .half = half,
                      .normalisation = normalisation,
                      .frozen = frozen,
                      .training = training,
                      .sizes = sizes};
    for (const StreamedTensor& input : inputs) {
      given.names.push_back(input.name);
    }
    return build(builder, given);
  };
  options.ipus_per_replica = config.topology().ipus_per_replica();
  options.pipeline = pipeline_options(config);
  options.micro_batch_size = compute_batch_size(config);
  options.compute_batches = config.data().micro_batch_size() / options.micro_batch_size;
  options.gradient_accumulation = std::int64_t{config.training().gradient_accumulation()} * options.compute_batches;
  options.accumulation_kind = accumulation_kind(config);
  options.float_accumulators = open_choice<Precision>(config.training().accumulator_precision()) == Precision::kFloat;
  const auto reduction = choice_of<GradientReduction>(config.training().gradient_reduction());
  options.gradients_summed = reduction == GradientReduction::kSum;
  options.weighted_by_labels = weighs_labels(config);
  options.norm_span = std::max<std::int64_t>(1, config.model().norm_span());
  options.label_smoothing = config.training().label_smoothing();
  options.frozen = config.training().frozen();
  options.optimizer = {
      .name = config.training().optimizer(),
      .hyper_parameters = {config.training().hyper_parameters().begin(), config.training().hyper_parameters().end()},
      .weight_decay = config.training().weight_decay(),
      .gradient_scale = 1,
      .clip_norm = config.training().clip_norm(),
      .no_decay = config.training().no_decay()};
  options.precision = {
      .half = half,
      .stochastic_rounding = config.training().stochastic_rounding(),
      .master_weights = config.training().master_weights(),
      .half_optimizer_state = open_choice<Precision>(config.training().optimizer_precision()) == Precision::kHalf};
  options.planner = planner_options(config);
  options.serialisation = serialisation_options(config.model());
  options.locations = location_options(config.memory());
  options.sharding = sharding_options(config.memory());
  options.reduces_every_micro_batch = reduction == GradientReduction::kEveryMicroBatch;
  options.gradient_bucket = Bytes{static_cast<std::int64_t>(config.training().gradient_bucket_bytes())};
  options.loss_scaling = config.training().loss_scaling();
  options.inference = config.inference();
  options.fold_batch_norm = config.model().fold_batch_norm();
  options.in_place = config.memory().in_place();
  options.outlining = outlining_of(config);
  // In tests, which set the variable, and in a check, an unproven pass is an error instead of being left out.
  options.leaves_out_unproven = std::getenv("POPRUN_EMU_STRICT") == nullptr && !config.has_check();
  options.evaluate = config.training().evaluate();
  POPRUN_ASSIGN(const std::uint64_t batches, test_batches(config, dataset));
  options.evaluation_batches = std::max<std::int64_t>(1, static_cast<std::int64_t>(batches)) * options.compute_batches;
  options.initial_weights_from_host = onnx != nullptr || !config.model().initial_weights().empty();
  return options;
}

/// Returns notes on a schedule that is longer than the run.
std::vector<Note> schedule_notes(const proto::TrainingConfig& training, std::uint64_t steps) {
  std::vector<Note> notes;
  if (training.warmup_steps() > steps) {
    notes.push_back(
        {"schedule.long-warmup",
         fmt::format(
             "training.warmup-steps = {} exceeds the {} of the run: the learning rate ends at {:.4g}, "
             "below training.learning-rate = {:.4g}",
             training.warmup_steps(), counted(steps, "step"),
             training.learning_rate() * static_cast<double>(steps) / static_cast<double>(training.warmup_steps()),
             training.learning_rate()),
         {{"warmup-steps", training.warmup_steps()}, {"steps", steps}}});
  } else if (choice_of<RateSchedule>(training.schedule()) == RateSchedule::kStep &&
             training.warmup_steps() + training.schedule_steps() >= steps) {
    notes.push_back({"schedule.never-falls",
                     fmt::format("training.schedule-steps = {} is not less than the {} after the warm-up, so the "
                                 "learning rate never falls",
                                 training.schedule_steps(), counted(steps - training.warmup_steps(), "step")),
                     {{"schedule-steps", training.schedule_steps()}, {"steps", steps}}});
  }
  return notes;
}

/// Returns a note if a disturbance of --what-if begins after the last step.
std::optional<Note> late_disturbance_note(const proto::WhatIf& what_if, std::uint64_t steps) {
  std::uint64_t latest = 0;
  for (const proto::Slowdown& slowdown : what_if.slowdowns()) {
    latest = std::max(latest, slowdown.first_step());
  }
  for (const proto::Loss& loss : what_if.losses()) {
    latest = std::max(latest, loss.step());
  }
  if (latest <= steps) {
    return std::nullopt;
  }
  return Note{"what-if.after-the-end",
              fmt::format("--what-if: a disturbance at step {} changes nothing, because the job ends at step {}; "
                          "choose an earlier step, or raise training.steps",
                          grouped(latest), grouped(steps)),
              {{"step", latest}, {"steps", steps}}};
}

void add_notes(const onnx_import::JobModel* onnx, const proto::RunConfig& config, const proto::Dataset& dataset,
               Program& program) {
  if (const auto length = job_length(config, dataset);
      length && !config.inference() && !config.has_profile() && !config.has_check()) {
    for (const Note& note : schedule_notes(config.training(), length->steps)) {
      add_note(note, program);
    }
    if (const auto note = late_disturbance_note(config.what_if(), length->steps)) {
      add_note(*note, program);
    }
  }
  for (const std::string& text : dataset.notes()) {
    add_note({"data.description", text}, program);
  }
  if (dataset.no_test_label() && config.training().evaluate() && !config.inference()) {
    add_note({"data.no-test-label",
              fmt::format("{}: every label of the test part is below 0, so all are ignored and test losses are 0",
                          config.data().source())},
             program);
  }
  if (onnx != nullptr) {
    for (const Note& note : onnx->notes()) {
      add_note(note, program);
    }
  }
}

void allow_out_of_memory(const Error& out_of_memory, const proto::RunConfig& config, Program& program) {
  POPRUN_CHECK(config.memory().allow_out_of_memory());
  std::vector<Fact> facts;
  if (const auto& shortage = out_of_memory.facts.shortage) {
    facts = {{"needed", shortage->needed}, {"had", shortage->had}};
  }
  add_note({"memory.allowed", allowance_note(out_of_memory), std::move(facts)}, program);
  if (choice_of<TileStorage>(config.memory().tiles()) != TileStorage::kExact) {  // Only the report needed the layout.
    for (proto::IpuMemory& memory : *program.mutable_memory()) {
      memory.clear_layout();
    }
  }
}

Result<Program> compile_job(const JobInputs& inputs, const CompileOptions& options, const CompileObserver& observer) {
  POPRUN_ASSIGN(Program program, plan_program(options, observer));
  add_notes(inputs.onnx.get(), inputs.config, inputs.dataset, program);
  return program;
}

Result<bool> take_match(const WeightMatch& match, const JobInputs& inputs, CompileOptions& options, Program& program) {
  const bool compiles = !match.absent.empty() && !weights_policy(inputs.config).model_has_weights;
  if (compiles) {
    options.initialised_here = match.absent;
    POPRUN_ASSIGN(program, compile_job(inputs, options));
  }
  for (const Note& note : match.notes) {
    add_note(note, program);
  }
  return compiles;
}

}  // namespace poprun
