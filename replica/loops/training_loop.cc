#include "replica/loops/training_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "replica/base/half.h"

namespace poprun {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void copy_bytes(std::span<const char> from, std::span<std::byte> to) {
  POPRUN_CHECK(from.size() == to.size());
  std::memcpy(to.data(), from.data(), to.size());
}

void put_scalar(float value, std::span<std::byte> to) {
  POPRUN_CHECK(to.size() == sizeof(value));
  std::memcpy(to.data(), &value, sizeof(value));
}

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Row-major float32 bytes into a tensor, rounded where it is float16.
void store(std::span<const char> from, const HostTensor& to) {
  if (to.type.data != DataType::kF16) {
    copy_bytes(from, to.bytes);
    return;
  }
  std::vector<float> wide(from.size() / sizeof(float));
  std::memcpy(wide.data(), from.data(), from.size());
  // NOLINTNEXTLINE: the bytes of an f16 tensor.
  to_halves(wide.data(), reinterpret_cast<Half*>(to.bytes.data()), wide.size());
}

/// sum / count, 0 where there was nothing.
double mean(float sum, float count) {
  return count > 0 ? static_cast<double>(sum) / static_cast<double>(count) : 0.0;
}

}  // namespace

TrainingLoop::TrainingLoop(const Program& program, const TrainingOptions& options,
                           Communicator& communicator, ProgressSink& progress, Reporter* reporter,
                           const HostWeights& initial_weights, StreamFactory streams,
                           Outfeed* outfeed)
    : program_(program),
      options_(options),
      communicator_(communicator),
      progress_(progress),
      reporter_(reporter),
      initial_weights_(initial_weights),
      streams_(std::move(streams)),
      outfeed_(outfeed),
      train_(options.inference ? nullptr : streams_("train")),
      test_(options.inference ? streams_("test") : nullptr) {
  POPRUN_CHECK(options.inference == (outfeed != nullptr));
}

Result<TrainingResult> TrainingLoop::run() {
  const ReplicaId self = communicator_.self();
  POPRUN_TRY(plan_dump());
  progress_.progress(self, 0, "preparing the engine");
  POPRUN_ASSIGN(const std::unique_ptr<Engine> engine,
                Engine::create(program_, communicator_, *this, options_.engine,
                               [this, self](std::string_view activity) {
                                 progress_.progress(self, result_.steps, activity);
                               }));
  POPRUN_TRY(engine->run("load"));
  engine->reset_clocks();
  result_.first_step_began = now_seconds();
  POPRUN_TRY(options_.inference ? evaluate(*engine) : train(*engine));
  result_.device_cost = engine->device_cost();
  result_.skipped_steps = loss_scale_.skipped();
  result_.loss_scale = options_.scale_loss ? loss_scale_.value() : 0;
  if (options_.inference) {
    result_.wall = engine->wall();
  } else {
    POPRUN_TRY(engine->run("save"));
  }
  result_.high_water = engine->high_water();
  progress_.progress(self, result_.steps, "finishing");
  return result_;
}

Status TrainingLoop::plan_dump() {
  if (reporter_ != nullptr && !options_.dumps.empty()) {
    POPRUN_ASSIGN(auto plans, plan_dumps(program_, options_.dumps, options_.total_steps));
    dump_.emplace(program_, std::move(plans), *reporter_);
  }
  return {};
}

Status TrainingLoop::train(Engine& engine) {
  while (result_.steps < options_.total_steps && !result_.drained) {
    POPRUN_TRY(train_step(engine));
    const bool last = result_.steps == options_.total_steps;
    if (!result_.drained && evaluation_due(last)) {
      POPRUN_TRY(evaluate(engine));
    }
  }
  return {};
}

Status TrainingLoop::train_step(Engine& engine) {
  const WallSeconds before = engine.wall();
  const double begin = now_seconds();
  engine.set_step(result_.steps);
  if (options_.scale_loss) {
    engine.set_check_finite(options_.engine.check_finite && !loss_scale_.can_fall());
  }
  if (dump_) {
    dump_->begin(result_.steps + 1, engine);
  }
  POPRUN_TRY(engine.run("train"));
  if (dump_) {
    dump_->end(engine);
  }
  if (options_.scale_loss) {
    loss_scale_.after_step(gradient_factor_ != 0);
    engine.set_check_finite(options_.engine.check_finite);
  }
  result_.training_seconds += now_seconds() - begin;
  result_.wall.compute += engine.wall().compute - before.compute;
  result_.wall.exchange += engine.wall().exchange - before.exchange;
  result_.wall.host += engine.wall().host - before.host;
  ++result_.steps;

  result_.last_step = {.step = result_.steps,
                       .epoch = epoch(),
                       .loss = mean(metrics_[0], metrics_[2]),
                       .accuracy = mean(metrics_[1], metrics_[2]),
                       .wall_seconds = seconds_since_first_step(),
                       .device_seconds = device_seconds(program_, engine.device_cost())};
  if (reporter_ != nullptr) {
    reporter_->step(result_.last_step);
  }
  result_.drained = drain_ > 0 && result_.steps < options_.total_steps;
  return {};
}

