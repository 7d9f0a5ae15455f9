#include "collectives/session/session.h"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "poprun-emu";

/// The first of these variables that is set, or else `fallback`.
fs::path folder_from(std::initializer_list<const char*> variables, const char* fallback) {
  for (const char* variable : variables) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') {
      return value;
    }
  }
  return fallback;
}

std::string job_folder_prefix() {
  return fmt::format("poprun-emu.{}.", geteuid());
}

/// A descriptor that the end of its scope closes, and with it a lock.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) {
      close(number_);
    }
  }

  [[nodiscard]] int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

  /// Nobody else holds it, and from now on this process does.
  [[nodiscard]] bool lock() const { return number_ >= 0 && flock(number_, LOCK_EX | LOCK_NB) == 0; }

 private:
  int number_;
};

Descriptor open_folder(const fs::path& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// `descriptor` is what `path` names, and this user's.
bool is_ours(int descriptor, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino &&
         opened.st_uid == geteuid();
}

/// The folders in `folder` whose names begin so; none that are symbolic links or another user's.
std::vector<fs::path> folders_in(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status {};
    if (entry->path().filename().string().starts_with(prefix) &&
        lstat(entry->path().c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
        status.st_uid == geteuid()) {
      found.push_back(entry->path());
    }
  }
  return found;
}

/// The number that the names of the ranks' shared memory have.
std::optional<std::uint64_t> ranks_job(const fs::path& session) {
  const std::string name = session.filename();
  std::uint64_t number = 0;
  if (name.starts_with("jf.")) {
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + 3, end, number);
    return error == std::errc{} && stop == end ? std::optional(number << 16U | 1U) : std::nullopt;
  }
  return std::ifstream(session / "contact.txt") >> number ? std::optional(number + 1)
                                                          : std::nullopt;
}

std::string sessions_name(const SessionPlace& place) {
  return fmt::format("ompi.{}.{}", place.host, geteuid());
}

/// Where sessions of this host can be: in the base itself and in jobs' folders.
std::vector<fs::path> tops(const SessionPlace& place) {
  std::vector<fs::path> found = folders_in(place.base, sessions_name(place));
  for (const fs::path& job : folders_in(place.base, job_folder_prefix())) {
    for (fs::path& top : folders_in(job, sessions_name(place))) {
      found.push_back(std::move(top));
    }
  }
  return found;
}

/// Family numbers are short and come again: no other session here may have this one.
bool is_only_session(const fs::path& session, std::uint64_t job, const SessionPlace& place) {
  for (const fs::path& top : tops(place)) {
    for (const fs::path& other : folders_in(top, "")) {
      if (other != session && ranks_job(other) == job) {
        return false;
      }
    }
  }
  return true;
}

/// Shared memory first: without its session nobody would know whose it is.
void remove_session(const fs::path& session, const SessionPlace& place) {
  std::error_code unused;
  if (const auto job = ranks_job(session); job && is_only_session(session, *job, place)) {
    const std::string prefix =
        fmt::format("vader_segment.{}.{}.{:x}.", place.host, geteuid(), *job);
    std::error_code error;
    for (fs::directory_iterator entry(place.shared_memory, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename().string().starts_with(prefix)) {
        fs::remove(entry->path(), unused);
      }
    }
  }
  fs::remove_all(session, unused);
  fs::remove(session.parent_path(), unused);  // Stays where another session is in it.
}

/// Field 22 of /proc/PID/stat, the moment of its start; 0 where there is no such process, or only
/// its exit code, which nobody may ever fetch in a container whose first process reaps nothing.
std::uint64_t start_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat, '\0');
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) {
    fields >> skipped;
  }
  std::uint64_t start = 0;
  fields >> start;
  return state == "Z" || state == "X" ? 0 : start;
}

