#pragma once

#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The bytes of `[model] onnx`. The launcher knows no model: replica 0 takes them apart.
/// Errors: kData, it is missing, unreadable, empty, or larger than protobuf's 2 GiB.
Result<std::string> read_model_file(const std::string& path);

}  // namespace poprun::launcher
