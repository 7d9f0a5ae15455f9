#include "launcher/outputs/saving.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace poprun::launcher {
namespace {

constexpr double kBetweenTriesSeconds = 1;

}  // namespace

Saving::Saving(Write write) : write_(std::move(write)) {
  begin();
}

Saving::~Saving() {
  given_up_ = true;
}

void Saving::begin() {
  const auto task = [this] { return write_(given_up_); };
  try {
    running_ = std::async(std::launch::async, task);
  } catch (const std::system_error&) {  // The host has no room for a thread.
    running_ = std::async(std::launch::deferred, task);
  }
}

void Saving::refresh(double now) {
  if (done_) {
    return;
  }
  if (!running_.valid()) {
    if (now - failed_at_ >= kBetweenTriesSeconds) {
      begin();
    }
    return;
  }
  if (running_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) {
    return;
  }
  const Status written = running_.get();
  done_ = written.has_value();
  failure_ = done_ ? std::nullopt : std::optional(written.error());
  failed_at_ = now;
}

}  // namespace poprun::launcher