/// Has our mark, and neither who locked it nor the daemon that it names lives.
bool is_dead_daemons(const fs::path& session) {
  const fs::path mark = session / kMark;
  const Descriptor file(open(mark.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.lock() || !is_ours(file.number(), mark)) {
    return false;
  }
  pid_t daemon = 0;
  std::uint64_t start = 0;
  return std::ifstream(mark) >> daemon >> start && start_of(daemon) != start;
}

/// With what is in it of this host, where remote shells hand on TMPDIR a daemon's session, too:
/// without a mark that is one whose replicas have not started. Requires: this process has its lock.
void remove_job_folder(const fs::path& job, const SessionPlace& place) {
  for (const fs::path& top : folders_in(job, sessions_name(place))) {
    for (const fs::path& session : folders_in(top, "")) {
      struct stat unused {};
      if (lstat((session / kMark).c_str(), &unused) != 0 || is_dead_daemons(session)) {
        remove_session(session, place);
      }
    }
  }
  std::error_code unused;
  fs::remove(job, unused);  // Stays where another host's session is in it.
}

}  // namespace

SessionPlace session_place(std::string host) {
  fs::path base = folder_from({"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}, "/tmp");
  if (base.filename().string().starts_with(job_folder_prefix())) {
    base = base.parent_path();  // As a replica sees it.
  }
  return {.base = std::move(base),
          .host = std::move(host),
          .shared_memory = folder_from({"OMPI_MCA_btl_vader_backing_directory"}, "/dev/shm")};
}

Result<JobFolder> JobFolder::make(const SessionPlace& place) {
  std::error_code unused;
  fs::create_directories(place.base, unused);
  for (;;) {
    std::string path = place.base / (job_folder_prefix() + "XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      return fail(ErrorCode::kHostResources,
                  fmt::format("no folder can be made in {}, which Open MPI needs: {}; set TMPDIR "
                              "to another folder",
                              place.base.string(), std::strerror(errno)));
    }
    Descriptor folder = open_folder(path);
    if (folder.number() < 0) {
      return fail(ErrorCode::kHostResources,
                  fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
    }
    // Some file systems know no locks: there, nobody else gets one either. A job that looked for
    // leftovers before the lock was ours may have removed the folder.
    const bool locked = folder.lock();
    if ((locked || errno != EWOULDBLOCK) && is_ours(folder.number(), path)) {
      return JobFolder(place, path, folder.release());
    }
  }
}

JobFolder::JobFolder(SessionPlace place, fs::path path, int descriptor)
    : place_(std::move(place)), path_(std::move(path)), descriptor_(descriptor) {}

JobFolder::JobFolder(JobFolder&& other) noexcept
    : place_(std::move(other.place_)),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

JobFolder::~JobFolder() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void JobFolder::remove() {
  remove_job_folder(path_, place_);
}

void mark_session(const fs::path& session, pid_t daemon) {
  if (!session.filename().string().starts_with("jf.")) {
    return;  // mpirun's own, in the folder of its job.
  }
  const fs::path mark = session / kMark;
  const std::string unfinished = fmt::format("{}.{}", mark.string(), getpid());
  Descriptor file(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::string text = fmt::format("{} {}\n", daemon, start_of(daemon));
  const bool whole = file.lock() && write(file.number(), text.data(), text.size()) ==
                                        static_cast<ssize_t>(text.size());
  if (!whole || std::rename(unfinished.c_str(), mark.c_str()) != 0) {
    unlink(unfinished.c_str());
    return;
  }
  file.release();  // The kernel closes it when this process ends.
}

void remove_leftovers(const SessionPlace& place) {
  for (const fs::path& top : tops(place)) {
    for (const fs::path& session : folders_in(top, "jf.")) {
      if (is_dead_daemons(session)) {
        remove_session(session, place);
      }
    }
  }
  for (const fs::path& job : folders_in(place.base, job_folder_prefix())) {
    const Descriptor folder = open_folder(job);
    if (folder.lock() && is_ours(folder.number(), job)) {
      remove_job_folder(job, place);
    }
  }
}

}  // namespace poprun::collectives
