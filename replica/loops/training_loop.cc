#include "replica/loops/training_loop.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "replica/graph/types.h"
#include "replica/program/timeline.h"

namespace poprun {
namespace {

/// Bytes of weights saved between barriers. This limits how long the other replicas wait for the replica that saves.
constexpr std::size_t kSavedTogetherBytes = 64 << 20;

/// A stream whose batches are a job's parts. A part begins when its batch arrives, so a missing batch never blocks
/// draining.
class Parts final : public HostStream {
 public:
  using Begin = std::function<Status()>;
  using Arrived = std::function<void(const HostBatch&)>;

  Parts(std::unique_ptr<HostStream> source, Begin begin, Arrived arrived)
      : source_(std::move(source)), begin_(std::move(begin)), arrived_(std::move(arrived)) {}

  Result<HostBatch> next() override {
    Result<HostBatch> batch = source_->next();
    POPRUN_TRY(begin_());
    if (batch) {
      arrived_(*batch);
    }
    return batch;
  }

 private:
  std::unique_ptr<HostStream> source_;
  Begin begin_;
  Arrived arrived_;
};

}  // namespace

TrainingLoop::TrainingLoop(const Program& program, const TrainingOptions& options, const LoopPorts& ports)
    : program_(program),
      options_(options),
      ports_(ports),
      labels_(options.labels, options.batch_samples, std::max(program.compute_batches(), 1U), options.weighted_mean_of),
      train_(std::make_unique<Parts>(
          ports.streams(JobStream::kTrain, options.resume ? options.resume->step() * options.micro_batches : 0),
          [this] { return begin_part(); }, [this](const HostBatch& batch) { labels_.add(batch); })),
      batches_(program, JobStream::kTrain, *train_),
      statistics_(program),
      state_(program, index_of(ports.communicator.self()), ports.communicator.size(), options.sharding_group),
      served_(&batches_) {
  if (options.scale_loss) {
    outcome_.gradient_factor.emplace(1.0F);
  }
}

Result<LoopResult> TrainingLoop::run() {
  POPRUN_TRY(plan_observers());
  POPRUN_ASSIGN(const std::unique_ptr<Engine> engine,
                load_engine(program_, ports_, *this, options_.engine, result_.steps));
  if (options_.resume) {
    POPRUN_TRY(resume(*engine));
  }
  result_.first_step_began = now_seconds();
  POPRUN_TRY(train(*engine));
  if (result_.steps > result_.resumed_after + 1) {
    POPRUN_TRY(note_unequal_labels());
  }
  if (replay_ && !result_.drained) {
    POPRUN_TRY(replay_->compare_state(*engine, result_.steps + 1));
    report_note(replay_->note(*engine));
  }
  result_.device_time = engine->device_time();
  result_.skipped_steps = loss_scale_.skipped();
  result_.loss_scale = options_.scale_loss ? loss_scale_.value() : 0;
  ports_.progress.progress(ports_.communicator.self(), result_.steps, "saving the weights");
  POPRUN_TRY(engine->run(name_of(JobFunction::kSave)));
  result_.high_water = engine->high_water();
  result_.streaming_high_water = engine->streaming_high_water();
  result_.tile_high_water = engine->tile_high_water();
  result_.stray_index = engine->stray_index();
  ports_.progress.progress(ports_.communicator.self(), result_.steps, "finishing");
  return result_;
}

Status TrainingLoop::plan_observers() {
  if (ports_.reporter != nullptr && !options_.dumps.empty()) {
    POPRUN_ASSIGN(auto plans, plan_dumps(program_, options_.dumps, options_.total_steps));
    dump_.emplace(program_, std::move(plans), *ports_.reporter);
  }
  if (!options_.bit_flips.empty()) {
    POPRUN_ASSIGN(flips_, BitFlips::create(program_, options_.bit_flips, options_.total_steps, ports_.communicator));
  }
  if (options_.replay_every > 0) {
    const auto serve = [this](BatchWindow* window) { served_ = window != nullptr ? window : &batches_; };
    POPRUN_ASSIGN(replay_, Replay::create(program_, ports_, statistics_, options_.micro_batches, serve));
  }
  return {};
}

/// Restores the state of the checkpoint.
Status TrainingLoop::resume(Engine& engine) {
  ports_.progress.progress(ports_.communicator.self(), result_.steps, "restoring a checkpoint");
  POPRUN_TRY(state_.restore(ports_.state, engine, ports_.communicator));
  const proto::HostState& host = *options_.resume;
  result_.steps = host.step();
  result_.resumed_after = host.step();
  reported_ = host.metric_rows();
  step_end_ = Cycles{static_cast<std::int64_t>(host.device_cycles())};
  engine.reset_clocks(step_end_);
  if (options_.scale_loss) {
    loss_scale_ = LossScale(host.loss_scale(), host.good_steps(), host.skipped_steps());
  }
  result_.earlier_seconds = host.wall_seconds();
  result_.training_seconds = host.training_seconds();
  result_.evaluation_seconds = host.evaluation_seconds();
  result_.wall = {
      .compute = host.compute_seconds(), .exchange = host.exchange_seconds(), .host = host.host_stream_seconds()};
  result_.last_step = {
      .step = host.step(), .epoch = epoch(), .loss = host.last_loss(), .accuracy = host.last_accuracy()};
  result_.last_evaluation = {.step = host.evaluated_step(),
                             .loss = host.test_loss(),
                             .accuracy = host.test_accuracy(),
                             .items = host.test_items()};
  return {};
}

Status TrainingLoop::train(Engine& engine) {
  // If the job was longer when the checkpoint was taken, it may not have evaluated after the step that is now its last.
  const bool at_end = result_.steps >= options_.total_steps;
  bool due = options_.resume && (options_.resume->evaluation_due() ||
                                 (at_end && result_.last_evaluation.step != result_.steps && evaluation_due(at_end)));
  while (true) {
    if (due) {
      POPRUN_TRY(evaluate(engine));
    }
    const bool ends = result_.drained || result_.steps >= options_.total_steps;
    if (ports_.checkpoints != nullptr &&
        (result_.drained || (result_.steps > result_.resumed_after && ports_.checkpoints->is_due(result_.steps)))) {
      if (replay_ && !result_.drained) {
        POPRUN_TRY(replay_->compare_state(engine, result_.steps + 1));  // A checkpoint must not preserve wrong weights.
      }
      POPRUN_TRY(store(engine, /*evaluation_due=*/result_.drained && due));
    }
    if (ends) {
      return {};
    }
    POPRUN_TRY(train_step(engine));
    due = !result_.drained && evaluation_due(result_.steps == options_.total_steps);
  }
}

Status TrainingLoop::store(Engine& engine, bool evaluation_due) {
  if (!state_.has_part() || result_.steps == 0) {
    return {};
  }
  ports_.progress.progress(ports_.communicator.self(), result_.steps, "taking a checkpoint");
  const double began = now_seconds();
  proto::StatePart part = state_.part();
  proto::HostState& host = *part.mutable_host();
  host.set_step(result_.steps);
  host.set_evaluation_due(evaluation_due);
  if (options_.scale_loss) {
    host.set_loss_scale(loss_scale_.value());
    host.set_good_steps(loss_scale_.good_steps());
    host.set_skipped_steps(loss_scale_.skipped());
  }
  host.set_device_cycles(static_cast<std::uint64_t>(step_end_.count()));
  host.set_metric_rows(reported_);
  host.set_wall_seconds(seconds_since_first_step());
  host.set_training_seconds(result_.training_seconds);
  host.set_evaluation_seconds(result_.evaluation_seconds);
  host.set_compute_seconds(result_.wall.compute);
  host.set_exchange_seconds(result_.wall.exchange);
  host.set_host_stream_seconds(result_.wall.host);
  host.set_last_loss(result_.last_step.loss);
  host.set_last_accuracy(result_.last_step.accuracy);
  host.set_test_loss(result_.last_evaluation.loss);
  host.set_test_accuracy(result_.last_evaluation.accuracy);
  host.set_test_items(result_.last_evaluation.items);
  host.set_evaluated_step(result_.last_evaluation.step);
  const auto room = ports_.checkpoints->begin(std::move(part), /*is_last=*/result_.drained);
  if (room) {
    state_.copy(engine, statistics_, *room);
    ports_.checkpoints->send();
    tell_watcher(Pause::kCheckpoint, began);
  } else if (result_.drained) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("replica {}: no checkpoint after step {}: the launcher is still storing the previous one",
                            index_of(ports_.communicator.self()), result_.steps));
  }
  saving_seconds_ += now_seconds() - began;
  return {};
}

