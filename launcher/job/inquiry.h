#pragma once

#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/process/supervisor.h"
#include "launcher/screen/console.h"
#include "replica/base/error.h"

/// Questions about models. The launcher knows no model: poprun-emu-replica answers (see
/// replica/instance/inquiry.h), or a tool, as a plain child without mpirun.
namespace poprun::launcher {

/// One question under way. Belongs to the loop's thread.
class Inquiry {
 public:
  /// `on_exit` gets the exit code for the shell.
  using OnExit = std::function<void(int exit_code)>;

  /// All references must outlive this.
  Inquiry(Supervisor& supervisor, Console& console) : supervisor_(supervisor), console_(console) {}

  /// Starts a program beside our own, by name with its arguments, with `input` to read. What it
  /// prints is printed as it comes, what it complains of in the launcher's name.
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

/// The whole of an inquiry; returns the exit code for the shell. A signal ends it with 128 + its
/// number.
int ask(const std::vector<std::string>& command, const std::string& input, Console& console);

}  // namespace poprun::launcher
