#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "replica/base/error.h"

/// The files that Open MPI 4.1 keeps on a host while a job runs (orte/util/session_dir.c,
/// opal/mca/btl/vader/btl_vader_component.c). Some of them remain if all of the job's processes are killed:
///
///   BASE/poprun-emu.UID.XXXXXX/              the job's own folder on this host
///        ompi.HOST.UID/pid.PID/              on the launcher's host: for mpirun and its ranks
///        ompi.HOST.UID/pid.PID/contact.txt   begins with the decimal number of job 0
///        ompi.HOST.UID/jf.FAMILY/            on other hosts: the same for Open MPI's daemon
///   /dev/shm/vader_segment.HOST.UID.JOB.RANK JOB in hexadecimal, FAMILY in its upper half; the
///                                            ranks are job 1
///
/// The code never guesses whether a job is dead: its folder is locked (flock) by the launcher and the guard of mpirun,
/// and on other hosts by the daemon (launcher/mpi/remote_shell.sh). The kernel releases the lock when they exit. Only
/// unlocked folders of this user are removed, and only from this host, under a shared lock, because hosts may share
/// BASE. Symbolic links are removed, never followed.
namespace poprun::collectives {

/// The folders on a host that contain these files.
struct SessionPlace {
  std::filesystem::path base;           ///< The folder for temporary files.
  std::string host;                     ///< The host's name.
  std::filesystem::path shared_memory;  ///< The folder of vader's files.
};

/// Returns the places that mpirun, its daemons and vader use on this host, whose name is `host`.
SessionPlace session_place(std::string host);

/// A job's own folder for temporary files, which stays locked while any process has the descriptor open.
class JobFolder {
 public:
  /// Errors: kHostResources if the folder for temporary files cannot be used; the message says why.
  static Result<JobFolder> make(const SessionPlace& place);

  JobFolder(JobFolder&& other) noexcept;
  JobFolder& operator=(JobFolder&&) = delete;
  ~JobFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Looks up which shared memory belongs to the sessions in the folder, because mpirun may remove a session but leave
  /// the shared memory of a replica that died early. Does nothing after the first success.
  void learn();

  /// Removes the folder with its contents from this host, and the job's shared memory. Requires: the job's processes on
  /// this host have ended.
  void remove();

 private:
  JobFolder(SessionPlace place, std::filesystem::path path, int descriptor);

  SessionPlace place_;
  std::filesystem::path path_;
  int descriptor_;  ///< -1 after a move.
  std::optional<std::uint64_t> ranks_job_;
};

/// If `session` belongs to a daemon, starts a process that kills `daemon` and its children unless the daemon ends
/// within 3 s, as it does if mpirun tells it to. Called by a process that exits because it has lost the launcher. If a
/// link is cut, the daemon itself notices only when TCP gives up on its last message, about 15 minutes later. The
/// daemon ignores SIGTERM (launcher/mpi/remote_shell.sh).
void end_daemon(const std::filesystem::path& session, pid_t daemon);

/// Returns the unreaped children of `parent`, including those adopted from children that died.
std::vector<pid_t> children_of(pid_t parent);

/// Returns the parent of `pid`; 0 if there is no such process.
pid_t parent_of(pid_t pid);

/// Removes the files that dead jobs left at `place`. A job that is just starting already holds its lock, so its files
/// stay. Cost if nothing is left: listing one or two folders.
void remove_leftovers(const SessionPlace& place);

}  // namespace poprun::collectives
