#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"
#include "replica/base/units.h"

/// The compiled artefact. A Program is the protobuf message proto/program.proto: a plain value that
/// prints (`DebugString`), compares and serialises. These are the questions several rooms ask of
/// it.
namespace poprun {

using Program = proto::Program;

/// The function of that name, or null.
const proto::Function* find_function(const Program& program, const std::string& name);

/// Bytes as people read them, with the exact number: "11.8 MiB (12,345,678 B)".
std::string bytes_text(std::int64_t bytes);

}  // namespace poprun
