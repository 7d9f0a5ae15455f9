#pragma once

#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Answers `estimate --matmul`, `--convolution` and `--all-reduce`: plans one product on one IPU, or one all-reduce of
/// all replicas, and computes its device time. A plan may use the configured proportion of a tile's memory; nothing
/// else is in the memory. Cost: milliseconds. Errors: kUsage if the device is unknown, if the kernel is larger than the
/// padded image, or if there is a single replica to reduce over.
Status answer_micro(const proto::MicroQuestion& question, proto::MicroAnswer& answer);

}  // namespace poprun
