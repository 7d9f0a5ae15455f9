#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/placement.h"
#include "launcher/tagged_lines.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// What the launcher knows of the instances, from their own words. Pure bookkeeping: time comes in
/// as seconds of one clock, nothing is started or stopped here.
namespace poprun::launcher {

struct ReplicaView {
  std::uint64_t step = 0;
  std::string activity;
  double since = 0;  ///< When the activity began.
};

/// An instance is expected, then joined, then gone: in order, or lost.
struct InstanceView {
  std::string host;       ///< Where it was placed; what it says itself once joined.
  std::uint32_t pid = 0;  ///< On that host; 0 until joined.
  bool joined = false;
  bool left = false;  ///< It ended its life signs itself.
  bool lost = false;  ///< Its life signs broke off.
  double last_sign = 0;
  std::vector<ReplicaView> replicas;
};

/// Why a job ends badly: the code, the first line, and what to say after it.
struct Verdict {
  int exit_code = 0;
  std::string first_line;
  std::vector<std::string> more;
  std::optional<std::uint32_t> instance;  ///< The one to blame.
};

class JobState {
 public:
  JobState(const Placement& placement, std::string log_folder, double now);

  /// Errors
  ///   kUnreachable  no such instance, one that is there already, or another version.
  Status join(const proto::JoinRequest& request, double now);
  void beat(const proto::Beat& beat, double now);
  void leave(std::uint32_t instance, bool orderly);
  void failure(const proto::Failure& failure);
  void rank_end(const RankEnd& end) { rank_end_ = end; }
  /// The launcher itself slept (Ctrl-Z, a blocked terminal): nobody was silent meanwhile.
  void forgive_silence(double now);

  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] std::span<const InstanceView> instances() const { return instances_; }
  [[nodiscard]] bool all_joined() const;
  [[nodiscard]] bool all_left() const;
  [[nodiscard]] bool any_trouble() const { return !failures_.empty() || first_lost_ || rank_end_; }
  /// The highest step any replica has done.
  [[nodiscard]] std::uint64_t step() const;

  /// The instance that gave no life sign for `timeout` seconds, the longest silent first.
  [[nodiscard]] std::optional<std::uint32_t> silent(double now, double timeout) const;

  /// `replica 5 (instance 5, host node1, pid 4711)`.
  [[nodiscard]] std::string describe(std::uint32_t instance) const;

  /// The first cause among what was told so far: an instance's own reason, else what mpirun
  /// noticed, else a broken life sign. Nothing while there is no trouble.
  [[nodiscard]] std::optional<Verdict> verdict(double now) const;

  /// The verdict over an instance that stopped giving life signs.
  [[nodiscard]] Verdict silence_verdict(std::uint32_t instance, double now) const;

  /// The verdict over instances that never joined.
  [[nodiscard]] Verdict absence_verdict(double waited_seconds) const;

  /// What the other instances did: one line a group of replicas with the same step and activity.
  [[nodiscard]] std::vector<std::string> meanwhile(std::optional<std::uint32_t> except,
                                                   double now) const;

 private:
  [[nodiscard]] std::string where(std::uint32_t instance) const;
  [[nodiscard]] std::string last_lines(std::uint32_t instance) const;
  [[nodiscard]] Verdict told_verdict(const proto::Failure& failure) const;

  Placement placement_;
  std::string log_folder_;
  std::vector<InstanceView> instances_;
  std::vector<proto::Failure> failures_;  ///< In order of arrival.
  std::optional<std::uint32_t> first_lost_;
  std::optional<RankEnd> rank_end_;
};

/// `replica-05.log`: enough digits that names sort.
std::string replica_log_name(std::uint32_t replica, std::uint32_t replicas);

/// `0-4, 6` from rising numbers.
std::string number_ranges(std::span<const std::uint32_t> numbers);

}  // namespace poprun::launcher
