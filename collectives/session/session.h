#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <sys/types.h>

#include "replica/base/error.h"

/// What Open MPI 4.1 keeps on a host while a job runs (orte/util/session_dir.c,
/// opal/mca/btl/vader/btl_vader_component.c), and what of it stays if all of the job's processes
/// are killed:
///
///   BASE/poprun-emu.UID.XXXXXX/              the job's own folder on this host
///        ompi.HOST.UID/pid.PID/              on the launcher's: what mpirun shares with its ranks
///        ompi.HOST.UID/pid.PID/contact.txt   begins with the decimal number of job 0
///        ompi.HOST.UID/jf.FAMILY/            on others: the same of Open MPI's daemon
///   /dev/shm/vader_segment.HOST.UID.JOB.RANK JOB in hexadecimal, FAMILY in its upper half; the
///                                            ranks are job 1
///
/// Nobody guesses who is dead. The folder is locked (flock): by the launcher and the guard of
/// mpirun, on other hosts by the daemon (launcher/mpi/remote_shell.sh). The kernel gives the lock
/// back when they are gone. Only folders that nobody locks are removed, and only this user's on
/// this host. Symbolic links are removed, never followed.
namespace poprun::collectives {

/// Where a host has these things.
struct SessionPlace {
  std::filesystem::path base;           ///< The folder for temporary files.
  std::string host;                     ///< Its name.
  std::filesystem::path shared_memory;  ///< The folder of vader's files.
};

/// As mpirun, its daemons and vader on this host see it, which `host` is the name of.
SessionPlace session_place(std::string host);

/// A job's own folder for temporary files, locked by everybody who has the descriptor.
class JobFolder {
 public:
  /// Errors
  ///   kHostResources  the folder for temporary files cannot be used; says why.
  static Result<JobFolder> make(const SessionPlace& place);

  JobFolder(JobFolder&& other) noexcept;
  JobFolder& operator=(JobFolder&&) = delete;
  ~JobFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Looks up which shared memory belongs to the sessions in it, for one that mpirun removes
  /// without that of a replica which died early. Nothing is looked up twice.
  void learn();

  /// Removes it with what is in it of this host, and the shared memory that belongs to it.
  /// Requires: the job's processes on this host have ended.
  void remove();

 private:
  JobFolder(SessionPlace place, std::filesystem::path path, int descriptor);

  SessionPlace place_;
  std::filesystem::path path_;
  int descriptor_;  ///< -1: moved from.
  std::optional<std::uint64_t> ranks_job_;
};

/// If `session` is a daemon's, starts a process that kills `daemon` and its children unless it ends
/// within 3 s, as it does where mpirun tells it to: for a process that has lost the launcher and
/// leaves. Beyond a cut link the daemon itself notices only when TCP gives up on its last words, a
/// quarter of an hour later, and it ignores SIGTERM (launcher/mpi/remote_shell.sh).
void end_daemon(const std::filesystem::path& session, pid_t daemon);

/// Removes what dead jobs left at `place`. A job that is just starting has its lock already. Costs
/// the listing of a folder or two where nothing is left.
void remove_leftovers(const SessionPlace& place);

}  // namespace poprun::collectives
