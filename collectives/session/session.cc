#include "collectives/session/session.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

namespace fs = std::filesystem;

constexpr int kDaemonsMilliseconds = 3000;

/// Returns the value of the first of these variables that is set, or else `fallback`.
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

/// A descriptor that is closed at the end of its scope, which also releases its lock.
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

  /// Acquires the lock of a job for this process. Fails if another process holds a lock.
  [[nodiscard]] bool lock() const { return number_ >= 0 && flock(number_, LOCK_EX | LOCK_NB) == 0; }

  /// Acquires the lock for removing leftovers. Fails if a job holds its lock. This lock is shared, so that hosts that
  /// share the folder for temporary files can remove their parts of a job at the same time.
  [[nodiscard]] bool lock_to_remove() const { return number_ >= 0 && flock(number_, LOCK_SH | LOCK_NB) == 0; }

 private:
  int number_;
};

Descriptor open_folder(const fs::path& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// Returns whether `descriptor` is the file at `path` and belongs to this user.
bool is_ours(int descriptor, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino && opened.st_uid == geteuid();
}

/// Returns the folders in `folder` whose names begin with `prefix`, except symbolic links and those of other users.
std::vector<fs::path> folders_in(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    struct stat status {};
    if (entry->path().filename().string().starts_with(prefix) && lstat(entry->path().c_str(), &status) == 0 &&
        S_ISDIR(status.st_mode) && status.st_uid == geteuid()) {
      found.push_back(entry->path());
    }
  }
  return found;
}

bool is_daemons(const fs::path& session) {
  return session.filename().string().starts_with("jf.");
}

/// Returns the job number that is part of the names of the ranks' shared memory.
std::optional<std::uint64_t> ranks_job(const fs::path& session) {
  const std::string name = session.filename();
  std::uint64_t number = 0;
  if (is_daemons(session)) {
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + 3, end, number);
    return error == std::errc{} && stop == end ? std::optional(number << 16U | 1U) : std::nullopt;
  }
  return std::ifstream(session / "contact.txt") >> number ? std::optional(number + 1) : std::nullopt;
}

/// Returns the names that Open MPI may use for this host: it drops the domain if the job's hosts have none.
std::vector<std::string> own_names(const SessionPlace& place) {
  const std::string bare = place.host.substr(0, place.host.find('.'));
  return bare == place.host ? std::vector{place.host} : std::vector{place.host, bare};
}

/// Returns the folders of this host's sessions in `folder`.
std::vector<fs::path> tops_in(const fs::path& folder, const SessionPlace& place) {
  std::vector<fs::path> found;
  for (const std::string& name : own_names(place)) {
    for (fs::path& top : folders_in(folder, fmt::format("ompi.{}.{}", name, geteuid()))) {
      found.push_back(std::move(top));
    }
  }
  return found;
}

/// Returns the places where sessions of this host can be: in the base itself and in jobs' folders.
std::vector<fs::path> tops(const SessionPlace& place) {
  std::vector<fs::path> found = tops_in(place.base, place);
  for (const fs::path& job : folders_in(place.base, job_folder_prefix())) {
    for (fs::path& top : tops_in(job, place)) {
      found.push_back(std::move(top));
    }
  }
  return found;
}

/// Returns whether no other session on this host has the job number. Family numbers are short, so they recur.
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

void remove_shared_memory(std::uint64_t job, const SessionPlace& place) {
  std::error_code error;
  for (fs::directory_iterator entry(place.shared_memory, error), end; !error && entry != end; entry.increment(error)) {
    for (const std::string& name : own_names(place)) {
      const std::string prefix = fmt::format("vader_segment.{}.{}.{:x}.", name, geteuid(), job);
      if (entry->path().filename().string().starts_with(prefix)) {
        std::error_code unused;
        fs::remove(entry->path(), unused);
      }
    }
  }
}

