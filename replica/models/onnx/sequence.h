#pragma once

#include <string>

namespace poprun::onnx_import {

/// Returns whether an operator accepts sequences of tensors, which are known as lists at import.
bool takes_sequences(const std::string& op);

}  // namespace poprun::onnx_import
