#pragma once

#include <string>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Appends a chunk's numbers ("f32", "f16", "bf16" or "f64") to `floats` as float32 bytes. The
/// first three keep their values.
/// Errors: kData, another type, by name.
Status append_as_f32(const proto::TensorChunk& chunk, std::string& floats);

}  // namespace poprun
