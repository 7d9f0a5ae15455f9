#include "replica/instance/instance.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "collectives/mpi/mpi_world.h"
#include "hostio/sampling/sampling.h"
#include "hostio/streams/client.h"
#include "replica/base/host_limits.h"
#include "replica/base/log.h"
#include "replica/base/text.h"
#include "replica/compilation/profile.h"
#include "replica/instance/process.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/training_loop.h"
#include "replica/loops/training_state.h"
#include "replica/ops/dnnl/numerics.h"
#include "replica/report/report.h"

namespace poprun {
namespace {

constexpr std::chrono::seconds kLastCheckpointMax{600};  // Maximum wait for a full disk.
// With the device timeline, these limits keep the trace.pftrace of a run below 50 MB, and a message below gRPC's 4 MiB.
constexpr std::uint64_t kRunSlicesMax = 350'000;  // For all replicas and traced steps together.
constexpr std::size_t kTraceProgramBytesMax = 3 << 20;
constexpr std::uint64_t kStepSlicesMax = 100'000;
constexpr int kTraceBarsMax = 60'000;

/// Gathers `value` from all replicas, in replica order. Collective.
Result<std::vector<std::uint64_t>> of_all(std::uint64_t value, Communicator& communicator, std::string_view name) {
  std::vector<std::uint64_t> all(communicator.size());
  POPRUN_TRY(
      communicator.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)), name));
  return all;
}

}  // namespace

void leave(CoordinatorClient& client, ReplicaId self, const Error& error,
           const std::vector<std::string>& recent_calls) {
  client.fail(self, error, recent_calls);
  ::_exit(exit_code_of(error.code));
}

Instance::Instance(const InstanceEnvironment& environment, CoordinatorClient& client, proto::JoinReply reply,
                   double joined_at)
    : environment_(environment),
      client_(client),
      reply_(std::move(reply)),
      compilation_(client, reply_, [this] { tell_of_compilation(); }),
      data_identity_(data_identity()),
      launched_at_(joined_at - reply_.seconds_since_launch()),
      host_(machine_name()) {}

