#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/graph/types.h"
#include "replica/program/program.h"

namespace poprun {

/// Appends the numbers in `data`, of the tensor `name` and its type ("f32", "f16", "bf16" or
/// "f64"), to `floats` as float32 bytes. The first three keep their values.
/// Errors: kData, another type, by name.
Status append_as_f32(std::string_view name, std::string_view type, std::string_view data,
                     std::string& floats);

/// Whether the file of initial weights, given by its tensors' shapes, has what the Program reads
/// from the host; where the model has weights of its own, it need not have all.
/// Errors: kData, a tensor that is missing or has another shape.
Status check_initial_weights(const Program& program,
                             const std::map<std::string, Shape, std::less<>>& file,
                             bool model_has_weights);

}  // namespace poprun
