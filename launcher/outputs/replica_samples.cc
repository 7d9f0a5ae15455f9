#include "launcher/outputs/replica_samples.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "launcher/outputs/read_file.h"

namespace poprun::launcher {
namespace {

constexpr std::uint64_t kRowsPerReplica = 1000;  // Before rows come half as often.
constexpr std::size_t kWaitingBytesMax = 1 << 20;

}  // namespace

void remove_replica_samples(const std::string& folder) {
  std::error_code unused;
  std::filesystem::remove(std::filesystem::path(folder) / kReplicaSamples, unused);
}

ReplicaSamples::ReplicaSamples(DiskThread& disk, std::string path, std::uint32_t replicas)
    : path_(std::move(path)), file_(disk, path_, kWaitingBytesMax), last_(replicas) {}

void ReplicaSamples::go_on() {
  goes_on_ = size_of_file(path_).value_or(0) > 0;
  if (goes_on_) {
    file_.go_on();
  }
}

void ReplicaSamples::take(const proto::Beat& beat, std::uint64_t attempt, double now) {
  for (const proto::ReplicaProgress& replica : beat.replicas()) {
    if (replica.replica() >= last_.size()) {
      continue;
    }
    Last& last = last_[replica.replica()];
    const proto::StepTimes& times = replica.times();
    if (times.steps() <= last.steps || now - last.at < interval_) {
      continue;
    }
    if (first_at_ < 0) {
      first_at_ = now;
      if (!goes_on_) {
        file_.append("wall_seconds,attempt,replica,steps,compute_seconds\n");
      }
    }
    file_.append(fmt::format("{:.3f},{},{},{},{:.6f}\n", now - first_at_, attempt, replica.replica(), times.steps(),
                             times.compute_seconds()));
    last = {times.steps(), now};
    if (++rows_ == kRowsPerReplica * last_.size()) {
      interval_ = std::max(2 * interval_, 2 * (now - first_at_) / static_cast<double>(kRowsPerReplica));
      rows_ = 0;
    }
  }
}

void ReplicaSamples::flush() {
  if (first_at_ >= 0) {
    file_.hand_over();
  }
}

}  // namespace poprun::launcher
