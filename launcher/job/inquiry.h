#pragma once

#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/process/supervisor.h"
#include "launcher/screen/console.h"
#include "replica/base/error.h"

/// Questions about models. The launcher itself knows no models: poprun-emu-replica (see replica/answers/inquiry.h) or a
/// tool answers, as a plain child process without mpirun.
namespace poprun::launcher {

/// One question in progress. Belongs to the loop's thread.
class Inquiry {
 public:
  /// `on_exit` gets the exit code for the shell.
  using OnExit = std::function<void(int exit_code)>;

  /// All references must outlive this.
  Inquiry(Supervisor& supervisor, Console& console) : supervisor_(supervisor), console_(console) {}

  /// Starts a program from our own folder, by its name and arguments, with `input` on its stdin. Its stdout is printed
  /// as it arrives, and its stderr as an error of the launcher.
  ///
  /// Errors
  ///   kHostResources  it cannot be started.
  Status start(const std::vector<std::string>& command, const std::string& input, OnExit on_exit);

 private:
  void complain(std::string_view line);

  Supervisor& supervisor_;
  Console& console_;
  bool complained_ = false;
};

/// Runs a whole inquiry and returns the exit code for the shell. A signal ends it with 128 + the signal's number.
int ask(const std::vector<std::string>& command, const std::string& input, Console& console);

}  // namespace poprun::launcher
