#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <optional>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Files that are written by a thread of their own, since a slow disk takes minutes for large ones,
/// and tried again where they cannot be. Belongs to one thread.
class Saving {
 public:
  /// Runs in the other thread, again after each failure. Should come back soon once `given_up`.
  using Write = std::function<Status(const std::atomic<bool>& given_up)>;

  /// Begins to write.
  explicit Saving(Write write);
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  /// Gives up what is under way, and waits for that.
  ~Saving();

  /// To be called often: sees what came of it, and tries again a second after a failure. `now` is
  /// seconds of a clock that never jumps.
  void refresh(double now);

  [[nodiscard]] bool done() const { return done_; }
  /// Why the last try failed; nothing before the first has, and once it is done.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  void begin();

  Write write_;
  std::atomic<bool> given_up_ = false;
  std::future<Status> running_;
  std::optional<Error> failure_;
  double failed_at_ = 0;
  bool done_ = false;
};

}  // namespace poprun::launcher
