#pragma once

#include <string>
#include <vector>

#include "launcher/outputs/safetensors.h"
#include "replica/base/error.h"

/// Weights in one file or in several, as Hugging Face saves large models:
///
///     model.safetensors.index.json   {"metadata": {...}, "weight_map": {"lm_head.weight": "model-2.safetensors", ...}}
///     model-1.safetensors            in the same folder
namespace poprun::launcher {

/// Reads the .safetensors file at `path` or, if `path` ends in .json, all files that this index lists, in the order of
/// their names. Errors: those of `read_safetensors`, and kData if the index is damaged, names a file outside its
/// folder, or does not list exactly the tensors of the files.
Result<std::vector<Tensor>> read_weights(const std::string& path);

}  // namespace poprun::launcher
