#pragma once

#include <chrono>
#include <optional>

#include <sys/types.h>

#include "replica/base/error.h"

namespace poprun::launcher {

/// A process by the kernel's own descriptor (pidfd_open(2)): signals reach it and no other, also
/// where it has ended and its number went to another process. Without one there is nothing to
/// signal, so that no error ends in a number that means "my whole group" or "all processes".
class ProcessHandle {
 public:
  /// Requires: `pid` is a child of this process that was not reaped, or the caller checks after it
  /// that it got whom it meant.
  ///
  /// Errors
  ///   kHostResources  no such process, or no descriptor left; says why.
  static Result<ProcessHandle> open(pid_t pid);

  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&& other) noexcept;
  ~ProcessHandle();

  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Nothing where the process has ended.
  void signal(int number) const;

  /// Waits for the end of a child and reaps it.
  void reap() const;

 private:
  explicit ProcessHandle(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;  ///< -1: moved from.
};

/// Sends `number` to `pid` if `parent` is its parent.
void signal_child_of(pid_t parent, pid_t pid, int number);

}  // namespace poprun::launcher
