#pragma once

#include "replica/models/onnx/node.h"

/// Nodes with graphs inside: If, whose condition must be known at import, and Loop and Scan, which are unrolled.
namespace poprun::onnx_import {

/// Returns how to translate one of these nodes, or null for any other operator.
const Translator* find_control(const std::string& op);

/// Adds a tensor that the file stores to the values.
Status add_stored(const ::onnx::TensorProto& tensor, Scope& scope);

/// Translates a node and adds its outputs to the values. Errors name the node.
Status translate(Scope& scope, const ::onnx::NodeProto& proto);

}  // namespace poprun::onnx_import
