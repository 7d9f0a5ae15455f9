#include "tests/unit/launcher/job/simulated_world.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <random>
#include <stdexcept>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "launcher/outputs/safetensors.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kWeights = 64;
constexpr double kLongest = 3 * 3600;  ///< No simulated job may take longer, whatever happens.
constexpr double kSoon = 0.01;

std::string next_weights(const std::string& before) {
  std::uint64_t seed = 0;
  std::memcpy(&seed, before.data(), sizeof seed);
  std::mt19937_64 random(seed);
  std::string after;
  for (std::size_t k = 0; k < kWeights; ++k) {
    const auto weight = static_cast<float>(random() % 1000);
    after.append(reinterpret_cast<const char*>(&weight), sizeof weight);
  }
  return after;
}

}  // namespace

std::string simulated_weights(std::uint64_t step) {
  std::string weights(kWeights * sizeof(float), '\0');
  for (std::uint64_t k = 0; k < step; ++k) {
    weights = next_weights(weights);
  }
  return weights;
}

/// The instances of one attempt. They compute steps in step with each other, as collectives force them to.
class SimulatedWorld::Instances : public std::enable_shared_from_this<Instances> {
 public:
  Instances(SimulatedWorld& world, CoordinatorEvents& events, Coordinator::Setup setup)
      : world_(world), events_(events), setup_(std::move(setup)), views_(world.setup_.instances) {}

  void open(const proto::JoinReply& reply) {
    reply_ = reply;
    if (!setup_.resumed_state.empty()) {
      weights_ = read_safetensors(setup_.resumed_state).value().at(0).data;
      step_ = reply.resume().step();
    }
    later(kSoon, [this] {
      beat();
      start();
    });
  }
  void join() {
    for (std::uint32_t i = 0; i < views_.size(); ++i) {
      later(0.3 + 0.1 * i, [this, i] {
        if (views_[i].dead || ended_) {
          return;
        }
        proto::JoinRequest request;
        request.set_instance(i);
        request.set_host("localhost");
        request.set_pid(1000 + i);
        request.set_version(POPRUN_VERSION);
        if (events_.on_join(request)) {
          views_[i].joined = true;
          start();
        }
      });
    }
  }
  void request_drain() { drains_ = true; }
  void stop_after(std::uint64_t last_part) { last_part_ = last_part; }
  void request_checkpoint(std::uint64_t step) { requested_ = step; }
  void end() { ended_ = true; }

  /// The instance does nothing more.
  void die(std::uint32_t instance) { views_[instance].dead = true; }
  void die() {
    std::ranges::for_each(views_, [](View& view) { view.dead = true; });
  }
  void lose_touch(std::uint32_t instance) {
    if (View& view = views_[instance]; view.joined && !view.left && !ended_) {
      view.left = true;
      events_.on_leave(instance, /*orderly=*/false);
      cut_off(instance);
    }
  }
  void fail(std::uint32_t instance) {
    if (!views_[instance].joined || views_[instance].dead || ended_) {
      return;
    }
    die(instance);
    proto::Failure failure;
    failure.set_instance(instance);
    failure.set_replica(instance);
    failure.set_host("localhost");
    failure.set_exit_code(70);
    failure.set_message("a simulated failure");
    events_.on_failure(failure);
  }

 private:
  struct View {
    bool joined = false;
    bool dead = false;
    bool left = false;
  };

  void later(double seconds, std::function<void()> then) {
    world_.after(seconds, [self = shared_from_this(), then = std::move(then)] { then(); });
  }

  [[nodiscard]] bool all_live() const {
    return std::ranges::all_of(views_, [](const View& view) { return view.joined && !view.dead && !view.left; });
  }

  void start() {
    if (!reply_ || started_ || ended_ || !all_live()) {
      return;
    }
    started_ = true;
    began_ = world_.now_;
    proto::ReportItem item;
    item.mutable_shape()->set_total_steps(world_.setup_.steps);
    item.mutable_shape()->set_steps_per_epoch(world_.setup_.steps);
    item.mutable_shape()->set_samples_per_step(32);
    item.mutable_shape()->set_parameter_count(kWeights);
    if (!report(item)) {
      return;
    }
    later(world_.setup_.step_seconds, [this] { advance(); });
  }

