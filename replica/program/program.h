#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "proto/program.pb.h"
#include "replica/base/note.h"
#include "replica/base/units.h"
#include "replica/device/device.h"

/// The compiled artefact. A Program is the protobuf message of proto/program.proto: a plain value that can be printed
/// (`DebugString`), compared and serialised. These functions compute properties of a Program that several folders need.
namespace poprun {

using Program = proto::Program;

/// Returns the number of a replica's memories. They are numbered in this order: the In-Processor Memory of each IPU,
/// then the Streaming Memory of each IPU.
std::size_t memory_count(const Program& program);

/// Returns the index of the memory that holds a tensor. Requires: the tensor is on an IPU of the replica.
std::size_t memory_of(const Program& program, const proto::Tensor& tensor);

bool is_remote(const proto::Tensor& tensor);

const proto::Function* find_function(const Program& program, const std::string& name);
/// Returns the names of the functions that other functions call. The host runs all others.
std::set<std::string> called_functions(const Program& program);

bool lives_at(const proto::Tensor& tensor, std::uint32_t step);

/// Returns the bytes that the images of an IPU's tensors need on this machine: as many as the IPU has, or more if the
/// Program does not fit and is executed nevertheless.
Bytes images_capacity(const proto::IpuMemory& memory);

/// Returns the bytes that each tile of the IPU needs on this machine: as many as the tile has, or more if the Program
/// does not fit and is executed nevertheless.
Bytes tile_capacity(const proto::IpuMemory& memory);

/// Returns the bytes of this machine's memory that one replica touches for an IPU: its images, its Streaming Memory
/// and, if the Program runs on tiles, all bytes of the tiles.
Bytes bytes_touched(const proto::IpuMemory& memory);

/// Returns the memory that the IPU would need for its fullest tile to fit, if all tiles grew equally.
Bytes needed(const proto::IpuMemory& memory);

/// Returns whether the IPU has the memory that it needs, and its Streaming Memory has room for all tensors stored
/// there.
bool fits(const proto::IpuMemory& memory);

/// Returns `memory` without the locations of all bytes, which take up most of its space.
proto::IpuMemory without_layout(proto::IpuMemory memory);

/// Returns the memory of the IPU that needs the most.
const proto::IpuMemory& fullest(const Program& program);

/// Returns whether two tensors have a byte in common, at the same time or at different times.
bool share_bytes(const proto::Tensor& a, const proto::Tensor& b);

proto::Note to_proto(const Note& note);
proto::Cost to_proto(const DeviceTime& time);

void add_note(const Note& note, Program& program);

/// Formats bytes for people to read, with the exact number: "11.8 MiB (12,345,678 B)".
std::string bytes_text(std::int64_t bytes);

}  // namespace poprun
