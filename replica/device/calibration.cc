#include "replica/device/calibration.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace poprun {

std::span<const FittedSeconds> host_calls() {
  static constexpr std::array kCalls = {
      FittedSeconds{"none", 0,
                    "TensorFlow's infeed loops: a pair of MLPerf v1.1 results of ResNet-50 leaves 0 to 4 ms"},
      FittedSeconds{"popart", 0.16,
                    "BERT-Large in PopART: MLPerf v1.1 on 16, 64 and 128 IPUs, and phases 1 and 2 on 16 Bow IPUs; "
                    "BERT-Base, phase 1"},
      FittedSeconds{"poptorch", 0.6, "BERT-Large, packed, and BERT-Base in PyTorch, phase 1 on 16 Bow IPUs"},
  };
  return kCalls;
}

double host_call_seconds(std::string_view text) {
  const auto named = std::ranges::find(host_calls(), text, &FittedSeconds::name);
  if (named != host_calls().end()) {
    return named->seconds;
  }
  double seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

const FittedSeconds kCollectiveStart = {"collective", 9e-6,
                                        "a small CNN on two replicas, whose 6 tensors of 139 kB in all take 53 us"};

// The constant c of `a * convolutions + b * batch + c`, the wall time of a batch (poplibs, lib/poplin/ConvPlan.cpp).
const FittedSeconds kInferenceCall = {"inference", 1.85e-3,
                                      "Graphcore's table 2.1, ResNeXt-50 inference, batches of 2, 6, 10, 14 and 18"};

}  // namespace poprun
