#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace poprun::launcher {

/// How long a job waits for what, and what is due when it has waited long enough. A pure policy:
/// knows no clock and no timer, all times are seconds of one clock that come in. The event loop
/// tells it what happened, sleeps until `next` and does what is `due`.
class Deadlines {
 public:
  /// What the user may choose; seconds.
  struct Limits {
    double heartbeat_interval = 0;
    /// Also for mpirun to end once all instances have left, and for an instance to join after the
    /// last of the others: mpirun starts all at once.
    double heartbeat_timeout = 0;
    double join_timeout = 0;   ///< For all instances to join, from `started` on.
    double job_timeout = 0;    ///< For everything, from the launch on; 0: none.
    double drain_timeout = 0;  ///< For a drained job to stop and save; 0: none.
  };

  /// Kinds of trouble, by how long news that explain it may take to come.
  enum class Trouble : std::uint8_t {
    kCause,      ///< Somebody said or saw why: there is nothing to wait for.
    kOneSide,    ///< One replica's view of an exchange: the others' words may be worth more.
    kDumps,      ///< A number ended a step: replica 0 may be sending what it dumped of it.
    kLostTouch,  ///< A heartbeat connection broke: mpirun may know how the process ended.
  };

  /// What a job is at a moment.
  struct Facts {
    bool joining = false;        ///< The dataset is known, and an instance has not joined yet.
    bool done = false;           ///< The results are complete, and all instances have left.
    bool processes_run = false;  ///< mpirun or the data server.
    std::optional<double> oldest_heartbeat = {};  ///< The last of whoever is silent for longest.
  };

  enum class Due : std::uint8_t {
    kNothing,
    kVerdict,     ///< There was trouble, and its news had their time.
    kSilence,     ///< An instance sent no heartbeat for too long.
    kAbsence,     ///< An instance did not join.
    kMpirunEnd,   ///< The job is done, and mpirun goes on.
    kDrainEnd,    ///< A drained job had its time to stop and save.
    kRoomEnd,     ///< A full disk had its time to take the results.
    kJobTimeout,  ///< The job took longer than it may.
    kKill,        ///< Stopping: what did not end when it was asked has to be killed. Stays due.
    kFinish,      ///< Stopping: all ended, or there was time enough.
  };

  /// Did the launcher itself not run (Ctrl-Z, the machine asleep)?
  struct Slept {
    double seconds = 0;
    bool excuses_silence = false;  ///< What came late is not the others' fault.
    bool is_worth_telling = false;
  };

  /// For a full disk to take the results of a job that is done.
  static constexpr double kRoomSeconds = 600;
  /// Between two pieces of what replica 0 dumped.
  static constexpr double kDumpSeconds = 2;

  Deadlines(const Limits& limits, double launched_at);

  /// All is prepared and mpirun was started. Before, nobody could join and the loop did not turn.
  void started(double now) { started_at_ = woke_at_ = now; }
  [[nodiscard]] double seconds_since_start(double now) const { return now - started_at_; }

  /// What happened, at `now`.
  void trouble(Trouble kind, double now);
  /// A verdict that is to come waits for the next piece.
  void dump_came(double now);
  /// The trouble so far has its verdict, or was none after all.
  void judged() { judge_at_.reset(); }
  void mpirun_line_held(double now) { line_held_at_ = now; }
  void joined(double now) { joined_at_ = now; }
  void left(double now) { left_at_ = now; }
  /// Asked to end in order.
  void draining(double now) { drained_at_ = now; }
  /// The results cannot be written. The first time counts.
  void no_room(double now) { no_room_at_ = no_room_at_.value_or(now); }
  void results_written() { no_room_at_.reset(); }
  void stopping(double now) { stopping_since_ = now; }
  /// The loop woke, or looks at its clock before it judges.
  Slept woke(double now);

  /// The most urgent thing to do.
  [[nodiscard]] Due due(const Facts& facts, double now) const;

  /// True where mpirun's own lines need not wait for a first cause of failure any more.
  [[nodiscard]] bool shows_mpirun_lines(double now) const;

  /// When to wake: at the first deadline after `now`, and at the latest in a tenth of a second, to
  /// refresh the screen, write the files, and look at what tells nobody when it changes.
  [[nodiscard]] double next(const Facts& facts, double now) const;

  /// Silence that is suspicious once others lost touch, too.
  [[nodiscard]] double quiet_seconds() const;

 private:
  struct Timer {
    Due what;
    double at;
  };

  /// All deadlines there are, the most urgent first.
  [[nodiscard]] std::vector<Timer> timers(const Facts& facts) const;

  Limits limits_;
  double launched_at_;
  double started_at_;
  double woke_at_;
  double line_held_at_ = 0;
  std::optional<double> joined_at_;  ///< When the last instance so far joined.
  double left_at_ = 0;               ///< When the last instance so far left.
  std::optional<double> judge_at_;
  std::optional<double> drained_at_;
  std::optional<double> no_room_at_;
  std::optional<double> stopping_since_;
};

}  // namespace poprun::launcher
