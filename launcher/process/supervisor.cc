#include "launcher/process/supervisor.h"

#include <csignal>
#include <utility>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/session/children.h"
#include "launcher/process/guard.h"

namespace poprun::launcher {

Supervisor::Supervisor(asio::io_context& loop) : loop_(loop), exits_(loop, SIGCHLD), again_(loop) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  wait_for_exits();
}

Status Supervisor::start_mpirun(const Child::Program& program, collectives::JobFolder& folder,
                                Child::OnLine on_stdout, Child::OnLine on_stderr, OnExit on_exit) {
  Child::Program guarded = program;
  guarded.before = [&](pid_t mpirun) -> Status {
    POPRUN_ASSIGN(ProcessHandle guard, start_guard(mpirun, folder));
    guard_.emplace(std::move(guard));
    return {};
  };
  Status started =
      start(mpirun_, guarded, std::move(on_stdout), std::move(on_stderr), std::move(on_exit));
  if (!started) {
    end_guard();
  }
  return started;
}

Status Supervisor::start_data_server(const Child::Program& program, Child::OnLine on_stdout,
                                     Child::OnLine on_stderr, OnExit on_exit) {
  return start(data_server_, program, std::move(on_stdout), std::move(on_stderr),
               std::move(on_exit));
}

Status Supervisor::start_inquiry(const Child::Program& program, Child::OnLine on_stdout,
                                 Child::OnLine on_stderr, OnExit on_exit) {
  return start(inquiry_, program, std::move(on_stdout), std::move(on_stderr), std::move(on_exit));
}

Status Supervisor::start(Process& process, const Child::Program& program, Child::OnLine on_stdout,
                         Child::OnLine on_stderr, OnExit on_exit) {
  POPRUN_ASSIGN(process.child,
                Child::start(loop_, program, std::move(on_stdout), std::move(on_stderr)));
  process.on_exit = std::move(on_exit);
  return {};
}

void Supervisor::terminate() {
  end_mpirun();
  terminate_data_server();
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

void Supervisor::terminate_data_server() {
  if (data_server_.runs()) {
    data_server_.child->kill();
  }
}

void Supervisor::kill_all() {
  for (const Process* process : {&mpirun_, &data_server_, &inquiry_}) {
    if (process->runs()) {
      process->child->kill();
    }
  }
  // What mpirun leaves behind becomes our child, and is found in the next round.
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
