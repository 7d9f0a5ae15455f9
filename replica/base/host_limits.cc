#include "replica/base/host_limits.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

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
    fmt::print(stderr, "{}: out of threads or files on this host ({}); raise {} or ulimit -n\n",
               program, error.code().message(), kThreadLimits);
  } catch (...) {
    std::abort();
  }
  std::fflush(stderr);
  ::_exit(exit_code_of(ErrorCode::kHostResources));
}

/// Threads that wait until all have been started.
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

  /// Not std::thread: its stack has the default size, which a limit on memory counts.
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

}  // namespace

void end_in_a_line_at_limits(std::string_view program) {
  program_name() = program;
  std::set_terminate(end_on_exception);
}

Status check_room_for_threads(std::size_t threads, std::string_view purpose) {
  Crowd crowd;
  for (std::size_t started = 0; started < threads; ++started) {
    if (!crowd.add()) {
      return fail(
          ErrorCode::kHostResources,
          fmt::format("{} needs {} more threads and processes on this host, but only {} can "
                      "be started; raise {}",
                      purpose, threads, started, kThreadLimits));
    }
  }
  return {};
}

}  // namespace poprun
