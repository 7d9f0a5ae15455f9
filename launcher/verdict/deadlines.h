#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace poprun::launcher {

/// Decides how long a job waits for each event, and what to do when the wait is over. This is a pure policy without a
/// clock or timer: the caller passes in all times, in seconds of one clock. The event loop reports what happened,
/// sleeps until `next`, and does what is `due`.
class Deadlines {
 public:
  /// Limits that the user can set, in seconds.
  struct Limits {
    double heartbeat_interval = 0;
    /// Longest time without a heartbeat. Also limits the time for mpirun to end after all instances have left, and the
    /// time between two joins, since mpirun starts all instances together.
    double heartbeat_timeout = 0;
    double join_timeout = 0;   ///< Time for all instances to join, from `started` on.
    double job_timeout = 0;    ///< Time for the whole job, from the launch on; 0: no limit.
    double drain_timeout = 0;  ///< Time for a drained job to stop and save; 0: no limit.
  };

  /// Kinds of trouble. They differ in how long the messages that explain them may take to arrive.
  enum class Trouble : std::uint8_t {
    kCause,      ///< The cause is known, so there is nothing to wait for.
    kOneSide,    ///< One replica's view of an exchange; another replica may report the cause.
    kDumps,      ///< A value is NaN or infinite; replica 0 may still send its dumps.
    kLostTouch,  ///< A heartbeat connection broke; mpirun may report how the process ended.
  };

  static Trouble trouble_of_failure(std::uint32_t exit_code, bool dumps_may_come);

  struct Facts {
    bool joining = false;                         ///< The dataset is known, but an instance has not joined yet.
    bool done = false;                            ///< The results are complete, and all instances have left.
    bool processes_run = false;                   ///< mpirun or the data server is running.
    std::optional<double> oldest_heartbeat = {};  ///< Time of the oldest of the instances' last heartbeats.
  };

  enum class Due : std::uint8_t {
    kNothing,
    kVerdict,     ///< There was trouble, and the wait for explanations is over.
    kSilence,     ///< An instance sent no heartbeat for too long.
    kAbsence,     ///< An instance did not join.
    kMpirunEnd,   ///< The job has finished, but mpirun is still running.
    kDrainEnd,    ///< A drained job has used up its time to stop and save.
    kRoomEnd,     ///< A full disk has not accepted the results in time.
    kJobTimeout,  ///< The job exceeded its time limit.
    kKill,        ///< While stopping: kill processes that did not end when asked. Stays due.
    kFinish,      ///< While stopping: all processes have ended, or the time is up.
  };

  /// Time during which the launcher itself did not run (Ctrl-Z, or the machine slept).
  struct Slept {
    double seconds = 0;
    bool excuses_silence = false;  ///< Late events are not the fault of the instances.
    bool is_worth_telling = false;
  };

  /// Longest wait for space on a full disk, for the results of a job that has finished.
  static constexpr double kRoomSeconds = 600;
  /// Longest wait for the next piece of replica 0's dumps.
  static constexpr double kDumpSeconds = 2;

  Deadlines(const Limits& limits, double launched_at);

  /// Records that mpirun was started. Before that, no instance could join and the loop did not run.
  void started(double now) { started_at_ = woke_at_ = now; }
  [[nodiscard]] double seconds_since_start(double now) const { return now - started_at_; }

  void trouble(Trouble kind, double now);
  /// Records a piece of a dump. A verdict that waits for dumps then waits for the next piece.
  void dump_came(double now);
  /// Returns whether any verdict had to wait for dumps.
  [[nodiscard]] bool awaits_dumps() const { return awaits_dumps_; }
  /// Records that the verdict on the trouble so far was given, or that the trouble proved harmless.
  void judged() { judge_at_.reset(); }
  void mpirun_line_held(double now) { line_held_at_ = now; }
  void joined(double now) { joined_at_ = now; }
  void left(double now) { left_at_ = now; }
  void draining(double now) { drained_at_ = now; }
  /// Records that the results cannot be written. Returns false, and changes nothing, if this was already known.
  bool no_room(double now);
  void results_written() { no_room_at_.reset(); }
  void stopping(double now) { stopping_since_ = now; }
  /// Records that the loop woke up, or that it is reading its clock before a verdict.
  Slept woke(double now);

  /// Returns the most urgent thing to do.
  [[nodiscard]] Due due(const Facts& facts, double now) const;

  /// Returns whether mpirun's own lines may be shown now. They are held back so that a root cause can come first.
  [[nodiscard]] bool shows_mpirun_lines(double now) const;

  /// Returns the time at which to wake: the first deadline after `now`, but at most 0.1 s from now, so that the loop
  /// can refresh the screen, write the files, and poll state that sends no notification when it changes.
  [[nodiscard]] double next(const Facts& facts, double now) const;

  /// Returns how long a silence must last to be suspicious after other instances have lost contact.
  [[nodiscard]] double quiet_seconds() const;

 private:
  struct Timer {
    Due what;
    double at;
  };

  /// Returns all current deadlines, the most urgent first.
  [[nodiscard]] std::vector<Timer> timers(const Facts& facts) const;

  Limits limits_;
  double launched_at_;
  double started_at_;
  double woke_at_;
  double line_held_at_ = 0;
  std::optional<double> joined_at_;  ///< Time of the latest join.
  double left_at_ = 0;               ///< Time at which an instance last left.
  std::optional<double> judge_at_;
  bool awaits_dumps_ = false;
  std::optional<double> drained_at_;
  std::optional<double> no_room_at_;
  std::optional<double> stopping_since_;
};

}  // namespace poprun::launcher
