#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/mpi/tagged_lines.h"
#include "launcher/placement/placement.h"
#include "launcher/verdict/packet_loss.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

struct ReplicaView {
  std::uint64_t step = 0;                          ///< Training steps completed.
  std::string activity = {};                       ///< Current activity; empty before the first heartbeat.
  double since = 0;                                ///< Time at which the activity began.
  double data_wait = 0;                            ///< Seconds of waiting for the data server, at the last heartbeat.
  double data_silence = 0;                         ///< Seconds of `data_wait` during which the server made no progress.
  std::optional<std::uint32_t> data_percent = {};  ///< Progress of the data server while it reads.
  bool is_last = false;                            ///< Reported when the replica failed, so this state is final.
};

/// An instance is first expected, then joined, and finally gone, because it has left or is lost.
struct InstanceView {
  std::string host;       ///< Name from the placement; once joined, the name that the instance reports.
  std::uint32_t pid = 0;  ///< Process id on that host; 0 until joined.
  bool joined = false;
  bool left = false;     ///< The instance itself ended its heartbeats.
  bool lost = false;     ///< Its heartbeat connection broke without notice.
  bool overdue = false;  ///< The instance had not joined when the deadline passed.
  double last_sign = 0;
  std::vector<ReplicaView> replicas;
};

/// Records what the launcher learns about the instances from their messages and from mpirun. All times are in seconds
/// of one clock. This class starts and stops nothing; the functions in post_mortem.h draw the conclusions.
class JobState {
 public:
  /// `cpu_isa` is the instruction set that all instances must use. If it is empty, they must all use the same one.
  JobState(const Placement& placement, double now, std::string cpu_isa = {});

  /// Errors
  ///   kUnreachable    the instance is unknown, has already joined, or has a different version.
  ///   kHostResources  the instance's results would differ from the first one's, or it does not use --cpu-isa.
  Status join(const proto::JoinRequest& request, double now);
  /// Records a heartbeat. After trouble starts, ignores heartbeats of instances that were already silent.
  void beat(const proto::Beat& beat, double now);
  void leave(std::uint32_t instance, bool orderly);
  void failure(const proto::Failure& failure, double now);
  void mpirun_found(const MpirunFindings& findings) { mpirun_ = findings; }
  /// Records that `hosts`, spelled as given by the user, do not answer (find_silent_hosts).
  void hosts_do_not_answer(std::vector<std::string> hosts) { silent_hosts_ = std::move(hosts); }
  /// Discards the silence so far, because the launcher itself was suspended (Ctrl-Z, or the machine slept).
  void forgive_silence(double now);
  /// Marks the instances that have not joined yet as overdue.
  void end_joining();

  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] std::span<const InstanceView> instances() const { return instances_; }
  /// Returns the reasons that instances gave before they exited, in order of arrival.
  [[nodiscard]] std::span<const proto::Failure> failures() const { return failures_; }
  /// Returns the first instance whose heartbeats broke off before it gave a reason.
  [[nodiscard]] std::optional<std::uint32_t> first_lost() const { return first_lost_; }
  [[nodiscard]] const MpirunFindings& mpirun() const { return mpirun_; }
  [[nodiscard]] std::span<const std::string> silent_hosts() const { return silent_hosts_; }
  [[nodiscard]] const PacketLosses& losses() const { return losses_; }

  [[nodiscard]] bool all_joined() const;
  [[nodiscard]] bool all_left() const;
  [[nodiscard]] bool any_trouble() const { return !failures_.empty() || first_lost_ || mpirun_ != MpirunFindings{}; }
  /// Returns the highest step that any replica has completed.
  [[nodiscard]] std::uint64_t step() const;

  /// Returns the time of the last heartbeat from the joined instance that has been silent longest.
  [[nodiscard]] std::optional<double> oldest_heartbeat() const;
  /// Returns the joined instances that have sent no heartbeat for `timeout` seconds.
  [[nodiscard]] std::vector<std::uint32_t> silent(double now, double timeout) const;

  /// Returns the replicas that, at their last heartbeats, had waited for the data server for at least `least` seconds.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for_data(double least) const;
  [[nodiscard]] double longest_data_wait() const;
  [[nodiscard]] double longest_data_silence() const;
  [[nodiscard]] std::optional<std::uint32_t> data_percent() const;

 private:
  [[nodiscard]] double longest_of(double ReplicaView::*seconds) const;

  Placement placement_;
  std::vector<InstanceView> instances_;
  std::vector<proto::Failure> failures_;
  std::optional<std::uint32_t> first_lost_;
  MpirunFindings mpirun_;
  std::vector<std::string> silent_hosts_;
  PacketLosses losses_;
  std::string cpu_isa_;
  std::optional<proto::JoinRequest> first_to_join_;
};

/// Decides where a job that was asked to drain stops: before the first part (a micro-batch, or a batch of an
/// evaluation) that no replica has begun. This class only records messages from instances.
class DrainPoint {
 public:
  explicit DrainPoint(std::uint32_t instances) : instances_(instances) {}

  void beat(const proto::Beat& beat);
  /// Records that the instance has ended its heartbeats and therefore begins no further part.
  void left(std::uint32_t instance);

  /// Once every instance is on hold or has left, returns the last part that any replica begins. Later calls return
  /// nothing.
  std::optional<std::uint64_t> last_part();

 private:
  struct Instance {
    bool settled = false;     ///< The instance is on hold, or has left.
    std::uint64_t parts = 0;  ///< Parts begun by the replica that is furthest ahead.
  };
  std::vector<Instance> instances_;
  bool told_ = false;
};

}  // namespace poprun::launcher
