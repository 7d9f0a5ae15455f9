#include "launcher/job/inquiry.h"

#include <csignal>
#include <utility>

#include <asio/signal_set.hpp>
#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/process/process_handle.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {

Status Inquiry::start(const std::vector<std::string>& command, const std::string& input, OnExit on_exit) {
  const Child::Program program{path_beside_us(command[0]), command, {}, SIGKILL, input};
  return supervisor_.start_inquiry(
      program, [this](std::string_view line) { console_.out(line); }, [this](std::string_view line) { complain(line); },
      [this, name = command[0], on_exit = std::move(on_exit)](int status) {
        if (!WIFEXITED(status)) {
          complain(fmt::format("{} {}", name, exit_text(status)));
        }
        on_exit(WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of(ErrorCode::kInfrastructure));
      });
}

/// Prints the first line as an error, and further lines, which are its table, unchanged.
void Inquiry::complain(std::string_view line) {
  if (std::exchange(complained_, true)) {
    console_.err(line);
  } else {
    console_.say(line);
  }
}

int ask(const std::vector<std::string>& command, const std::string& input, Console& console) {
  asio::io_context loop;
  Supervisor supervisor(loop);
  Inquiry inquiry(supervisor, console);
  int exit_code = 0;
  asio::signal_set signals(loop);
  for (const int number : ending_signals()) {
    signals.add(number);
  }
  signals.async_wait([&](const asio::error_code& error, int number) {
    if (!error) {
      supervisor.kill_all();
      exit_code = 128 + number;
      loop.stop();
    }
  });
  const Status started = inquiry.start(command, input, [&](int code) {
    exit_code = code;
    loop.stop();
  });
  if (!started) {
    console.say(started.error().message);
    return exit_code_of(started.error().code);
  }
  loop.run();
  return exit_code;
}

}  // namespace poprun::launcher