bool TrainingLoop::evaluation_due(bool last) const {
  if (options_.evaluation_batches == 0) {
    return false;
  }
  const std::uint64_t every = options_.evaluate_every_epochs * options_.steps_per_epoch;
  return last || (every > 0 && result_.steps % every == 0);
}

Status TrainingLoop::evaluate(Engine& engine) {
  const double begin = now_seconds();
  if (!test_) {
    test_ = streams_("test");
  }
  POPRUN_TRY(engine.run("evaluate_begin"));
  for (test_batch_ = 0; test_batch_ < options_.evaluation_batches; ++test_batch_) {
    POPRUN_TRY(engine.run("evaluate"));
  }
  POPRUN_TRY(engine.run("evaluate_end"));
  test_.reset();
  result_.evaluation_seconds += now_seconds() - begin;
  result_.last_evaluation = {.step = result_.steps,
                             .epoch = epoch(),
                             .loss = mean(metrics_[0], metrics_[2]),
                             .accuracy = mean(metrics_[1], metrics_[2]),
                             .items = static_cast<std::uint64_t>(std::llround(metrics_[2])),
                             .wall_seconds = seconds_since_first_step(),
                             .device_seconds = device_seconds(program_, engine.device_cost())};
  const bool scored = result_.last_evaluation.items > 0;
  if (reporter_ != nullptr && scored) {
    reporter_->evaluation(result_.last_evaluation);
  }
  return {};
}

std::uint32_t TrainingLoop::epoch() const {
  return static_cast<std::uint32_t>((result_.steps + options_.steps_per_epoch - 1) /
                                    options_.steps_per_epoch);
}

double TrainingLoop::seconds_since_first_step() const {
  return now_seconds() - result_.first_step_began;
}

Status TrainingLoop::write(const std::string& stream, std::span<const HostTensor> tensors) {
  if (stream == "train") {
    return write_batch(*train_, tensors);
  }
  if (stream == "test") {
    return write_batch(*test_, tensors);
  }
  if (stream == "control") {
    return write_control(tensors);
  }
  POPRUN_CHECK(stream == "weights");
  return write_weights(tensors);
}

Status TrainingLoop::write_batch(HostStream& source, std::span<const HostTensor> tensors) {
  POPRUN_ASSIGN(const HostBatch batch, source.next());
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (batch.tensors.size() != tensors.size() ||
        batch.tensors[k].size() != tensors[k].bytes.size()) {
      return fail(ErrorCode::kData,
                  fmt::format("batch {} of the data server: tensor '{}' has {} B, the model takes "
                              "{} B ({})",
                              batch.sequence, tensors[k].name,
                              k < batch.tensors.size() ? batch.tensors[k].size() : 0,
                              tensors[k].bytes.size(), to_text(tensors[k].type)));
    }
    copy_bytes(batch.tensors[k], tensors[k].bytes);
  }
  return {};
}

Status TrainingLoop::write_control(std::span<const HostTensor> tensors) {
  put_scalar(static_cast<float>(options_.learning_rate.at(result_.steps)), tensors[0].bytes);
  put_scalar(progress_.drain_requested() ? 1.0F : 0.0F, tensors[1].bytes);
  // Of the steps that had an effect. Exact up to 2^24, far beyond the steps that bias corrections
  // can tell from endless ones.
  put_scalar(static_cast<float>(result_.steps - loss_scale_.skipped() + 1), tensors[2].bytes);
  if (options_.scale_loss) {
    put_scalar(static_cast<float>(loss_scale_.value()), tensors[3].bytes);
  }
  return {};
}

Status TrainingLoop::write_weights(std::span<const HostTensor> tensors) {
  for (const HostTensor& tensor : tensors) {
    if (communicator_.self() == ReplicaId{0}) {
      const auto found = initial_weights_.find(tensor.name);
      POPRUN_CHECK(found != initial_weights_.end() &&
                   found->second.size() ==
                       static_cast<std::size_t>(tensor.type.elements()) * sizeof(float));
      store(found->second, tensor);
    }
    POPRUN_TRY(communicator_.broadcast(tensor.bytes, ReplicaId{0}, tensor.name));
  }
  return {};
}

Status TrainingLoop::read(const std::string& stream, std::span<const HostTensor> tensors) {
  if (stream == "step") {
    metrics_ = floats_of(tensors[0].bytes);
    drain_ = floats_of(tensors[1].bytes)[0];
    if (options_.scale_loss) {
      gradient_factor_ = floats_of(tensors[2].bytes)[0];
    }
  } else if (stream == "evaluation") {
    metrics_ = floats_of(tensors[0].bytes);
  } else if (stream == "outputs") {
    return push_outputs(tensors[0]);
  } else if (reporter_ != nullptr) {
    POPRUN_CHECK(stream == "weights");
    for (const HostTensor& tensor : tensors) {
      reporter_->weights(tensor.name, element_name(tensor.type.data), tensor.type.shape,
                         tensor.bytes);
    }
  }
  return {};
}

Status TrainingLoop::push_outputs(const HostTensor& tensor) {
  std::vector<std::byte> storage;
  return outfeed_->push(test_batch_, element_name(tensor.type.data), tensor.type.shape,
                        row_major(tensor.type, tensor.bytes, storage));
}

}  // namespace poprun
