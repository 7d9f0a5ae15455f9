#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "replica/base/error.h"

/// Checkpoints on the disk:
///
///     DIR/step-N/state.safetensors   every variable after step N, optimiser state included
///     DIR/step-N/metrics.csv         the job's metrics up to step N
///     DIR/step-N/manifest.json       CheckpointManifest: everything else that a job needs, and checksums
///     DIR/step-N.part/               an incomplete checkpoint, in progress or interrupted
///
/// A folder step-N is always complete, because its contents are synced to the disk before it gets this name.
namespace poprun::launcher {

inline constexpr const char* kStateFile = "state.safetensors";
inline constexpr const char* kMetricsFile = "metrics.csv";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr std::uint32_t kCheckpointFormat = 1;

struct Checkpoint {
  std::string folder;
  proto::CheckpointManifest manifest;  ///< Without fields that are unknown to this build.
  bool is_of_this_build = true;        ///< If false, the files have not been checked.
};

/// Returns the folders step-N in `folder`, the latest first. Their files are not checked.
std::vector<std::string> checkpoints_in(const std::string& folder);

/// Checks that the contents of `folder`, if it exists, can be listed. Errors: kHostResources; the message says why.
Status check_can_list(const std::string& folder);

/// Returns N for a folder step-N, and 0 for any other name.
std::uint64_t step_of(const std::string& folder);

/// Formats a manifest, including its own checksum. Errors: kBug if it cannot be formatted.
Result<std::string> manifest_text(proto::CheckpointManifest manifest);

/// Reads the manifest of the checkpoint `folder`. Checks the manifest against its own checksum, and each file against
/// the size and checksum in the manifest. This reads the files completely. If a different version or build wrote the
/// manifest, the files are not read: such a checkpoint is not damaged, but check_same_job rejects it.
///
/// Errors
///   kData           the checkpoint is damaged; the message names the missing file, or the item that differs.
///   kHostResources  a file cannot be read, so its contents are unknown; the message names the file and the reason.
Result<Checkpoint> read_checkpoint(const std::string& folder);

/// Checks that a job with `config` can continue the checkpoint with bit-identical results. All settings must be the
/// same, apart from those of the hosts, of the outputs and, if the learning rate is constant, the number of steps. An
/// ONNX model is compared by its bytes (`onnx_sha256`), not by its path.
///
/// Errors
///   kUsage  a setting or the version differs (the message has both values), or a different build wrote the checkpoint.
///   kData   the model's file has changed.
Status check_same_job(const Checkpoint& checkpoint, const proto::RunConfig& config, const std::string& onnx_sha256);

// Disk operations of a checkpoint writer. Errors: kInfrastructure, or kData from add_to_manifest, with the file's name.

/// Copies the first `lines` lines of a file, piece by piece. Returns false if the file does not have that many yet.
Result<bool> copy_lines(const std::string& from, const std::string& to, std::uint64_t lines);

/// Removes a checkpoint. If the removal is interrupted, even by a crash of the machine, the checkpoint is still either
/// complete or absent.
void remove_checkpoint(const std::string& checkpoint);

void remove_parts(const std::string& folder);

/// Adds a file of the folder to the manifest, with its size and digest.
Status add_to_manifest(const std::string& folder, const char* name, proto::CheckpointManifest& manifest);

}  // namespace poprun::launcher