Status TrainingLoop::train_step(Engine& engine) {
  const WallSeconds before = engine.wall();
  const double begin = now_seconds();
  engine.set_step(result_.steps);
  if (options_.scale_loss) {
    engine.set_check_finite(options_.engine.check_finite && !loss_scale_.can_fall());
  }
  if (flips_) {
    POPRUN_TRY(flips_->begin(result_.steps + 1, engine));
  }
  if (dump_) {
    dump_->begin(result_.steps + 1, engine);
  }
  if (ports_.watcher != nullptr) {
    ports_.watcher->begin(result_.steps + 1, engine);
  }
  statistics_.take(engine);
  batches_.begin();
  ports_.progress.begin_parts(ports_.communicator.self(), options_.micro_batches);
  const Status ran = run_step(engine);
  if (result_.drained) {
    engine.remove_observers();
    return {};
  }
  POPRUN_TRY(ran);
  POPRUN_TRY(labels_.check(outcome_.metrics, ports_.communicator.size(), result_.steps + 1));
  statistics_.forget();
  if (flips_) {
    flips_->end(engine);
  }
  if (dump_) {
    dump_->end(engine);
  }
  if (options_.scale_loss) {
    loss_scale_.after_step(outcome_.gradient_factor >= 0.0F);
    engine.set_check_finite(options_.engine.check_finite);
  }
  end_step(engine, before, begin);
  // The first step usually shows whether label counts differ; run() checks again at the end.
  return result_.steps == result_.resumed_after + 1 ? note_unequal_labels() : Status{};
}

