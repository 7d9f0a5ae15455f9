#pragma once

#include <cstddef>
#include <cstdint>

/// One table (phases.cc) defines the life cycle of a job: it lists the reaction to each event in each phase. These
/// functions are pure: the event loop (job/job.h) reports each event and does what the reaction says.
///
///        mpirun gave up
///   .----------------> kAskingHosts --.
///   |                                 |
///   |    all results have arrived,    |
///   |    and no process is needed     v
///   kRunning ------------------> kSaving -----------.   the outcome is decided
///   |                                 | a signal    |   (from any phase above)
///   | a signal                        v             v
///   '------------> kDraining --> kSavingEarly --> kEnding --> kClosing --> kWaitingForDisk
///                                                   processes gone    5 s later
namespace poprun::launcher {

/// The phases of a job, which differ in what the job is waiting for.
enum class Phase : std::uint8_t {
  kRunning,         ///< Waits for instances to join, to run, and to report their results.
  kAskingHosts,     ///< Waits for hosts to answer, because mpirun gave up; otherwise like kRunning.
  kDraining,        ///< Waits for instances to stop and to report their results, as requested by a signal.
  kSaving,          ///< Waits for the disk: all results have arrived, and processes are no longer needed.
  kSavingEarly,     ///< Like kSaving, in a job that a signal asked to stop.
  kEnding,          ///< Waits for processes to end, because the outcome is decided.
  kClosing,         ///< Waits for calls to end, and for files or a checkpoint still being written.
  kWaitingForDisk,  ///< Waits longer for what is still being written; the user has been told.
};
inline constexpr std::size_t kNumPhases = 8;

enum class JobEvent : std::uint8_t {
  kTick,              ///< The loop woke up to see what is due.
  kEndSignal,         ///< A signal asks the job to end.
  kCheckpointSignal,  ///< A signal asks for a checkpoint.
  kCheckpointTime,    ///< It is time to check whether a checkpoint is due.
  kDataset,           ///< The data server has described the dataset.
  kHeld,              ///< An instance sent a heartbeat or left, so it may be on hold.
  kReportItem,        ///< A piece of a report arrived.
  kReportEnd,         ///< A report is complete or was cut off.
  kFilesComplete,     ///< All result files are complete on disk.
  kTrouble,           ///< A sign of a failure whose cause may be unknown.
  kVerdict,           ///< The cause of a failure is known.
  kMpirunGaveUp,      ///< mpirun ended for an unknown reason, or is waiting for a daemon that does not start.
  kMpirunDone,        ///< mpirun ended with code 0.
  kMpirunFailed,      ///< mpirun ended in another way.
  kDataServerExit,    ///< Our own data server ended.
  kOutcome,           ///< The exit code is decided.
  kProcessesGone,     ///< All processes have ended, or their time is up.
  kDiskTime,          ///< The time for the last writes is up.
};

enum class Reaction : std::uint8_t {
  kIgnore,
  kWatch,         ///< Bring the screen, files and requests up to date, then see what is due.
  kWatchDrain,    ///< Like kWatch, but also say what the job is still waiting for.
  kWatchEnd,      ///< Only see what is due.
  kDrain,         ///< Ask instances to stop at their next part.
  kSaveEarly,     ///< Like kDrain, but the results have arrived, so the job waits only for files.
  kEndUntrained,  ///< End immediately: there is nothing to save.
  kEndUnsaved,    ///< End immediately, without the results.
  kEndComplete,   ///< End with the code of the results.
  kKill,          ///< Kill the processes that are still ending.
  kLeave,         ///< Exit without what is still being written.
  kTake,          ///< Do what the event asks for.
  kRefuse,        ///< Say that the request cannot be met now.
  kKeep,          ///< Keep what arrived, but no longer show it.
  kJudge,         ///< Wait for an explanation, then find the cause.
  kTell,          ///< Tell the user.
  kAskHosts,      ///< Find out which hosts do not answer, then say why mpirun gave up.
  kExplain,       ///< Find out why mpirun ended.
  kSaveAlone,     ///< From now on, wait only for files.
  kEnd,           ///< End the processes.
  kClose,         ///< End the calls and close the files.
  kWaitForDisk,   ///< Tell the user, and wait longer.
};

struct ResultFacts {
  bool trained = false;   ///< A training step is complete.
  bool reported = false;  ///< The whole report has arrived.
  bool complete = false;  ///< All files are complete on disk.
};

[[nodiscard]] Reaction reaction_to(JobEvent event, Phase phase, const ResultFacts& facts);

[[nodiscard]] Phase phase_after(Phase phase, Reaction reaction);

}  // namespace poprun::launcher
