#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"
#include "replica/base/units.h"

/// The compiled artefact. A Program is the protobuf message of proto/program.proto: a plain value
/// that can be printed (`DebugString`), compared and serialised. These functions answer questions
/// that several rooms ask about it.
namespace poprun {

using Program = proto::Program;

/// The function with that name, or null.
const proto::Function* find_function(const Program& program, const std::string& name);

/// Whether a tensor lives at the step with that number.
bool lives_at(const proto::Tensor& tensor, std::uint32_t step);

/// Bytes for people to read, with the exact number: "11.8 MiB (12,345,678 B)".
std::string bytes_text(std::int64_t bytes);

}  // namespace poprun