Status TrainingLoop::run_step(Engine& engine) {
  labels_.begin_step();
  if (labels_.are_shared()) {
    const double began = now_seconds();
    POPRUN_TRY(batches_.fetch(options_.micro_batches));
    fetching_seconds_ += now_seconds() - began;
    POPRUN_TRY(labels_.share(ports_.communicator));
  }
  const std::uint64_t step = result_.steps + 1;
  return replay_ && step % options_.replay_every == 0 ? replay_->run(engine, step)
                                                      : engine.run(name_of(JobFunction::kTrain));
}

/// Adds a note, once, if labels have more weight in some micro-batches than in others. Collective.
Status TrainingLoop::note_unequal_labels() {
  const std::uint64_t parts =
      options_.micro_batches * ports_.communicator.size() * std::max(program_.compute_batches(), 1U);
  if (labels_.are_shared() || parts == 1 || labels_.are_noted() || options_.labels.empty()) {
    return {};
  }
  POPRUN_ASSIGN(const std::optional<Note> note, labels_.note_if_unequal(ports_.communicator));
  if (note) {
    report_note(*note);
  }
  return {};
}

/// Adds a note to the results, and reports it.
void TrainingLoop::report_note(const Note& note) {
  result_.notes.push_back(note);
  if (ports_.reporter != nullptr) {
    ports_.reporter->note(to_proto(note));
  }
}

void TrainingLoop::end_step(Engine& engine, const WallSeconds& before, double begin) {
  result_.training_seconds += now_seconds() - begin;
  result_.wall.compute += engine.wall().compute - before.compute;
  result_.wall.exchange += engine.wall().exchange - before.exchange;
  result_.wall.host += engine.wall().host - before.host;
  ++result_.steps;
  ports_.progress.operators(ports_.communicator.self(), result_.steps, result_.wall.compute);

  result_.last_step = {.step = result_.steps,
                       .epoch = epoch(),
                       .loss = outcome_.metrics.loss(),
                       .accuracy = outcome_.metrics.accuracy(),
                       .wall_seconds = seconds_since_first_step(),
                       .device_seconds = device_seconds(program_, engine.device_time()),
                       .learning_rate = options_.learning_rate.at(result_.steps - 1),
                       .elapsed = elapsed(engine)};
  ++reported_;
  step_end_ = engine.device_time();
  if (ports_.reporter != nullptr) {
    ports_.reporter->step(result_.last_step);
  }
  if (ports_.watcher != nullptr) {
    ports_.watcher->end(result_.last_step, engine);
  }
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
  ports_.progress.begin_parts(ports_.communicator.self(), options_.evaluation_batches);
  evaluation_.emplace(program_, open_parts(JobStream::kTest));
  const Status ran = evaluation_->run(engine);
  if (result_.drained) {
    evaluation_.reset();
    return {};
  }
  POPRUN_TRY(ran);
  EvaluationReport report = evaluation_->report();
  evaluation_.reset();
  result_.evaluation_seconds += now_seconds() - begin;
  report.step = result_.steps;
  report.epoch = epoch();
  report.wall_seconds = seconds_since_first_step();
  report.device_seconds = device_seconds(program_, engine.device_time());
  report.elapsed = elapsed(engine);
  result_.last_evaluation = report;
  step_end_ = engine.device_time();
  reported_ += report.items > 0 ? 1 : 0;
  if (ports_.reporter != nullptr && report.items > 0) {
    ports_.reporter->evaluation(report);
  }
  tell_watcher(Pause::kEvaluation, begin);
  return {};
}

