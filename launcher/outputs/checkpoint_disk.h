#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/checkpoint.pb.h"
#include "replica/base/error.h"

/// Disk operations of a checkpoint writer. Errors of all: kInfrastructure, with the file's name.
namespace poprun::launcher {

/// Makes files that were created or renamed in a folder survive a crash.
Status sync_folder(const std::string& folder);

/// Writes all `bytes` at `offset` of an open file; `path` is its name for messages.
Status write_at(int file, const std::string& path, std::string_view bytes, std::uint64_t offset);

/// Copies the first `lines` lines of a file, piece by piece. Returns false while it has fewer.
Result<bool> copy_lines(const std::string& from, const std::string& to, std::uint64_t lines);

/// Removes a checkpoint so that it is complete or absent even if interrupted.
void remove_checkpoint(const std::string& checkpoint);

/// Removes interrupted checkpoints.
void remove_parts(const std::string& folder);

/// Adds a file of the folder to the manifest, with its size and digest.
Status add_to_manifest(const std::string& folder, const char* name, proto::CheckpointManifest& manifest);

}  // namespace poprun::launcher
