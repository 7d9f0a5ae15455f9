#include "replica/device/calibration.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace poprun {

std::span<const FittedNumber> host_calls() {
  static constexpr std::array kCalls = {
      FittedNumber{.name = "none", .rows = "rn50-mk2-16, rn50-mk2-64: TensorFlow's loops leave 0 to 4 ms"},
      FittedNumber{.name = "popart",
                   .seconds = 0.16,
                   .rows = "bl-p1-bow-16-popart, bl-p1-bow-16-packed-popart, bl-p2-384-bow-16-popart, "
                           "bl-mlperf-mk2-16, bl-mlperf-mk2-64, bl-mlperf-mk2-128, bb-p1-bow-16-popart"},
      FittedNumber{.name = "poptorch",
                   .seconds_per_parameter = 3e-9,
                   .rows = "rn50-bow-16-pt, bl-p1-bow-16-packed-pt, bb-p1-bow-16-pt, vit-bow-16"},
  };
  return kCalls;
}

bool is_framework(std::string_view text) {
  return std::ranges::find(host_calls(), text, &FittedNumber::name) != host_calls().end();
}

double host_call_seconds(std::string_view text, std::uint64_t parameters) {
  const auto named = std::ranges::find(host_calls(), text, &FittedNumber::name);
  if (named != host_calls().end()) {
    return named->seconds + named->seconds_per_parameter * static_cast<double>(parameters);
  }
  double seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

std::vector<FittedNumber> fitted_numbers() {
  std::vector<FittedNumber> all(host_calls().begin(), host_calls().end());
  all.insert(all.end(), {kCollectiveStart, kUpdateOperation, kInferenceCall});
  std::erase_if(all, [](const FittedNumber& one) {
    return one.seconds == 0 && one.cycles == 0 && one.seconds_per_parameter == 0;
  });
  return all;
}

double compared_error(std::string_view kind) {
  // tests/e2e/validate_test.py fails if an error is not the one that `validate` finds.
  struct Compared {
    std::string_view kind;
    double error;
  };
  constexpr std::array kCompared = {Compared{"bert-base", 0.05}, Compared{"bert-large", 0.04}, Compared{"matmul", 0.03},
                                    Compared{"resnet50", 0.05}, Compared{"vit-base-16", 0.05}};
  const auto* const found = std::ranges::find(kCompared, kind, &Compared::kind);
  return found == kCompared.end() ? 0 : found->error;
}

const FittedNumber kCollectiveStart = {.name = "start of a collective",
                                       .seconds = 9e-6,
                                       .rows = "a small CNN on two replicas: 6 tensors of 139 kB in all take 53 us"};

const FittedNumber kUpdateOperation = {
    .name = "operation of an update",
    .cycles = 650,
    .rows = "rn50-mk2-16, rn50-mk2-64, rn50-bow-16-tf1, rn50-bow-64-tf1: rest of a step"};

// The wall time of a batch beyond our device time, c + b * batch; b is 0.2012 ms for each 602,112 B of a sample
// (tests/bench/available_memory.py).
const FittedNumber kInferenceCall = {.name = "call in inference",
                                     .seconds = 1.68e-3,
                                     .seconds_per_byte = 0.2012e-3 / 602'112,
                                     .rows = "table 2.1 (ResNeXt-50), batches of 2, 6, 10, 14 and 18"};

}  // namespace poprun