void TrainingLoop::tell_watcher(Pause pause, double began) const {
  if (ports_.watcher != nullptr) {
    ports_.watcher->paused(pause, began);
  }
}

std::uint32_t TrainingLoop::epoch() const {
  return static_cast<std::uint32_t>((result_.steps + options_.steps_per_epoch - 1) / options_.steps_per_epoch);
}

Elapsed TrainingLoop::elapsed(const Engine& engine) const {
  return {.wall = now_seconds() - result_.first_step_began,
          .data = engine.wall().host + fetching_seconds_,
          .saving = saving_seconds_};
}

double TrainingLoop::seconds_since_first_step() const {
  return result_.earlier_seconds + now_seconds() - result_.first_step_began;
}

Status TrainingLoop::write(const std::string& stream, const StreamPart& part) {
  if (stream == name_of(JobStream::kTrain)) {
    return served_->write(part);
  }
  if (stream == name_of(JobStream::kControl)) {
    return pack(JobStream::kControl, control().fields(), named_bytes(part.tensors));
  }
  if (stream == name_of(JobStream::kTest) && evaluation_) {
    return evaluation_->write_batch(part);
  }
  if (stream == name_of(JobStream::kWeights)) {
    return write_weights(ports_.initial_weights, ports_.communicator, part.tensors);
  }
  return refuse_stream(stream);
}

std::unique_ptr<HostStream> TrainingLoop::open_parts(JobStream stream) {
  return std::make_unique<Parts>(
      ports_.streams(stream, 0), [this] { return begin_part(); }, [](const HostBatch& /*batch*/) {});
}

/// Ends the current function if the job has to stop. In that case, `drained` shows that the error is not a failure.
Status TrainingLoop::begin_part() {
  if (!ports_.progress.begin_part(ports_.communicator.self())) {
    result_.drained = true;
    return fail(ErrorCode::kInfrastructure, "the job was asked to stop here");
  }
  return {};
}

StepControl TrainingLoop::control() const {
  StepControl control{.learning_rate = static_cast<float>(options_.learning_rate.at(result_.steps)),
                      .update = static_cast<float>(result_.steps - loss_scale_.skipped() + 1)};
  if (options_.scale_loss) {
    control.loss_scale = static_cast<float>(loss_scale_.value());
  }
  control.mean_labels = labels_.means();
  return control;
}

Status TrainingLoop::read(const std::string& stream, const StreamPart& part) {
  if (stream == name_of(JobStream::kStep)) {
    return unpack(JobStream::kStep, outcome_.fields(), named_bytes(part.tensors));
  }
  if (stream == name_of(JobStream::kEvaluation) && evaluation_) {
    return evaluation_->read_outcome(part.tensors);
  }
  if (stream == name_of(JobStream::kWeights)) {
    return save(part.tensors);
  }
  return refuse_stream(stream);
}

Status TrainingLoop::save(std::span<const HostTensor> tensors) {
  for (const HostTensor& tensor : tensors) {
    if (ports_.reporter != nullptr) {
      ports_.reporter->weights(tensor.name, element_name(tensor.type.data), tensor.type.shape,
                               statistics_.of(tensor.name, tensor.bytes));
    }
    saved_together_ += tensor.bytes.size();
    if (saved_together_ >= kSavedTogetherBytes) {
      saved_together_ = 0;
      POPRUN_TRY(ports_.communicator.barrier());
    }
  }
  return {};
}

}  // namespace poprun