  bool report(const proto::ReportItem& item) {
    return !ended_ && !views_[0].dead && events_.on_report(item).has_value();
  }

  void beat() {
    if (ended_) {
      return;
    }
    for (std::uint32_t i = 0; i < views_.size(); ++i) {
      if (views_[i].joined && !views_[i].dead && !views_[i].left) {
        proto::Beat beat;
        beat.set_instance(i);
        beat.set_holds(holds_);
        proto::ReplicaProgress& progress = *beat.add_replicas();
        progress.set_replica(i);
        progress.set_step(step_);
        progress.set_parts(step_);
        progress.set_activity(!started_ ? "waiting for all replicas" : all_live() ? "forward" : "all-reduce");
        events_.on_beat(beat);
      }
    }
    later(reply_->heartbeat_interval_ms() / 1000.0, [this] { beat(); });
  }

  void advance() {
    if (ended_ || !all_live()) {
      return;  // A collective waits for the missing instance.
    }
    if (step_ == world_.setup_.steps || (last_part_ && step_ >= *last_part_)) {
      return finish();
    }
    holds_ = drains_ && !last_part_;
    const bool saves = !holds_ && take_step();
    later(holds_ ? kSoon : world_.setup_.step_seconds + (saves ? world_.setup_.saving_seconds : 0),
          [this] { advance(); });
  }

  /// Returns whether a checkpoint is taken after this step.
  bool take_step() {
    weights_ = next_weights(weights_);
    ++step_;
    proto::ReportItem item;
    proto::StepMetrics& metrics = *item.mutable_step();
    metrics.set_step(step_);
    metrics.set_epoch(1);
    metrics.set_loss(static_cast<double>(static_cast<unsigned char>(weights_[2])));
    metrics.set_wall_seconds(static_cast<double>(step_));
    metrics.set_device_seconds(static_cast<double>(step_));
    metrics.set_learning_rate(0.5 / static_cast<double>(step_));
    data_seconds_ += world_.setup_.data_seconds;
    metrics.mutable_elapsed()->set_wall_seconds(world_.now_ - began_);
    metrics.mutable_elapsed()->set_data_seconds(data_seconds_);
    metrics.mutable_elapsed()->set_saving_seconds(saving_seconds_);
    if (!report(item)) {
      return false;
    }
    const std::uint64_t every = reply_->checkpoint_every_steps();
    const bool saves = reply_->takes_checkpoints() && ((every > 0 && step_ % every == 0) || step_ == requested_);
    if (saves) {
      store();
      saving_seconds_ += world_.setup_.saving_seconds;
    }
    return saves;
  }

  /// Sends the parts of a checkpoint: each instance owns a slice of the weights.
  void store() {
    for (std::uint32_t i = 0; i < views_.size(); ++i) {
      const std::uint64_t begin = weights_.size() * i / views_.size();
      const std::uint64_t end = weights_.size() * (i + 1) / views_.size();
      proto::StatePart part;
      part.set_replica(i);
      part.set_parts(world_.setup_.instances);
      part.mutable_host()->set_step(step_);
      part.mutable_host()->set_metric_rows(step_);
      proto::StateVariable& variable = *part.add_variables();
      variable.set_name("weights");
      variable.set_type("f32");
      variable.add_shape(kWeights);
      variable.set_bytes(weights_.size());
      proto::StateSlice& slice = *part.add_slices();
      slice.set_offset(begin);
      slice.set_bytes(end - begin);
      auto over = std::make_shared<bool>(false);
      on_disk(i, [this, part, over, step = step_](std::uint32_t) {
        setup_.checkpoints.begin(part, [this, over, step](CheckpointWriter::Outcome outcome) {
          *over = true;
          if (outcome == CheckpointWriter::Outcome::kStored && stored_ < step) {
            stored_ = step;
            world_.on_stored(step);
          }
        });
      });
      const double seconds = world_.setup_.part_seconds * (1 + i) / static_cast<double>(views_.size());
      later(seconds, [this, i, over, bytes = weights_.substr(begin, end - begin), step = step_] {
        end_part(i, over, bytes, step);
      });
    }
  }

