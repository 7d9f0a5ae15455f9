#pragma once

#include <cstdint>

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include "replica/base/error.h"

/// The definitions of ONNX's operators up to kNewestOpset. Debian's libonnx knows those up to opset 17; schemas.cc
/// lists what later opsets added or changed.
namespace poprun::onnx_import {

inline constexpr std::int64_t kNewestOpset = 28;

/// Finds the definition of an operator in an opset: the newest one up to that opset.
class Schemas final : public ::onnx::ISchemaRegistry {
 public:
  /// Returns null for an operator that does not exist in that opset. Thread-safe.
  const ::onnx::OpSchema* GetSchema(const std::string& name, int opset, const std::string& domain) const override;
};

/// Returns the one registry.
const Schemas& schemas();

/// Checks the model's graph with libonnx's checker and these definitions. Errors: kData.
Status check_graph(const ::onnx::ModelProto& model, std::int64_t opset);

}  // namespace poprun::onnx_import
