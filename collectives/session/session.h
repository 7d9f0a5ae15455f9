#pragma once

#include <filesystem>
#include <string>

#include <sys/types.h>

#include "replica/base/error.h"

/// What Open MPI 4.1 keeps on a host while a job runs (orte/util/session_dir.c,
/// opal/mca/btl/vader/btl_vader_component.c), and what of it stays if all of the job's processes
/// are killed:
///
///   BASE/poprun-emu.UID.XXXXXX/              a job's own folder, on its launcher's host
///        ompi.HOST.UID/pid.PID/              files that mpirun shares with its ranks
///        ompi.HOST.UID/pid.PID/contact.txt   begins with the decimal number of job 0
///   BASE/ompi.HOST.UID/jf.FAMILY/            on other hosts: the same of Open MPI's daemon
///        poprun-emu                          our mark: "PID START" of the daemon
///   /dev/shm/vader_segment.HOST.UID.JOB.RANK JOB in hexadecimal, FAMILY in its upper half; the
///                                            ranks are job 1
///
/// Nobody guesses who is dead. A job's folder is locked (flock) by its launcher and by the guard of
/// mpirun: the kernel gives the lock back when both are gone. The mark is locked by the first
/// replica process of the host, and names the daemon by its process id and start time, which no
/// later process has. Only what neither lock nor process holds is removed, and only this user's on
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

  /// Removes it with what is in it of this host, and the shared memory that belongs to it.
  /// Requires: the job's processes on this host have ended.
  void remove();

 private:
  JobFolder(SessionPlace place, std::filesystem::path path, int descriptor);

  SessionPlace place_;
  std::filesystem::path path_;
  int descriptor_;  ///< -1: moved from.
};

/// Marks `session`, if it is a daemon's, as this program's, and keeps the mark locked until
/// this process ends. Without room for the mark there is none: what the job leaves then stays if
/// it is killed.
void mark_session(const std::filesystem::path& session, pid_t daemon);

/// Removes what dead jobs left at `place`. Whoever is just starting has its lock already, or is
/// seen as a process. Costs the listing of a folder or two where nothing is left.
void remove_leftovers(const SessionPlace& place);

}  // namespace poprun::collectives
