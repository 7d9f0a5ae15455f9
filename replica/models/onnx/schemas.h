#pragma once

#include <cstdint>

#include <onnx/defs/schema.h>

/// The definitions of ONNX's operators up to kNewestOpset. Debian's libonnx knows those up to opset 17; schemas.cc
/// lists what later opsets added or changed.
namespace poprun::onnx_import {

inline constexpr std::int64_t kNewestOpset = 28;
inline constexpr std::int64_t kLibraryOpset = 17;
/// The newest IR version that libonnx's checker accepts. Later versions added element types and metadata, which the
/// importer itself refuses or ignores.
inline constexpr std::int64_t kLibraryIr = 8;

/// Finds the definition of an operator in an opset: the newest one up to that opset.
class Schemas final : public ::onnx::ISchemaRegistry {
 public:
  /// Returns null for an operator that does not exist in that opset. Thread-safe.
  const ::onnx::OpSchema* GetSchema(const std::string& name, int opset, const std::string& domain) const override;
};

/// Returns the one registry.
const Schemas& schemas();

}  // namespace poprun::onnx_import
