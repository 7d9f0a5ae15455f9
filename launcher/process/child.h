#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <sys/types.h>

#include "replica/base/error.h"

namespace poprun::launcher {

/// A child process of this process. Its output is read line by line or in pieces. It gets its own process group, which
/// is killed as a whole, and no standard input other than `input`. The supervisor reaps it. If this process dies first,
/// the kernel sends `death_signal`, unless it is 0, to the child, so that even a SIGKILLed launcher leaves nothing
/// behind (for mpirun, see start_guard). The child does not react to request signals (kRequestSignals). They are
/// ignored, which suffices for programs that leave them ignored (our data server), and also blocked, because other
/// programs install handlers (mpirun). The object belongs to the loop's thread, which must also be the thread that
/// started the child, because the kernel sends the death signal when that thread ends.
class Child {
 public:
  struct Program {
    std::string path;
    std::vector<std::string> arguments;                            ///< arguments[0] is the name.
    std::vector<std::pair<std::string, std::string>> environment;  ///< Additions to our own environment.
    int death_signal = 0;
    std::string input = {};  ///< The child's complete standard input.
    /// Called with the child's pid before the program runs. If the call fails or this process dies, the program never
    /// runs.
    std::function<Status(pid_t pid)> before = {};
    std::vector<std::string> without = {};  ///< Variables of our environment to withhold from the child.
    bool writes_lines = true;  ///< If false, `on_stdout` receives the output unchanged, in pieces as they arrive.
  };
  /// Receives one line without its newline. Lines longer than 1 MiB are split.
  using OnLine = std::function<void(std::string_view line)>;

  /// Starts the program. Errors: kHostResources if the program cannot be started, with its name and the reason; also
  /// those of `before`.
  static Result<std::unique_ptr<Child>> start(asio::io_context& loop, const Program& program, OnLine on_stdout,
                                              OnLine on_stderr);

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() = default;

  [[nodiscard]] pid_t pid() const { return pid_; }

  /// Sends SIGKILL to the process group. Does nothing after the child has been reaped, since its process id may then
  /// belong to a different process.
  void kill() const;
  void reaped() { reaped_ = true; }

  /// Reads what is still in the pipes, without waiting for more.
  void drain();

 private:
  class Pipe {
   public:
    Pipe(asio::io_context& loop, int descriptor, OnLine on_line, bool has_lines = true);
    void read();
    void drain();

   private:
    void take(std::string_view bytes);

    asio::posix::stream_descriptor stream_;
    OnLine on_line_;
    bool has_lines_;
    std::string line_;
    std::vector<char> buffer_;
  };

  Child(pid_t pid, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> err);

  pid_t pid_;
  bool reaped_ = false;
  std::shared_ptr<Pipe> out_;
  std::shared_ptr<Pipe> err_;
};

}  // namespace poprun::launcher