  /// Ends a part when metrics.csv has the rows of its step. The writer would otherwise wait for them, in real time.
  void end_part(std::uint32_t instance, const std::shared_ptr<bool>& over, const std::string& bytes,
                std::uint64_t step) {
    on_disk(instance, [this, over, bytes, step](std::uint32_t known) {
      std::ifstream metrics(world_.metrics_);
      const auto lines = std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
      if (static_cast<std::uint64_t>(lines) <= step) {
        return later(0.1, [this, known, over, bytes, step] { end_part(known, over, bytes, step); });
      }
      if (!*over) {
        setup_.checkpoints.write(known, bytes);
      }
      if (!*over) {
        setup_.checkpoints.end(known);
      }
    });
  }

  void on_disk(std::uint32_t instance, std::function<void(std::uint32_t instance)> use) {
    world_.with_disk([self = shared_from_this(), instance, use = std::move(use)] {
      if (View& view = self->views_[instance]; !view.dead && !view.left && !self->ended_) {
        use(instance);
      }
    });
  }

  void cut_off(std::uint32_t instance) {
    world_.with_disk([self = shared_from_this(), instance] {
      if (!self->ended_) {
        self->setup_.checkpoints.cancel(instance);
      }
    });
  }

  void finish() {
    proto::ReportItem item;
    proto::TensorChunk& chunk = *item.mutable_weights();
    chunk.set_name("weights");
    chunk.set_type("f32");
    chunk.add_shape(kWeights);
    chunk.set_data(weights_);
    chunk.set_last(true);
    if (!report(item)) {
      return;
    }
    item.Clear();
    item.mutable_profile()->set_version(POPRUN_VERSION);
    item.mutable_profile()->mutable_outcome()->set_steps(step_);
    item.mutable_profile()->mutable_outcome()->set_drained(step_ < world_.setup_.steps);
    if (!report(item) || !events_.on_report_end()) {
      return;
    }
    for (std::uint32_t i = 0; i < views_.size() && !ended_; ++i) {
      views_[i].left = true;
      events_.on_leave(i, /*orderly=*/true);
    }
    later(0.1, [this] { world_.mpirun_ends(0); });
  }

  SimulatedWorld& world_;
  CoordinatorEvents& events_;
  Coordinator::Setup setup_;
  std::vector<View> views_;
  std::optional<proto::JoinReply> reply_;
  std::string weights_ = simulated_weights(0);
  std::uint64_t step_ = 0;
  double began_ = 0;  ///< Time at which training began.
  double data_seconds_ = 0;
  double saving_seconds_ = 0;
  std::uint64_t requested_ = 0;
  std::uint64_t stored_ = 0;
  std::optional<std::uint64_t> last_part_;
  bool started_ = false;
  bool drains_ = false;
  bool holds_ = false;
  bool ended_ = false;  ///< The service has ended, so `events_` and `setup_` may be gone.
};

class SimulatedWorld::Service final : public Coordinator {
 public:
  Service(SimulatedWorld& world, asio::io_context& loop, std::shared_ptr<Instances> instances)
      : world_(world), loop_(loop), instances_(std::move(instances)) {}
  ~Service() override { instances_->end(); }

  [[nodiscard]] int port() const override { return 1; }
  void open(const proto::JoinReply& reply) override { instances_->open(reply); }
  void close() override {}
  void request_drain() override { instances_->request_drain(); }
  void stop_after(std::uint64_t last_part) override { instances_->stop_after(last_part); }
  void request_checkpoint(std::uint64_t step) override { instances_->request_checkpoint(step); }
  void excuse(bool /*excused*/) override {}
  /// As in the real service, calls end only when the disk has done what they asked for.
  void stop(const std::function<void()>& stopped) override {
    instances_->end();
    world_.with_disk([this, stopped] { asio::post(loop_, stopped); });
  }

