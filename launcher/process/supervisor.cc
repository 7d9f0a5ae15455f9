#include "launcher/process/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/session/session.h"

namespace poprun::launcher {
namespace {

// When the launcher dies, joined replicas exit immediately, and mpirun exits with them. Replicas that are still
// starting must be killed.
constexpr std::chrono::milliseconds kByItself{3000};
constexpr std::chrono::milliseconds kInOrder{5000};
constexpr std::chrono::milliseconds kKillAgain{100};

/// Kills the children of `mpirun`, which are its replicas on this host and its remote shells. mpirun treats their death
/// as a failure of the job: it ends all other processes and removes its folders and shared memory. Sending SIGTERM to
/// mpirun would have no effect, since mpirun has it blocked (kRequestSignals). Call this repeatedly: mpirun may not
/// have any children yet.
void kill_children(pid_t mpirun) {
  for (const pid_t child : collectives::children_of(mpirun)) {
    signal_child_of(mpirun, child, SIGKILL);
  }
}

bool ends(const ProcessHandle& process, std::chrono::milliseconds patience) {
  pollfd end{.fd = process.descriptor(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(patience.count())) != 0;
}

/// Runs the guard. Makes only calls that are safe after a multi-threaded process forks; glibc's malloc is one of them.
[[noreturn]] void keep_watch(pid_t launcher, pid_t pid, const ProcessHandle& mpirun, collectives::JobFolder& folder) {
  setsid();  // Signals to the launcher's group or terminal are not meant for the guard.
  prctl(PR_SET_NAME, "poprun-guard");
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGTERM);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The launcher's sockets must close when the launcher dies. Otherwise, replicas would not notice its death.
  const auto [first, second] =
      std::minmax({static_cast<unsigned>(mpirun.descriptor()), static_cast<unsigned>(folder.descriptor())});
  close_range(0, first - 1, 0);
  if (second > first + 1) {
    close_range(first + 1, second - 1, 0);
  }
  close_range(second + 1, std::numeric_limits<unsigned>::max(), 0);
  while (getppid() == launcher) {
    sigwaitinfo(&death, nullptr);
  }
  bool ended = ends(mpirun, kByItself);
  for (auto left = kInOrder; !ended && left.count() > 0; left -= kKillAgain) {
    kill_children(pid);
    ended = ends(mpirun, kKillAgain);
  }
  if (!ended) {
    mpirun.signal(SIGKILL);
  }
  folder.remove();
  _exit(0);
}

/// Starts the guard, a process that outlives a killed launcher. Once the launcher is dead, the guard allows mpirun 3 s
/// to end by itself and then kills mpirun's children (kill_children). If mpirun is still running 5 s later, the guard
/// sends it SIGKILL. The guard also holds the lock on the job's `folder`, and removes the folder with everything that a
/// dead mpirun left in it. Call this before mpirun runs (Child::Program::before), so that mpirun never runs without a
/// guard. The guard is a child of this process, which must kill and reap it once mpirun has ended. The guard belongs to
/// the thread that starts it (see Child). Requires: `mpirun` is an unreaped child of this process. Errors:
/// kHostResources if no process could be started or no descriptor was left; the message says why.
Result<ProcessHandle> start_guard(pid_t mpirun, collectives::JobFolder& folder) {
  POPRUN_ASSIGN(const ProcessHandle watched, ProcessHandle::open(mpirun));
  const pid_t launcher = getpid();
  const pid_t guard = fork_with_signals_blocked();
  if (guard == 0) {
    keep_watch(launcher, mpirun, watched, folder);
  }
  if (guard < 0) {
    return fail(ErrorCode::kHostResources,
                fmt::format("cannot start the process that guards mpirun: {}; check ulimit -u and the control "
                            "group's pids.max",
                            std::strerror(errno)));
  }
  return ProcessHandle::open(guard);
}

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : own.parent_path();
}

Result<std::string> beside_us(const char* name) {
  const fs::path path = own_folder() / name;
  if (access(path.c_str(), X_OK) != 0) {
    return fail(ErrorCode::kHostResources,
                fmt::format("{} is missing or not executable; poprun-emu, poprun-emu-replica, "
                            "poprun-emu-hostio and poprun-emu-remote-shell must be in the same folder",
                            path.string()));
  }
  return path.string();
}

}  // namespace

Result<Programs> find_programs(bool other_hosts) {
  Programs programs;
  POPRUN_ASSIGN(programs.replica, beside_us("poprun-emu-replica"));
  POPRUN_ASSIGN(programs.data_server, beside_us("poprun-emu-hostio"));
  if (other_hosts) {
    POPRUN_TRY(beside_us("poprun-emu-remote-shell").map([](const std::string&) {}));
  }
  const std::optional<std::string> mpirun = in_path("mpirun");
  if (!mpirun) {
    return fail(ErrorCode::kHostResources,
                "mpirun is not in PATH; install Open MPI 4.1 (on Debian: apt install openmpi-bin)");
  }
  programs.mpirun = *mpirun;
  return programs;
}

std::optional<std::string> in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / program;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return std::nullopt;
}

