#include "replica/base/host_limits.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr const char* kThreadLimits = "ulimit -u or the control group's pids.max";

std::string& program_name() {
  static std::string name;
  return name;
}

[[noreturn]] void end_on_exception() {
  const std::string& program = program_name();
  try {
    if (const std::exception_ptr thrown = std::current_exception()) {
      std::rethrow_exception(thrown);
    }
    std::abort();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "{}: out of memory on this host; raise ulimit -v or the control group's "
               "memory limit, or run fewer replicas here\n",
               program);
  } catch (const std::system_error& error) {
    fmt::print(stderr, "{}: out of threads or file descriptors on this host ({}); raise {} or ulimit -n\n", program,
               error.code().message(), kThreadLimits);
  } catch (...) {
    std::abort();
  }
  std::fflush(stderr);
  ::_exit(exit_code_of(ErrorCode::kHostResources));
}

/// Threads that wait until all of them have been started.
class Crowd {
 public:
  Crowd() = default;
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  ~Crowd() {
    {
      const std::lock_guard lock(mutex_);
      leave_ = true;
    }
    changed_.notify_all();
    for (const pthread_t thread : threads_) {
      pthread_join(thread, nullptr);
    }
  }

  /// Starts a thread without std::thread, whose default stack size counts against memory limits.
  bool add() {
    constexpr std::size_t kStackBytes = 64 << 10;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_t thread{};
    const bool added = pthread_create(&thread, &attributes, &Crowd::wait, this) == 0;
    pthread_attr_destroy(&attributes);
    if (added) {
      threads_.push_back(thread);
    }
    return added;
  }

 private:
  static void* wait(void* self) {
    auto& crowd = *static_cast<Crowd*>(self);
    std::unique_lock lock(crowd.mutex_);
    crowd.changed_.wait(lock, [&] { return crowd.leave_; });
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool leave_ = false;
  std::vector<pthread_t> threads_;
};

/// Returns the number in the file, or nothing if the file contains anything else, such as "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  const auto number = parse_number<std::uint64_t>(text);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  if (!number) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::min(*number, static_cast<std::uint64_t>(kMax)));
}

/// Returns the number after `name` on the line that begins with `name`, or 0 if the file has no such line.
std::int64_t field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word >> number && word == name) {
      return number;
    }
  }
  return 0;
}

/// File names of one version of control groups.
struct Files {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* dropped;  ///< Key of the reclaimable caches in memory.stat.
};

constexpr Files kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "total_inactive_file"};
constexpr Files kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/// Adds the memory that a group and its ancestors leave free. In a container, the process's group is often the root.
void add_groups(const std::string& root, const Files& files, std::string group, std::vector<FreeMemory>& found) {
  while (true) {
    const std::string folder = fmt::format("{}{}{}/", root, files.mount, group);
    const auto limit = number_in(folder + files.limit);
    const auto usage = number_in(folder + files.usage);
    if (limit && usage) {
      const std::int64_t used = *usage - field(folder + "memory.stat", files.dropped);
      found.push_back({Bytes{std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used))},
                       fmt::format("{} of control group {}", files.limit, group.empty() ? "/" : group)});
    }
    if (group.empty()) {
      return;
    }
    group.erase(group.rfind('/'));
  }
}

}  // namespace

void leave_no_core_dumps() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::ofstream("/proc/self/coredump_filter") << "0";
}

void end_in_a_line_at_limits(std::string_view program) {
  program_name() = program;
  std::set_terminate(end_on_exception);
}

Status check_room_for_threads(std::size_t threads, std::string_view purpose) {
  Crowd crowd;
  for (std::size_t started = 0; started < threads; ++started) {
    if (!crowd.add()) {
      return fail(ErrorCode::kHostResources,
                  fmt::format("{} needs {} more threads and processes on this host, but only {} can "
                              "be started; raise {}",
                              purpose, threads, started, kThreadLimits));
    }
  }
  return {};
}

std::optional<FreeMemory> free_memory(const std::string& root) {
  std::vector<FreeMemory> found;
  const std::string machine = root + "/proc/meminfo";
  if (const std::int64_t available = field(machine, "MemAvailable:"); available > 0) {
    found.push_back(
        {Bytes{(available + field(machine, "SwapFree:")) * 1024}, "MemAvailable and SwapFree of /proc/meminfo"});
  }
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string group = path == "/" || !path.starts_with('/') ? "" : path;
    if (controllers.empty()) {
      add_groups(root, kVersion2, group, found);
    } else if (controllers == "memory") {
      add_groups(root, kVersion1, group, found);
    }
  }
  const auto least = std::ranges::min_element(found, {}, &FreeMemory::bytes);
  return least == found.end() ? std::nullopt : std::optional(*least);
}

void keep_freed_memory() {
  constexpr int kKeptBytes = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
}

void run_in_long_turns(std::size_t replicas) {
  if (replicas <= std::thread::hardware_concurrency()) {
    return;
  }
  // glibc 2.36 has no sched_setattr, and the kernel's header defines sched_param a second time.
  struct {
    std::uint32_t size = sizeof(*this);
    std::uint32_t policy = SCHED_BATCH;
    std::uint64_t flags = 0;
    std::int32_t nice = ::getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t runtime_ns = 100'000'000;
    std::uint64_t deadline_ns = 0;
    std::uint64_t period_ns = 0;
  } attributes;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace poprun