 private:
  SimulatedWorld& world_;
  asio::io_context& loop_;
  std::shared_ptr<Instances> instances_;
};

class SimulatedWorld::Processes final : public JobProcesses {
 public:
  Processes(SimulatedWorld& world, Events events) : world_(world), events_(std::move(events)) {
    world_.processes_ = this;
  }
  ~Processes() override { world_.processes_ = nullptr; }

  Status check() override { return {}; }
  Status start(int /*coordinator_port*/, std::uint64_t /*epoch*/) override {
    runs_ = true;
    world_.instances_->join();
    later(0.2, [this] {
      if (runs_) {
        proto::Dataset dataset;
        dataset.set_train_items(1000);
        dataset.set_fingerprint("simulated");
        events_.on_dataset(ServedDataset{"localhost:2", dataset});
      }
    });
    return {};
  }
  [[nodiscard]] Status check_mpirun() const override { return {}; }
  void replicas_run() override {}
  [[nodiscard]] bool any_run() const override { return runs_; }
  [[nodiscard]] std::string restart_command() const override { return "restart it"; }
  void terminate() override {
    if (!world_.stubborn_) {
      later(0.2, [this] { kill(); });
    }
  }
  void kill() override { mpirun_ends(SIGKILL); }
  void clear_away() override { runs_ = false; }

  void mpirun_ends(int status) {
    if (std::exchange(runs_, false)) {
      world_.instances_->die();
      events_.on_mpirun_exit(status);
    }
  }
  void data_server_ends() { events_.on_data_server_exit(SIGKILL); }

 private:
  void later(double seconds, std::function<void()> then) {
    world_.after(seconds, [&world = world_, attempt = world_.attempts_, then = std::move(then)] {
      if (world.processes_ != nullptr && world.attempts_ == attempt) {
        then();
      }
    });
  }

  SimulatedWorld& world_;
  Events events_;
  bool runs_ = false;
};

class SimulatedWorld::SimulatedAlarm final : public Alarm {
 public:
  explicit SimulatedAlarm(SimulatedWorld& world) : world_(world) {}
  ~SimulatedAlarm() override { world_.events_.erase(key_); }
  void set(double seconds, std::function<void()> then) override {
    world_.events_.erase(key_);
    key_ = world_.after(std::max(0.0, seconds), std::move(then));
  }

 private:
  SimulatedWorld& world_;
  std::pair<double, std::uint64_t> key_{-1, 0};
};

/// A disk that does everything at once, unless it hangs.
class SimulatedWorld::Disk final : public DiskThread {
 public:
  explicit Disk(SimulatedWorld& world) : world_(world) {}
  ~Disk() override {
    if (!tasks_->empty()) {
      world_.now_ = std::max(world_.now_, world_.disk_hangs_until_);
      run(*tasks_);
    }
  }