Status check_mpirun_version(const std::string& mpirun, const std::string& answer) {
  constexpr std::string_view kOpenMpi = "(Open MPI) ";
  const std::size_t at = answer.find(kOpenMpi);
  std::string is = "not from Open MPI";
  if (at != std::string::npos) {
    const std::string version = answer.substr(at + kOpenMpi.size());
    if (version.starts_with("4.")) {
      return {};
    }
    is = "from Open MPI " + version.substr(0, version.find_first_of(" \n"));
  } else if (answer.find("Intel") != std::string::npos) {
    is = "from Intel MPI";
  } else if (answer.find("HYDRA") != std::string::npos) {
    is = "from MPICH";
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("no replica could be started: {} is {}, but Open MPI 4.1 is needed; put "
                          "that version's folder first in PATH (on Debian: apt install openmpi-bin)",
                          mpirun, is));
}

constexpr int kTimedOut = 124;  // Exit code of `timeout`.

Status check_mpirun_program(const std::string& mpirun) {
  std::string quoted;
  for (const char c : mpirun) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  const std::string line = fmt::format("env -u OPAL_PREFIX timeout 5 '{}' --version </dev/null 2>&1", quoted);
  FILE* const pipe = popen(line.c_str(), "re");
  if (pipe == nullptr) {
    return {};
  }
  std::string answer;
  std::array<char, 4096> part{};
  while (true) {
    const std::size_t bytes = fread(part.data(), 1, part.size(), pipe);
    answer.append(part.data(), bytes);
    if (bytes > 0 || (ferror(pipe) != 0 && errno == EINTR)) {  // SIGCHLD interrupted the read.
      clearerr(pipe);
      continue;
    }
    break;
  }
  const int status = pclose(pipe);
  const bool answered = WIFEXITED(status) && WEXITSTATUS(status) != kTimedOut;
  return answered || !answer.empty() ? check_mpirun_version(mpirun, answer) : Status{};
}

std::string path_beside_us(const std::string& program) {
  return own_folder() / program;
}

Supervisor::Supervisor(asio::io_context& loop) : loop_(loop), exits_(loop, SIGCHLD), again_(loop) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  wait_for_exits();
}

Status Supervisor::start_mpirun(const Child::Program& program, collectives::JobFolder& folder, Child::OnLine on_stdout,
                                Child::OnLine on_stderr, OnExit on_exit) {
  Child::Program guarded = program;
  guarded.before = [&](pid_t mpirun) -> Status {
    POPRUN_ASSIGN(ProcessHandle guard, start_guard(mpirun, folder));
    guard_.emplace(std::move(guard));
    return {};
  };
  Status started = start(mpirun_, guarded, std::move(on_stdout), std::move(on_stderr), std::move(on_exit));
  if (!started) {
    end_guard();
  }
  return started;
}

Status Supervisor::start_data_server(const Child::Program& program, Child::OnLine on_stdout, Child::OnLine on_stderr,
                                     OnExit on_exit) {
  return start(data_server_, program, std::move(on_stdout), std::move(on_stderr), std::move(on_exit));
}

Status Supervisor::start_inquiry(const Child::Program& program, Child::OnLine on_stdout, Child::OnLine on_stderr,
                                 OnExit on_exit) {
  return start(inquiry_, program, std::move(on_stdout), std::move(on_stderr), std::move(on_exit));
}

Status Supervisor::start(Process& process, const Child::Program& program, Child::OnLine on_stdout,
                         Child::OnLine on_stderr, OnExit on_exit) {
  POPRUN_ASSIGN(process.child, Child::start(loop_, program, std::move(on_stdout), std::move(on_stderr)));
  process.on_exit = std::move(on_exit);
  return {};
}

void Supervisor::terminate() {
  end_mpirun();
  if (data_server_.runs()) {
    data_server_.child->kill();
  }
}

void Supervisor::end_mpirun() {
  if (!mpirun_.runs()) {
    return;
  }
  kill_children(mpirun_.child->pid());
  again_.expires_after(kKillAgain);
  again_.async_wait([this](const asio::error_code& error) {
    if (!error) {
      end_mpirun();
    }
  });
}

void Supervisor::kill_all() {
  for (const Process* process : {&mpirun_, &data_server_, &inquiry_}) {
    if (process->runs()) {
      process->child->kill();
    }
  }
  // Orphans of mpirun become our children, so the next call finds them.
  for (const pid_t child : collectives::children_of(getpid())) {
    signal_child_of(getpid(), child, SIGKILL);
  }
}

void Supervisor::wait_for_exits() {
  exits_.async_wait([this](const asio::error_code& error, int /*signal*/) {
    if (!error) {
      reap();
      wait_for_exits();
    }
  });
}

void Supervisor::end_guard() {
  if (guard_) {
    guard_->signal(SIGKILL);
    guard_->reap();
    guard_.reset();
  }
}

void Supervisor::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (Process* process : {&mpirun_, &data_server_, &inquiry_}) {
      if (process->runs() && process->child->pid() == pid) {
        process->ended = true;
        process->child->reaped();
        if (process == &mpirun_) {
          end_guard();
        }
        process->child->drain();
        process->on_exit(status);
      }
    }
  }
}

}  // namespace poprun::launcher
