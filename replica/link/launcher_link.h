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

/// An instance's line to the launcher.
///
///   connect -> join -> [heartbeat begins] -> receive_weights? -> report ... -> finish -> leave
///                                                  \-> fail, wherever something goes wrong
namespace poprun {

class DrainGate;
struct CoordinatorConnection;
class Heartbeat;
class ProgressBoard;
class ReportStream;

/// Where this instance stands, from the variables that poprun-emu and poprun set.
struct InstanceEnvironment {
  std::string coordinator;           ///< POPRUN_EMU_COORDINATOR, host:port.
  std::string token;                 ///< POPRUN_EMU_TOKEN; empty if the job has none.
  std::uint32_t instance = 0;        ///< POPDIST_REPLICA_INDEX_OFFSET / POPDIST_NUM_LOCAL_REPLICAS.
  std::uint32_t first_replica = 0;   ///< POPDIST_REPLICA_INDEX_OFFSET.
  std::uint32_t local_replicas = 1;  ///< POPDIST_NUM_LOCAL_REPLICAS.
  /// POPRUN_EMU_TLS: "off", "token" or that of the user (to_line). Without one: plain text.
  std::optional<TlsIdentity> identity{};
};

/// Returns the kernel's name of this host.
std::string machine_name();

/// An ONNX model as its file has it.
struct OnnxFile {
  std::string name;
  std::string bytes;
};

/// Errors
///   kUsage  a variable is missing or no number: the program was not started by poprun-emu.
Result<InstanceEnvironment> read_instance_environment();

/// `join`, `receive_...`, `finish` and `leave` belong to one thread; the rest is thread-safe once `join` returned.
/// Progress costs about 50 ns and takes no lock that another replica takes.
class CoordinatorClient final : public ProgressSink {
 public:
  using OnLost = std::function<void()>;
  using OnChunk = std::function<Status(const proto::TensorChunk&)>;

  /// Does not connect yet. `on_lost` is called once, from another thread, when heartbeats can't reach the launcher any
  /// more (it died, or the link is cut), or by `join` when the job ended before it; the process should then leave with
  /// code 75, for nobody else will end it. Not called after `leave`.
  CoordinatorClient(const InstanceEnvironment& environment, OnLost on_lost);
  ~CoordinatorClient() override;

  /// Says where this instance runs and gets the job. Waits for the launcher's answer, which comes when the dataset is
  /// known. The heartbeat begins with it. `request` has what the instance computes with; the rest of it is filled in.
  ///
  /// Errors
  ///   kUnreachable     no connection within 30 s, or no answer in `timeout_seconds`; names the
  ///                    address.
  ///   kInfrastructure  the launcher refused; its message.
  Result<proto::JoinReply> join(double timeout_seconds, proto::JoinRequest request = {});

  void progress(ReplicaId replica, std::uint64_t step, std::string_view activity) override;
  void operators(ReplicaId replica, std::uint64_t steps, double seconds) override;
  void begin_parts(ReplicaId replica, std::uint64_t parts) override;
  [[nodiscard]] bool begin_part(ReplicaId replica) override;
  /// Whether the launcher said that the job stops before the replica's next part.
  [[nodiscard]] bool stops(ReplicaId replica) const;

  /// The replica begins to wait for its data server, or has what it waited for. The others learn of it through the
  /// launcher, within two heartbeats once it has waited for a second.
  void waits_for_data(ReplicaId replica, bool waits);
  /// The data server has made progress with the dataset that the replica waits for.
  void data_loads(ReplicaId replica, unsigned percent);

  /// When a replica of the job last waited for its data server, as far as that is known here: who waits for it in turn
  /// has to be patient. The clock's beginning where none ever did.
  [[nodiscard]] std::chrono::steady_clock::time_point last_excuse() const;

  /// The step after which the launcher asked for a checkpoint last; 0 if it has not asked.
  [[nodiscard]] std::uint64_t checkpoint_after() const;

  /// For calls of their own.
  [[nodiscard]] const CoordinatorConnection& connection() const { return *connection_; }

  /// The initial weights, chunk by chunk, tensors in the launcher's order. No call where the job has none. Stops at the
  /// first error of `on_chunk` and returns it.
  ///
  /// Errors
  ///   kInfrastructure  the launcher went away.
  Status receive_weights(const OnChunk& on_chunk);

  /// The job's ONNX model. Requires: the job has one.
  ///
  /// Errors
  ///   kInfrastructure  the launcher went away before it was complete.
  Result<OnnxFile> receive_model();

  /// Queues one item for the launcher, in order: outputs from every instance, all else from that of replica 0. Returns
  /// at once while less than 16 MiB wait, otherwise when there is room again, at the latest after 60 s.
  ///
  /// Errors
  ///   kInfrastructure  the launcher went away, takes nothing, or can't write its files; its
  ///   message.
  Status report(proto::ReportItem item);

  /// Waits until the launcher has everything that was reported; its disk is its own affair. Nothing if nothing was
  /// reported. Errors as `report`.
  Status finish();

  /// Why this instance is about to exit, and the last collectives of the replica that failed. Returns when the launcher
  /// lets the instance go, having decided how the job ends: the exit makes mpirun end all others, and until then these
  /// may have something to tell. Never fails, for there would be nobody left to tell: returns at once where the
  /// launcher is gone, and after 600 s, with a line in the log, where it does not answer.
  void fail(ReplicaId replica, const Error& error, const std::vector<std::string>& recent_calls);

  /// Ends the heartbeat so that the launcher knows it as an orderly end. Waits 2 s at most.
  void leave();

 private:
  InstanceEnvironment environment_;
  OnLost on_lost_;
  std::unique_ptr<CoordinatorConnection> connection_;
  std::unique_ptr<ProgressBoard> board_;
  std::unique_ptr<DrainGate> gate_;
  std::unique_ptr<Heartbeat> heartbeat_;   ///< From join on.
  std::mutex reports_mutex_;               ///< For the first report: replicas of the instance may race to it.
  std::unique_ptr<ReportStream> reports_;  ///< From the first report on.
};

}  // namespace poprun
