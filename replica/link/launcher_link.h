#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"
#include "replica/base/units.h"
#include "replica/ports/reporter.h"

/// An instance's connection to the launcher.
///
///   connect -> join -> [heartbeat begins] -> receive_weights? -> report ... -> finish -> leave
///                                                  \-> fail, from anywhere, on an error
namespace poprun {

class DrainGate;
struct CoordinatorConnection;
class Heartbeat;
class ProgressBoard;
class ReportStream;

/// The place of this instance in the job, from the environment variables that poprun-emu and poprun set.
struct InstanceEnvironment {
  std::string coordinator;           ///< host:port, from POPRUN_EMU_COORDINATOR=host:port/epoch.
  std::string token;                 ///< POPRUN_EMU_TOKEN; empty if the job has none.
  std::uint32_t instance = 0;        ///< POPDIST_REPLICA_INDEX_OFFSET / POPDIST_NUM_LOCAL_REPLICAS.
  std::uint32_t first_replica = 0;   ///< POPDIST_REPLICA_INDEX_OFFSET.
  std::uint32_t local_replicas = 1;  ///< POPDIST_NUM_LOCAL_REPLICAS.
  /// From POPRUN_EMU_TLS: "off", "token" or the user's identity (to_line). If it is not set, plain text is used.
  std::optional<TlsIdentity> identity{};
  std::uint64_t epoch = 0;  ///< Number of the attempt, counted over all jobs with the same output folder.
};

std::string machine_name();

struct OnnxFile {
  std::string name;
  std::string bytes;
};

/// Reads these variables. Errors: kUsage if one is missing or not a number, because poprun-emu did not start the
/// program.
Result<InstanceEnvironment> read_instance_environment();

/// An instance's client of the launcher. Call `join`, `receive_...`, `finish` and `leave` from one thread; all other
/// functions are thread-safe after `join`. `progress` costs about 50 ns and uses no lock that another replica uses.
class CoordinatorClient final : public ProgressSink {
 public:
  using OnLost = std::function<void()>;
  using OnChunk = std::function<Status(const proto::TensorChunk&)>;

  /// The constructor does not connect yet. `on_lost` is called once, from another thread, when heartbeats no longer
  /// reach the launcher (it died, or the link is cut), or by `join` if the job has already ended. The process should
  /// then exit with code 75, since nothing else will end it. `on_lost` is not called after `leave`.
  CoordinatorClient(const InstanceEnvironment& environment, OnLost on_lost);
  ~CoordinatorClient() override;

  /// Tells the launcher where this instance runs and gets the job. Waits for the answer, which arrives when the dataset
  /// is known, and then starts the heartbeat. `request` contains the fields that determine the bits of results; `join`
  /// fills in the rest. Errors: kUnreachable if there is no connection within 30 s, or no answer in `timeout_seconds`
  /// (the message names the address); kInfrastructure, with the launcher's message, if the launcher refused.
  Result<proto::JoinReply> join(double timeout_seconds, proto::JoinRequest request = {});

  void progress(ReplicaId replica, std::uint64_t step, std::string_view activity) override;
  void operators(ReplicaId replica, std::uint64_t steps, double seconds) override;
  void begin_parts(ReplicaId replica, std::uint64_t parts) override;
  [[nodiscard]] bool begin_part(ReplicaId replica) override;
  /// Returns whether the launcher has announced that the job stops before the replica's next part.
  [[nodiscard]] bool stops(ReplicaId replica) const;

  /// Records that the replica begins or ends a wait for its data server. The other replicas learn of a wait of more
  /// than a second through the launcher, within two heartbeats.
  void waits_for_data(ReplicaId replica, bool waits);
  /// Records the percentage of the dataset that the data server has loaded, while the replica is waiting for it.
  void data_loads(ReplicaId replica, unsigned percent);

  /// Returns the time at which a replica of the job last waited for its data server, as far as this instance knows, or
  /// the clock's epoch if none ever did. The other replicas, which wait for that replica, must be patient.
  [[nodiscard]] std::chrono::steady_clock::time_point last_excuse() const;

  /// Returns the step after which the launcher wants a checkpoint, by its latest request, or 0 if it has not made one.
  [[nodiscard]] std::uint64_t checkpoint_after() const;

  [[nodiscard]] const CoordinatorConnection& connection() const { return *connection_; }

  /// Passes the initial weights to `on_chunk`, chunk by chunk, with tensors in the launcher's order. Stops at the first
  /// error of `on_chunk` and returns it. Errors: kInfrastructure if the launcher went away.
  Status receive_weights(const OnChunk& on_chunk);

  /// Returns the job's ONNX model. Requires: the job has one. Errors: kInfrastructure if the launcher went away before
  /// it had sent the whole model.
  Result<OnnxFile> receive_model();

  /// Queues one item for the launcher; items are sent in order. Every instance reports outputs, but only replica 0's
  /// instance reports other items. Returns immediately if less than 16 MiB are queued, otherwise when there is room, or
  /// after 60 s. Errors: kInfrastructure, with the launcher's message if any, if the launcher went away, accepts
  /// nothing or cannot write its files.
  Status report(proto::ReportItem item);

  /// Waits until the launcher has received all reports, whether or not it has written them. Errors: those of `report`.
  Status finish();

  /// Reports why this instance is about to exit, and the last collectives of the failed replica. Returns when the
  /// launcher has decided how the job ends and releases the instance. The wait is needed because the exit makes mpirun
  /// end all other instances, which may have errors of their own to report first. The call never fails: it returns
  /// immediately if the launcher is gone, and after 600 s, with a line in the log, if the launcher does not answer.
  void fail(ReplicaId replica, const Error& error, const std::vector<std::string>& recent_calls);

  /// Ends the heartbeat in a way that the launcher recognises as orderly. Waits at most 2 s.
  void leave();

 private:
  InstanceEnvironment environment_;
  OnLost on_lost_;
  std::unique_ptr<CoordinatorConnection> connection_;
  std::unique_ptr<ProgressBoard> board_;
  std::unique_ptr<DrainGate> gate_;
  std::unique_ptr<Heartbeat> heartbeat_;   ///< Set by join.
  std::mutex reports_mutex_;               ///< For the first report, which several replicas may make at the same time.
  std::unique_ptr<ReportStream> reports_;  ///< Set by the first report.
};

}  // namespace poprun