Status Instance::run() {
  POPRUN_ASSIGN(const std::unique_ptr<MpiWorld> world,
                MpiWorld::create({.replicas = reply_.config().topology().num_replicas(),
                                  .first = ReplicaId{environment_.first_replica},
                                  .local = environment_.local_replicas,
                                  .deadline = collective_timeout(),
                                  .last_excuse = [this] { return client_.last_excuse(); },
                                  .host = {}}));
  std::vector<std::thread> threads;
  for (std::uint32_t local = 0; local < environment_.local_replicas; ++local) {
    const ReplicaId self{environment_.first_replica + local};
    threads.emplace_back([this, self, &communicator = world->communicator(self)] {
      pin_arithmetic();
      if (const Status status = run_replica(communicator); !status) {
        leave_with(self, status.error(), communicator.recent_calls());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return {};
}

void Instance::leave_with(ReplicaId self, const Error& error, const std::vector<std::string>& recent_calls) {
  static std::mutex mutex;
  if (self == ReplicaId{0} && error.code == ErrorCode::kData) {
    // Send the dump of a step that ended because of a non-finite number; the launcher waits for it. If sending fails,
    // the report of the error will fail, too.
    static_cast<void>(client_.finish());
  }
  const std::lock_guard lock(mutex);
  leave(client_, self, error, recent_calls);
}

std::chrono::milliseconds Instance::collective_timeout() const {
  return std::chrono::seconds(reply_.collective_timeout_seconds());
}

std::optional<TlsIdentity> Instance::data_identity() const {
  if (!reply_.hostio_tls()) {
    return std::nullopt;
  }
  return environment_.identity ? environment_.identity : identity_of_token(environment_.token);
}

Status Instance::run_replica(Communicator& communicator) {
  if (reply_.config().has_check()) {
    return check_job(communicator);
  }
  const bool first = communicator.self() == ReplicaId{0};
  POPRUN_ASSIGN(const Program program, share_program(communicator));
  POPRUN_TRY(check_memory(memory_touched(program), communicator.self(), &program));
  POPRUN_ASSIGN(const JobLength length, job_length(reply_.config(), reply_.dataset()));
  const HostWeights none;
  LauncherReporter reporter(client_);
  if (first) {
    proto::ReportItem item;
    *item.mutable_shape() = job_shape(program, reply_.config(), length);
    reporter.send(std::move(item));
  }
  const std::string source = log::replica_source(index_of(communicator.self()), host_);
  for (const std::string& variable : dropped_variables()) {
    log::write(log::Level::kWarning, source, fmt::format("{} is ignored: it would change the results", variable));
  }
  const proto::IpuMemory& most = fullest(program);
  log::write(log::Level::kInfo, source,
             fmt::format("one of {}, pid {}: {} of {}, {} of In-Processor Memory{}",
                         counted(communicator.size(), "replica"), ::getpid(), counted(length.steps, "step"),
                         program.model(), bytes_text(static_cast<std::int64_t>(most.peak())),
                         program.memory_size() > 1 ? " on the fullest IPU" : ""));
  LauncherCheckpoints checkpoints(client_, reply_.checkpoint_every_steps(), collective_timeout() / 4);
  LauncherState state(client_);
  const bool profiles = reply_.config().has_profile() && !reply_.config().inference();
  WallProfile wall_profile;
  const std::unique_ptr<StepTrace> trace = profiles ? profiling_trace(program, length, communicator, wall_profile)
                                                    : step_trace(program, length, communicator, reporter);
  Result<LoopResult> ran = run_loop(program, {.communicator = communicator,
                                              .progress = client_,
                                              .reporter = first ? &reporter : nullptr,
                                              .initial_weights = first ? compilation_.initial_weights() : none,
                                              .streams = streams_of(communicator.self()),
                                              .peer_stream =
                                                  [this, self = communicator.self()](ReplicaId peer, std::uint64_t at) {
                                                    return open_stream(self, peer, JobStream::kTrain, at);
                                                  },
                                              .watcher = trace.get(),
                                              .checkpoints = reply_.takes_checkpoints() ? &checkpoints : nullptr,
                                              .state = first ? &state : nullptr});
  if (trace != nullptr) {
    trace->flush();
  }
  POPRUN_ASSIGN(const LoopResult result, std::move(ran));
  log::write(log::Level::kInfo, source,
             fmt::format("{} done, wall {:.2f} s: operators {:.2f} s, exchange {:.2f} s, "
                         "host streams {:.2f} s",
                         counted(result.steps, "step"), result.training_seconds + result.evaluation_seconds,
                         result.wall.compute, result.wall.exchange, result.wall.host));
  POPRUN_TRY(finish_reports_of_all(communicator));
  // Replica 0 sends the profile, so the others need no device time.
  const proto::DeviceTime device = !first              ? proto::DeviceTime{}
                                   : timed_ != nullptr ? timed_->device_time(length)
                                                       : device_time(program, reply_.config(), length);
  POPRUN_ASSIGN(proto::Profile profile, make_profile(program, reply_.config(), length, result,
                                                     result.first_step_began - launched_at_, communicator, device));
  if (profiles) {
    POPRUN_ASSIGN(const std::vector<float> seconds, wall_profile.seconds(communicator));
    profile.mutable_wall()->mutable_step_seconds()->Assign(seconds.begin(), seconds.end());
  }
  if (first) {
    (*profile.mutable_library_versions())["MPI"] = mpi_version();
    proto::ReportItem item;
    *item.mutable_profile() = std::move(profile);
    reporter.send(std::move(item));
    POPRUN_TRY(reporter.status());
    POPRUN_TRY(client_.finish());
  }
  // No replica leaves before the results are safe: an early exit would look like a failure.
  POPRUN_ASSIGN(const std::vector<std::uint64_t> last_steps,
                of_all(checkpoints.last_step(), communicator, "last checkpoints"));
  client_.progress(communicator.self(), result.steps, "finishing");
  checkpoints.settle(last_steps, result.drained ? kLastCheckpointMax : std::chrono::seconds(0));
  return {};
}

StreamFactory Instance::streams_of(ReplicaId self) {
  return [this, self](JobStream stream, std::uint64_t first) { return open_stream(self, self, stream, first); };
}

Status Instance::check_job(Communicator& communicator) {
  const ReplicaId self = communicator.self();
  const HostWeights none;
  LauncherReporter reporter(client_);
  POPRUN_ASSIGN(TrainingOptions options, training_options(reply_.config(), reply_.dataset()));
  options.total_steps = reply_.config().check().steps();
  options.evaluation_batches = std::min(options.evaluation_batches, kCheckedBatches);
  POPRUN_TRY(run_check({.communicator = communicator,
                        .progress = client_,
                        .streams = streams_of(self),
                        .initial_weights = self == ReplicaId{0} ? compilation_.initial_weights() : none,
                        .check_host = [this, self](Bytes more) { return check_memory(more, self); },
                        .certifies = reply_.config().check().certifies(),
                        .sharding_group = reply_.config().memory().sharding_group(),
                        .variants = [this] { return compilation_.variants(); },
                        .compile = [this](const Variant& variant) { return compilation_.variant(variant); },
                        .report =
                            [&](proto::ReportItem item) {
                              if (item.has_check_plan() && reply_.config().check().certifies()) {
                                add_circumstances(*item.mutable_check_plan());
                              }
                              reporter.send(std::move(item));
                            }},
                       options));
  if (self == ReplicaId{0}) {
    POPRUN_TRY(reporter.status());
    POPRUN_TRY(client_.finish());
  }
  return communicator.barrier();
}

void Instance::add_circumstances(proto::CheckPlan& plan) const {
  const Numerics numerics = numerics_here();
  plan.mutable_arithmetic()->mutable_cpu_isas()->Assign(numerics.cpu_isas.begin(), numerics.cpu_isas.end());
  plan.mutable_arithmetic()->set_onednn_version(numerics.onednn_version);
  plan.mutable_arithmetic()->set_libm_digest(fmt::format("{:016x}", numerics.libm_digest));
  *plan.mutable_dataset() = reply_.dataset();
}

Status Instance::check_memory(Bytes each, ReplicaId self, const Program* program) const {
  const auto& hosts = reply_.config().topology().instance_host();
  const auto mine = hosts.begin() + static_cast<std::ptrdiff_t>(environment_.instance);
  const bool speaks = index_of(self) == environment_.first_replica && std::find(hosts.begin(), mine, *mine) == mine;
  const std::optional<FreeMemory> memory = speaks ? free_memory() : std::nullopt;
  if (!memory) {
    return {};
  }
  const std::uint32_t replicas =
      static_cast<std::uint32_t>(std::count(mine, hosts.end(), *mine)) * environment_.local_replicas;
  const proto::RunConfig& config = reply_.config();
  Bytes copies{0};
  const bool stores = program != nullptr && reply_.takes_checkpoints();
  for (std::uint32_t r = index_of(self); stores && r < index_of(self) + replicas; ++r) {
    const TrainingState state(*program, r, config.topology().num_replicas(), config.memory().sharding_group());
    copies += Bytes{static_cast<std::int64_t>(state.bytes())};
  }
  const bool shares = program != nullptr && !program->memory(0).has_layout() && shares_images(config) &&
                      !config.memory().poison_dead();  // Poison fills all bytes that a separate copy would have.
  return check_host_memory(*memory, *mine, replicas, each, copies, shares ? memory_shared(*program) : Bytes{0});
}

Result<Program> Instance::share_program(Communicator& communicator) {
  std::string bytes;
  if (communicator.self() == ReplicaId{0}) {
    waiting_for_program_ = &communicator;
    POPRUN_ASSIGN(Program program, compilation_.job());
    POPRUN_ASSIGN(timed_, compilation_.timed_job());
    if (timed_ != nullptr) {
      *program.add_notes() = to_proto(timed_->note(communicator.size()));
    }
    bytes = program.SerializeAsString();
    POPRUN_TRY(share_bytes(bytes, ReplicaId{0}, communicator, "the Program"));
  } else {
    client_.progress(communicator.self(), 0, "waiting for the Program from replica 0");
    while (bytes.empty()) {
      POPRUN_TRY(share_bytes(bytes, ReplicaId{0}, communicator, "the Program"));
    }
  }
  Program program;
  if (!program.ParseFromString(bytes)) {
    return fail(ErrorCode::kBug, fmt::format("the Program of {} B cannot be parsed", bytes.size()));
  }
  return program;
}

void Instance::tell_of_compilation() {
  ++compilations_;
  client_.progress(ReplicaId{0}, 0,
                   compilations_ == 1 ? "compiling the Program"
                                      : fmt::format("compiling the Program, compilation {}", compilations_));
  if (waiting_for_program_ != nullptr) {
    std::string none;
    (void)share_bytes(none, ReplicaId{0}, *waiting_for_program_, "the Program");
  }
}

Result<LoopResult> Instance::run_loop(const Program& program, const LoopPorts& ports) {
  const proto::RunConfig& config = reply_.config();
  // Only replica 0 has the Program that is timed, and reports the device clock.
  const TimedJob* timed = ports.reporter != nullptr ? timed_.get() : nullptr;
  VirtualPod pod = timed == nullptr ? virtual_pod(program, config) : virtual_pod(timed->program(), timed->config());
  const auto clock = [&pod](std::string_view function, std::uint64_t step) { return pod.time_of(function, step); };
  const bool needs_pod = timed != nullptr || (ports.reporter != nullptr && config.has_what_if());
  if (!config.inference()) {
    POPRUN_ASSIGN(TrainingOptions options, training_options(config, reply_.dataset()));
    if (needs_pod) {
      options.engine.clock = clock;
    }
    if (reply_.has_resume()) {
      options.resume = reply_.resume();
    }
    return TrainingLoop(program, options, ports).run();
  }
  POPRUN_ASSIGN(const std::unique_ptr<Outfeed> outfeed, open_outfeed(ports.communicator.self()));
  EngineOptions options = inference_options(config);
  if (needs_pod) {
    options.clock = clock;
  }
  return InferenceLoop(program, options, ports, *outfeed).run();
}

std::unique_ptr<HostStream> Instance::open_stream(ReplicaId self, ReplicaId of, JobStream stream, std::uint64_t first) {
  return hostio::open_host_stream({.address = reply_.hostio_address(),
                                   .token = environment_.token,
                                   .identity = data_identity_,
                                   .selection = selection_of(reply_.config(), reply_.dataset(), stream, index_of(of)),
                                   .first_sequence = first,
                                   .prefetch_batches = reply_.config().data().prefetch_batches(),
                                   .timeout = std::chrono::seconds(reply_.hostio_timeout_seconds()),
                                   .log_source = log::replica_source(index_of(self), host_),
                                   .on_wait = [this, self](bool waits) { client_.waits_for_data(self, waits); },
                                   .on_loading = [this, self](unsigned percent) { client_.data_loads(self, percent); },
                                   .is_needed = [this, self] { return !client_.stops(self); }});
}

Result<std::unique_ptr<Outfeed>> Instance::open_outfeed(ReplicaId self) {
  const std::uint64_t items = inference_items(reply_.dataset());
  POPRUN_ASSIGN(
      const hostio::Sampler sampler,
      hostio::Sampler::make(selection_of(reply_.config(), reply_.dataset(), JobStream::kTest, index_of(self)), items));
  return std::make_unique<LauncherOutfeed>(
      client_, [sampler](std::uint64_t batch, std::span<std::uint64_t> into) { return sampler.items_of(batch, into); },
      items);
}

std::unique_ptr<StepTrace> Instance::step_trace(const Program& program, const JobLength& length,
                                                const Communicator& communicator, LauncherReporter& reporter) const {
  const proto::ReportConfig& config = reply_.config().report();
  const std::uint64_t last = std::min(config.trace_last(), length.steps);
  if (config.trace_first() == 0 || config.trace_first() > last) {
    return nullptr;
  }
  const auto send = [&reporter](proto::TracedSteps traced) {
    proto::ReportItem item;
    *item.mutable_traced() = std::move(traced);
    reporter.send(std::move(item));
  };
  if (communicator.self() == ReplicaId{0}) {
    proto::TracedSteps names;
    *names.mutable_program() = step_report(program, std::string(name_of(JobFunction::kTrain)), kTraceBarsMax);
    if (names.ByteSizeLong() > kTraceProgramBytesMax) {
      names.mutable_program()->clear_functions();  // The launcher then names steps by their numbers.
    }
    send(std::move(names));
  }
  const StepTrace::Setup setup{
      .replica = index_of(communicator.self()),
      .replicas = static_cast<std::uint32_t>(communicator.size()),
      .first = config.trace_first(),
      .last = last,
      .slices_max = std::min(kRunSlicesMax / communicator.size() / (last - config.trace_first() + 1), kStepSlicesMax),
  };
  return std::make_unique<StepTrace>(program, setup, send);
}

std::unique_ptr<StepTrace> Instance::profiling_trace(const Program& program, const JobLength& length,
                                                     const Communicator& communicator, WallProfile& profile) {
  const StepTrace::Setup setup{
      .replica = index_of(communicator.self()),
      .replicas = static_cast<std::uint32_t>(communicator.size()),
      .first = length.steps > 1 ? 2U : 1U,  // The first step touches all memory.
      .last = length.steps,
      .slices_max = std::numeric_limits<std::uint64_t>::max(),
  };
  return std::make_unique<StepTrace>(program, setup, [&](const proto::TracedSteps& traced) { profile.add(traced); });
}

Status Instance::finish_reports_of_all(Communicator& communicator) {
  if (!reply_.config().inference() && reply_.config().report().trace_first() == 0) {
    return {};
  }
  POPRUN_TRY(communicator.barrier());
  const bool last_word = environment_.first_replica != 0 && index_of(communicator.self()) == environment_.first_replica;
  return last_word ? client_.finish() : Status{};
}

}  // namespace poprun
