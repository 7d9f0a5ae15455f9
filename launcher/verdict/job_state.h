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
  std::uint64_t step = 0;     ///< Training steps completed.
  std::string activity = {};  ///< What it does now; empty before its first heartbeat.
  double since = 0;           ///< When the activity began.
  double data_wait = 0;       ///< For how long it had waited for the data server at its heartbeat,
  double data_silence = 0;    ///< without the server getting on with reading the dataset.
  /// How far the server is, if it reads the dataset.
  std::optional<std::uint32_t> data_percent = {};
  bool is_last = false;  ///< It said so as it failed: nothing came after it.
};

/// An instance is expected, then joined, then gone: it left, or it is lost.
struct InstanceView {
  std::string host;       ///< Where it was placed; what it says itself once joined.
  std::uint32_t pid = 0;  ///< On that host; 0 until joined.
  bool joined = false;
  bool left = false;     ///< It ended its heartbeats itself.
  bool lost = false;     ///< Its heartbeats broke off.
  bool overdue = false;  ///< Its time to join was over before it had joined.
  double last_sign = 0;
  std::vector<ReplicaView> replicas;
};

/// What the launcher knows of the instances, from their own words and from mpirun. Pure
/// bookkeeping: time comes in as seconds of one clock, nothing is started or stopped here.
/// post_mortem.h draws the conclusions.
class JobState {
 public:
  /// `cpu_isa`: what all instances must compute with; empty: the same.
  JobState(const Placement& placement, double now, std::string cpu_isa = {});

  /// Errors
  ///   kUnreachable    no such instance, one that is there already, or another version.
  ///   kHostResources  it would compute with other bits than the first that joined, or cannot
  ///   compute
  ///                   with --cpu-isa.
  Status join(const proto::JoinRequest& request, double now);
  /// Once there is trouble it counts only from who had not been silent before it.
  void beat(const proto::Beat& beat, double now);
  void leave(std::uint32_t instance, bool orderly);
  void failure(const proto::Failure& failure, double now);
  void mpirun_found(const MpirunFindings& findings) { mpirun_ = findings; }
  /// `hosts`, as they were given, do not answer (find_silent_hosts).
  void hosts_do_not_answer(std::vector<std::string> hosts) { silent_hosts_ = std::move(hosts); }
  /// The launcher itself slept (Ctrl-Z, the machine asleep): nobody was silent meanwhile.
  void forgive_silence(double now);
  /// Who has not joined by now does not come any more.
  void end_joining();

  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] std::span<const InstanceView> instances() const { return instances_; }
  /// Why instances said they would exit, in order of arrival.
  [[nodiscard]] std::span<const proto::Failure> failures() const { return failures_; }
  /// The instance whose heartbeats broke off first, of those that had not said why.
  [[nodiscard]] std::optional<std::uint32_t> first_lost() const { return first_lost_; }
  [[nodiscard]] const MpirunFindings& mpirun() const { return mpirun_; }
  [[nodiscard]] std::span<const std::string> silent_hosts() const { return silent_hosts_; }
  [[nodiscard]] const PacketLosses& losses() const { return losses_; }

  [[nodiscard]] bool all_joined() const;
  [[nodiscard]] bool all_left() const;
  [[nodiscard]] bool any_trouble() const {
    return !failures_.empty() || first_lost_ || mpirun_ != MpirunFindings{};
  }
  /// The highest step any replica has done.
  [[nodiscard]] std::uint64_t step() const;

  /// The last heartbeat of whoever of those that are there is silent for longest.
  [[nodiscard]] std::optional<double> oldest_heartbeat() const;
  /// The instances that sent no heartbeat for `timeout` seconds though they are there.
  [[nodiscard]] std::vector<std::uint32_t> silent(double now, double timeout) const;

  /// The replicas that had waited for the data server for `least` seconds at their last heartbeats.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for_data(double least) const;
  /// How long the one that waits longest had waited by then.
  [[nodiscard]] double longest_data_wait() const;
  /// How long one of them had waited at most without the server getting on.
  [[nodiscard]] double longest_data_silence() const;
  /// How far the data server is for one of them, if it reads the dataset.
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

}  // namespace poprun::launcher