/// Removes a session. Its shared memory is removed first, because only the session identifies that memory.
void remove_session(const fs::path& session, const SessionPlace& place) {
  std::error_code unused;
  if (const auto job = ranks_job(session); job && is_only_session(session, *job, place)) {
    remove_shared_memory(*job, place);
  }
  fs::remove_all(session, unused);
  fs::remove(session.parent_path(), unused);  // The folder stays if another session is in it.
}

/// Removes a job's folder with its contents from this host. Requires: this process has its lock.
void remove_job_folder(const fs::path& job, const SessionPlace& place) {
  for (const fs::path& top : tops_in(job, place)) {
    for (const fs::path& session : folders_in(top, "")) {
      remove_session(session, place);
    }
  }
  std::error_code unused;
  fs::remove(job, unused);  // The folder stays if another host's session is in it.
}

}  // namespace

SessionPlace session_place(std::string host) {
  fs::path base = folder_from({"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}, "/tmp");
  if (base.filename().string().starts_with(job_folder_prefix())) {
    base = base.parent_path();  // In a replica, the variable names the job's own folder.
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
                  fmt::format("cannot create a folder for Open MPI in {}: {}; set TMPDIR to a different folder",
                              place.base.string(), std::strerror(errno)));
    }
    // A job that looks for leftovers may remove the folder at any time before we have the lock.
    Descriptor folder = open_folder(path);
    if (folder.number() < 0 && errno == ENOENT) {
      continue;
    }
    if (folder.number() < 0) {
      return fail(ErrorCode::kHostResources, fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
    }
    const bool locked = folder.lock();  // Some file systems do not support locks; there, no process gets a lock.
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
      descriptor_(std::exchange(other.descriptor_, -1)),
      ranks_job_(other.ranks_job_) {}

JobFolder::~JobFolder() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void JobFolder::learn() {
  if (ranks_job_) {
    return;
  }
  for (const fs::path& top : tops_in(path_, place_)) {
    for (const fs::path& session : folders_in(top, "pid.")) {
      ranks_job_ = ranks_job(session);
    }
  }
}

void JobFolder::remove() {
  remove_job_folder(path_, place_);
  if (ranks_job_ && is_only_session({}, *ranks_job_, place_)) {
    remove_shared_memory(*ranks_job_, place_);
  }
}

// The parent is the number in /proc/PID/stat that follows the last ')' and the state letter.
pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat, '\0');
  const std::size_t close = stat.rfind(')');
  pid_t parent = 0;
  if (close != std::string::npos && close + 4 < stat.size()) {
    std::from_chars(stat.data() + close + 4, stat.data() + stat.size(), parent);
  }
  return parent;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [stop, parse_error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parse_error == std::errc{} && stop == name.data() + name.size() && parent_of(pid) == parent) {
      children.push_back(pid);
    }
  }
  return children;
}

void end_daemon(const fs::path& session, pid_t daemon) {
  const int descriptor = is_daemons(session) ? static_cast<int>(syscall(SYS_pidfd_open, daemon, 0)) : -1;
  if (descriptor < 0 || _Fork() != 0) {
    return;
  }
  // All other descriptors are closed, so that connected peers see the end of the process that forked this one.
  close_range(0, static_cast<unsigned>(descriptor) - 1, 0);
  close_range(static_cast<unsigned>(descriptor) + 1, std::numeric_limits<unsigned>::max(), 0);
  for (pollfd end{.fd = descriptor, .events = POLLIN, .revents = 0}; poll(&end, 1, kDaemonsMilliseconds) == 0;) {
    for (const pid_t child : children_of(daemon)) {
      kill(child, SIGKILL);
    }
    syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0);
  }
  _exit(0);
}

void remove_leftovers(const SessionPlace& place) {
  for (const fs::path& job : folders_in(place.base, job_folder_prefix())) {
    const Descriptor folder = open_folder(job);
    if (folder.lock_to_remove() && is_ours(folder.number(), job)) {
      remove_job_folder(job, place);
    }
  }
}

}  // namespace poprun::collectives
