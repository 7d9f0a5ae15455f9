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

/// Every tensor that a step itself names (those inside a repeat are its steps').
std::vector<std::uint32_t> tensors_of(const proto::Step& step);

/// Cost of one call of a function: its steps', those of repeats times their counts.
proto::Cost cost_of(const proto::Function& function);

/// total += times * cost, field by field.
void add_cost(proto::Cost& total, const proto::Cost& cost, std::uint64_t times);

/// All cycles of a cost.
Cycles total_cycles(const proto::Cost& cost);

/// Device seconds of a cost on the Program's device.
double device_seconds(const Program& program, const proto::Cost& cost);

/// Bytes as people read them, with the exact number: "12.3 MB (12,345,678 B)".
std::string bytes_text(std::int64_t bytes);

}  // namespace poprun
