#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/check/check.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/timed_job.h"
#include "replica/instance/compilation.h"
#include "replica/link/launcher_link.h"
#include "replica/link/launcher_ports.h"
#include "replica/loops/host_streams.h"
#include "replica/loops/loop.h"
#include "replica/loops/step_trace.h"
#include "replica/loops/wall_profile.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// Reports the error to the launcher and ends the process when released: MPI_Finalize would wait for the other
/// instances.
[[noreturn]] void leave(CoordinatorClient& client, ReplicaId self, const Error& error,
                        const std::vector<std::string>& recent_calls = {});

/// An instance of a job after it has joined: compiles or receives the Program, and runs its replicas, one thread each.
class Instance {
 public:
  Instance(const InstanceEnvironment& environment, CoordinatorClient& client, proto::JoinReply reply, double joined_at);

  Status run();

  /// Ends the process, including its other replicas, which wait for the failed one. Only the first caller's error
  /// counts.
  [[noreturn]] void leave_with(ReplicaId self, const Error& error, const std::vector<std::string>& recent_calls);

 private:
  [[nodiscard]] std::chrono::milliseconds collective_timeout() const;

  /// Returns the identity for the data server, which may be beyond loopback even if the launcher is not.
  [[nodiscard]] std::optional<TlsIdentity> data_identity() const;

  Status run_replica(Communicator& communicator);

  StreamFactory streams_of(ReplicaId self);

  Status check_job(Communicator& communicator);

  /// Adds what determines the bits of results besides the job.
  void add_circumstances(proto::CheckPlan& plan) const;

  /// Checks a host's memory, on the first replica of that host. No replica touches an arena before all hosts have
  /// passed this check. `program` is the one that the job trains with, whose state is shared and stored.
  Status check_memory(Bytes each, ReplicaId self, const Program* program = nullptr) const;

  /// Compiles on replica 0 and sends the same bytes to all replicas. An empty message means that replica 0 is still
  /// searching for remedies, so each wait covers one compilation.
  Result<Program> share_program(Communicator& communicator);

  /// Tells waiting replicas that replica 0 is compiling again. Errors are reported by the next exchange.
  void tell_of_compilation();

  Result<LoopResult> run_loop(const Program& program, const LoopPorts& ports);

  std::unique_ptr<HostStream> open_stream(ReplicaId self, ReplicaId of, JobStream stream, std::uint64_t first);

  Result<std::unique_ptr<Outfeed>> open_outfeed(ReplicaId self);

  /// Returns the trace that the configuration asks for, or null if the job has none of its steps. On replica 0, also
  /// sends what names and draws the Program's steps. `program` and `reporter` must outlive the trace.
  std::unique_ptr<StepTrace> step_trace(const Program& program, const JobLength& length,
                                        const Communicator& communicator, LauncherReporter& reporter) const;

  /// Returns a trace of all steps except the first, if there are several, that adds to `profile`.
  static std::unique_ptr<StepTrace> profiling_trace(const Program& program, const JobLength& length,
                                                    const Communicator& communicator, WallProfile& profile);

  /// Sends the outputs or traces of all replicas to the launcher before replica 0 sends the profile, which ends the
  /// report. Replica 0's instance finishes its report with the profile; make_profile waits for all other replicas
  /// first.
  Status finish_reports_of_all(Communicator& communicator);

  const InstanceEnvironment& environment_;
  CoordinatorClient& client_;
  proto::JoinReply reply_;
  Compilation compilation_;                      ///< Used by replica 0 only.
  std::unique_ptr<TimedJob> timed_;              ///< Used by replica 0 only; null if the device clock is the Program's.
  std::size_t compilations_ = 0;                 ///< Used by replica 0 only.
  Communicator* waiting_for_program_ = nullptr;  ///< Shared with waiting replicas; used by replica 0 only.
  std::optional<TlsIdentity> data_identity_;     ///< Empty for plain text.
  double launched_at_;                           ///< Start of the launcher, on this process's steady clock.
  std::string host_;
};

}  // namespace poprun
