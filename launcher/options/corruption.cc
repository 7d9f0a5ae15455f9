#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"

namespace poprun::launcher {

Read<proto::BitFlip> FlippedBit::read(const std::string& text) const {
  const std::size_t colon = text.find(':');
  const std::size_t at = text.rfind('@');
  if (colon != std::string::npos && at != std::string::npos && colon + 1 < at) {
    const auto replica = parse_number<std::uint32_t>(std::string_view(text).substr(0, colon));
    const auto step = parse_number<std::uint64_t>(std::string_view(text).substr(at + 1));
    if (replica && step && *step > 0) {
      proto::BitFlip flip;
      flip.set_replica(*replica);
      flip.set_tensor(text.substr(colon + 1, at - colon - 1));
      flip.set_step(*step);
      return flip;
    }
  }
  return tl::unexpected<std::string>{"REPLICA:TENSOR@STEP, such as 3:fc1.weight@40"};
}

Status check_corruption(const Options& options) {
  const proto::CorruptionConfig& corruption = options.config.corruption();
  const std::uint64_t every = corruption.replay_every();
  if (every == 0 && corruption.flips().empty()) {
    return {};
  }
  POPRUN_TRY(check_trains(options, every > 0 ? "--replay-every" : "--flip-bit"));
  const std::uint32_t replicas = options.config.topology().num_replicas();
  if (every > 0 && replicas < 2) {
    return fail(ErrorCode::kUsage, fmt::format("--replay-every = {} needs at least 2 replicas (-n), because a second "
                                               "replica computes the micro-batches again",
                                               every));
  }
  if (const std::uint64_t steps = options.config.training().steps(); steps > 0 && every > steps) {
    return fail(ErrorCode::kUsage,
                fmt::format("--replay-every = {}: the job has only {} (training.steps), so none would be replayed; use "
                            "a smaller number",
                            every, counted(steps, "step")));
  }
  for (const proto::BitFlip& flip : corruption.flips()) {
    if (flip.replica() >= replicas) {
      return fail(ErrorCode::kUsage, fmt::format("--flip-bit = {}:{}@{}: the job has replicas 0 to {}", flip.replica(),
                                                 flip.tensor(), flip.step(), replicas - 1));
    }
  }
  return {};
}

}  // namespace poprun::launcher