  std::shared_future<Status> post(Task task) override {
    if (tasks_->empty()) {
      began_ = world_.now_;
    }
    std::packaged_task<Status()>& posted = tasks_->emplace_back(std::move(task));
    std::shared_future<Status> done = posted.get_future().share();
    world_.with_disk([tasks = tasks_] { run(*tasks); });
    return done;
  }
  bool is_done(const std::shared_future<Status>& task, std::chrono::milliseconds /*patience*/) override {
    return task.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  [[nodiscard]] double busy_seconds() const override { return tasks_->empty() ? 0 : world_.now_ - began_; }

 private:
  using Tasks = std::deque<std::packaged_task<Status()>>;

  static void run(Tasks& tasks) {
    for (; !tasks.empty(); tasks.pop_front()) {
      tasks.front()();
    }
  }

  SimulatedWorld& world_;
  std::shared_ptr<Tasks> tasks_ = std::make_shared<Tasks>();
  double began_ = 0;  ///< When the first of the tasks was posted.
};

SimulatedWorld::SimulatedWorld(Setup setup) : setup_(std::move(setup)) {
  for (const Fault& fault : setup_.faults) {
    after(fault.at, [this, fault] { inject(fault); });
  }
}

SimulatedWorld::~SimulatedWorld() = default;

std::pair<double, std::uint64_t> SimulatedWorld::after(double seconds, std::function<void()> then) {
  const std::pair<double, std::uint64_t> key{now_ + seconds, next_++};
  events_.emplace(key, std::move(then));
  return key;
}

void SimulatedWorld::with_disk(std::function<void()> use) {
  if (!disk_hangs()) {
    return use();
  }
  after(disk_hangs_until_ - now_, [this, use = std::move(use)] { with_disk(use); });
}

void SimulatedWorld::step() {
  const auto first = events_.begin();
  const std::function<void()> then = std::move(first->second);
  now_ = std::max(now_, first->first.first);
  events_.erase(first);
  if (now_ > 1000 + kLongest) {
    throw std::runtime_error("the job hangs");
  }
  then();
}

void SimulatedWorld::run(asio::io_context& loop) {
  while (!loop.stopped()) {
    if (loop.poll_one() == 0 && !loop.stopped()) {
      if (events_.empty()) {
        throw std::runtime_error("the job waits for nothing");
      }
      step();
    }
  }
}

int SimulatedWorld::pause(double seconds) {
  signal_ = 0;
  bool over = false;
  after(seconds, [&] { over = true; });
  while (!over && signal_ == 0) {
    step();
  }
  return signal_;
}

std::unique_ptr<Alarm> SimulatedWorld::alarm(asio::io_context& /*loop*/) {
  return std::make_unique<SimulatedAlarm>(*this);
}

std::unique_ptr<DiskThread> SimulatedWorld::disk() {
  return std::make_unique<Disk>(*this);
}

std::unique_ptr<JobProcesses> SimulatedWorld::processes(asio::io_context& /*loop*/, const Options& options,
                                                        const Placement& /*placement*/, Console& /*console*/,
                                                        const Security& /*security*/, JobProcesses::Events events) {
  ++attempts_;
  metrics_ = options.output.dir + "/metrics.csv";
  return std::make_unique<Processes>(*this, std::move(events));
}

Result<std::unique_ptr<Coordinator>> SimulatedWorld::serve(asio::io_context& loop, CoordinatorEvents& events,
                                                           Coordinator::Setup setup) {
  instances_ = std::make_shared<Instances>(*this, events, std::move(setup));
  return std::make_unique<Service>(*this, loop, instances_);
}

void SimulatedWorld::mpirun_ends(int status) {
  if (processes_ != nullptr) {
    processes_->mpirun_ends(status);
  }
}

void SimulatedWorld::inject(const Fault& fault) {
  const bool runs = processes_ != nullptr && processes_->any_run();
  switch (fault.kind) {
    case FaultKind::kKilled:
      if (runs) {
        instances_->die(fault.instance);
        instances_->lose_touch(fault.instance);
        after(0.1, [this, attempt = attempts_] {
          if (attempt == attempts_) {
            mpirun_ends(137 << 8);
          }
        });
      }
      return;
    case FaultKind::kSilent:
      return runs ? instances_->die(fault.instance) : void();
    case FaultKind::kFails:
      return runs ? instances_->fail(fault.instance) : void();
    case FaultKind::kLost:
      return runs ? instances_->lose_touch(fault.instance) : void();
    case FaultKind::kMpirunDies:
      return mpirun_ends(SIGKILL);
    case FaultKind::kDataServer:
      return runs ? processes_->data_server_ends() : void();
    case FaultKind::kSigterm:
    case FaultKind::kSigusr1:
      if (processes_ == nullptr) {
        signal_ = fault.kind == FaultKind::kSigterm ? SIGTERM : 0;  // During a pause.
      } else {
        std::raise(fault.kind == FaultKind::kSigterm ? SIGTERM : SIGUSR1);
      }
      return;
    case FaultKind::kDiskHangs:
      disk_hangs_until_ = std::max(disk_hangs_until_, now_ + fault.seconds);
      return;
    case FaultKind::kSleeps:
      now_ += fault.seconds;
      return;
    case FaultKind::kStubborn:
      stubborn_ = true;
      return;
  }
}

}  // namespace poprun::launcher
