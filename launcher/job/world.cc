#include "launcher/job/world.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <utility>

#include <asio/steady_timer.hpp>

#include "launcher/process/process_handle.h"

namespace poprun::launcher {
namespace {

class RealAlarm final : public Alarm {
 public:
  explicit RealAlarm(asio::io_context& loop) : timer_(loop) {}

  void set(double seconds_from_now, std::function<void()> then) override {
    const std::chrono::duration<double> wait(seconds_from_now);
    timer_.expires_after(std::chrono::ceil<std::chrono::steady_clock::duration>(wait));
    timer_.async_wait([then = std::move(then)](const asio::error_code& error) {
      if (!error) {
        then();
      }
    });
  }

 private:
  asio::steady_timer timer_;
};

class RealWorld final : public World {
 public:
  [[nodiscard]] double now() const override { return monotonic_seconds(); }
  void run(asio::io_context& loop) override { loop.run(); }
  std::unique_ptr<Alarm> alarm(asio::io_context& loop) override { return std::make_unique<RealAlarm>(loop); }

  int pause(double seconds) override {
    sigset_t ends{};
    sigemptyset(&ends);
    for (const int number : ending_signals()) {
      sigaddset(&ends, number);
    }
    sigset_t before{};
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    const timespec wait{static_cast<std::time_t>(seconds), 0};
    const int number = sigtimedwait(&ends, nullptr, &wait);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return std::max(number, 0);
  }

  [[noreturn]] void leave(int exit_code) override { std::_Exit(exit_code); }

  std::unique_ptr<DiskThread> disk() override { return std::make_unique<DiskThread>(); }

  std::unique_ptr<JobProcesses> processes(asio::io_context& loop, const Options& options, const Placement& placement,
                                          Console& console, const Security& security,
                                          JobProcesses::Events events) override {
    return JobProcesses::real(loop, options, placement, console, security, std::move(events));
  }

  Result<std::unique_ptr<Coordinator>> serve(asio::io_context& loop, CoordinatorEvents& events,
                                             Coordinator::Setup setup) override {
    return Coordinator::start(loop, events, std::move(setup));
  }
};

}  // namespace

World& real_world() {
  static RealWorld world;
  return world;
}

}  // namespace poprun::launcher
