#include "launcher/process/child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <asio/buffer.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "launcher/process/process_handle.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kLineBytesMax = 1 << 20;
constexpr std::size_t kReadBytes = 64 << 10;

/// A pipe with both ends close-on-exec, so that the child keeps only the descriptors that dup2 creates.
struct PipeEnds {
  int read = -1;
  int write = -1;
};

Result<PipeEnds> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::kHostResources,
                fmt::format("cannot create a pipe for a child process: {}", std::strerror(errno)));
  }
  return PipeEnds{ends[0], ends[1]};
}

/// Returns a descriptor from which `text` can be read; on failure, returns -1 and sets errno. The text is in an
/// in-memory file, because writing to a pipe that nobody reads yet could block.
int readable_text(const std::string& text) {
  const int file = memfd_create("standard input", MFD_CLOEXEC);
  std::size_t written = 0;
  while (file >= 0 && written < text.size()) {
    const ssize_t bytes = write(file, text.data() + written, text.size() - written);
    if (bytes < 0) {
      const int reason = errno;
      close(file);
      errno = reason;
      return -1;
    }
    written += static_cast<std::size_t>(bytes);
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

std::vector<std::string> whole_environment(const std::vector<std::pair<std::string, std::string>>& additions,
                                           const std::vector<std::string>& without) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto replaced = [&](const auto& addition) {
      return text.starts_with(addition.first) && text.substr(addition.first.size()).starts_with('=');
    };
    const bool removed = std::ranges::count(without, text.substr(0, text.find('='))) > 0;
    if (!removed && std::none_of(additions.begin(), additions.end(), replaced)) {
      result.emplace_back(text);
    }
  }
  for (const auto& [name, value] : additions) {
    result.push_back(fmt::format("{}={}", name, value));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

/// Runs in the child between fork and exec. It makes only async-signal-safe calls, since other threads of the launcher
/// may have held locks. It waits for the parent to write to `go`. If exec fails, it reports errno to the parent.
[[noreturn]] void become(const char* path, char* const* arguments, char* const* environment, int in, int out, int err,
                         int report, PipeEnds go, int death_signal, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);  // The launcher had died before prctl took effect.
  }
  close(go.write);
  char word = 0;
  ssize_t got = 0;
  while ((got = read(go.read, &word, sizeof(word))) < 0 && errno == EINTR) {
  }
  if (got != sizeof(word)) {
    _exit(127);
  }
  prctl(PR_SET_PDEATHSIG, death_signal);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int number : {SIGPIPE, SIGCHLD}) {
    std::signal(number, SIG_DFL);
  }
  sigset_t requests;
  sigemptyset(&requests);
  for (const int number : kRequestSignals) {
    std::signal(number, SIG_IGN);
    sigaddset(&requests, number);
  }
  sigprocmask(SIG_SETMASK, &requests, nullptr);
  execve(path, arguments, environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = write(report, &reason, sizeof(reason));
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<Child>> Child::start(asio::io_context& loop, const Program& program, OnLine on_stdout,
                                            OnLine on_stderr) {
  POPRUN_ASSIGN(const PipeEnds out, make_pipe());
  POPRUN_ASSIGN(const PipeEnds err, make_pipe());
  POPRUN_ASSIGN(const PipeEnds report, make_pipe());
  POPRUN_ASSIGN(const PipeEnds go, make_pipe());
  const int in = readable_text(program.input);
  if (in < 0) {
    return fail(ErrorCode::kHostResources, fmt::format("cannot allocate {} B for the input of {}: {}",
                                                       program.input.size(), program.path, std::strerror(errno)));
  }
  std::vector<std::string> argument_texts = program.arguments;
  std::vector<std::string> environment_texts = whole_environment(program.environment, program.without);
  const std::vector<char*> arguments = pointers(argument_texts);
  const std::vector<char*> environment = pointers(environment_texts);

  const pid_t parent = getpid();
  const pid_t pid = fork_with_signals_blocked();
  if (pid == 0) {
    become(program.path.c_str(), arguments.data(), environment.data(), in, out.write, err.write, report.write, go,
           program.death_signal, parent);
  }
  int reason = pid < 0 ? errno : 0;
  const Status prepared = pid > 0 && program.before ? program.before(pid) : Status{};
  if (prepared) {
    [[maybe_unused]] const ssize_t said = write(go.write, "g", 1);
  }
  for (const int end : {in, out.write, err.write, report.write, go.read, go.write}) {
    close(end);
  }
  // This call does not block for long, since exec closes the child's end of the pipe.
  const ssize_t told = read(report.read, &reason, sizeof(reason));
  close(report.read);
  auto out_pipe = std::make_shared<Pipe>(loop, out.read, std::move(on_stdout), program.writes_lines);
  auto err_pipe = std::make_shared<Pipe>(loop, err.read, std::move(on_stderr));
  POPRUN_TRY(prepared);
  if (pid < 0 || told == static_cast<ssize_t>(sizeof(reason))) {
    return fail(ErrorCode::kHostResources,
                fmt::format("{} cannot be started: {}{}", program.path, std::strerror(reason),
                            reason == EAGAIN ? "; check ulimit -u and the control group's pids.max" : ""));
  }
  setpgid(pid, pid);  // Also done by the parent, so that the group exists as soon as anything can signal it.
  out_pipe->read();
  err_pipe->read();
  return std::unique_ptr<Child>(new Child(pid, std::move(out_pipe), std::move(err_pipe)));
}

Child::Child(pid_t pid, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> err)
    : pid_(pid), out_(std::move(out)), err_(std::move(err)) {
  POPRUN_CHECK(pid > 1);
}

void Child::kill() const {
  if (!reaped_) {
    killpg(pid_, SIGKILL);
  }
}

void Child::drain() {
  out_->drain();
  err_->drain();
}

Child::Pipe::Pipe(asio::io_context& loop, int descriptor, OnLine on_line, bool has_lines)
    : stream_(loop, descriptor), on_line_(std::move(on_line)), has_lines_(has_lines), buffer_(kReadBytes) {}

void Child::Pipe::read() {
  stream_.async_read_some(asio::buffer(buffer_), [this](const asio::error_code& error, std::size_t bytes) {
    // The read is cancelled only when this object is being destroyed.
    if (error == asio::error::operation_aborted) {
      return;
    }
    take({buffer_.data(), bytes});
    if (!error) {
      read();
    }
  });
}

void Child::Pipe::drain() {
  asio::error_code error;
  stream_.non_blocking(true, error);
  while (!error) {
    const std::size_t bytes = stream_.read_some(asio::buffer(buffer_), error);
    take({buffer_.data(), bytes});
  }
  if (!line_.empty()) {
    on_line_(std::exchange(line_, {}));
  }
}

void Child::Pipe::take(std::string_view bytes) {
  if (!has_lines_) {
    on_line_(bytes);
    return;
  }
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    const bool complete = end != std::string_view::npos;
    if (complete || line_.size() >= kLineBytesMax) {
      on_line_(std::exchange(line_, {}));
    }
    bytes = complete ? bytes.substr(end + 1) : std::string_view{};
  }
}

}  // namespace poprun::launcher
