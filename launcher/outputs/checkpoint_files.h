#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "replica/base/error.h"

/// Checkpoints on the disk:
///
///   DIR/step-N/state.safetensors   every variable after step N, optimiser state included
///   DIR/step-N/metrics.csv         the job's metrics up to there
///   DIR/step-N/manifest.json       CheckpointManifest: what else a job needs, and checksums
///   DIR/step-N.part/               one that is being written, or that broke off
///
/// A folder step-N is whole: its files and then the folder itself are on the disk before it gets
/// its name.
namespace poprun::launcher {

inline constexpr const char* kStateFile = "state.safetensors";
inline constexpr const char* kMetricsFile = "metrics.csv";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr std::uint32_t kCheckpointFormat = 1;

struct Checkpoint {
  std::string folder;
  proto::CheckpointManifest manifest;  ///< What this build knows of it.
  bool is_of_this_build = true;        ///< Else its files have not been looked at.
};

/// The folders step-N in `folder`, the latest first. Their files are not looked at.
std::vector<std::string> checkpoints_in(const std::string& folder);

/// Errors
///   kHostResources  `folder` is there, but what is in it cannot be listed; says why.
Status check_can_list(const std::string& folder);

/// N of a folder step-N; 0 for any other name.
std::uint64_t step_of(const std::string& folder);

/// A manifest's text, with its own checksum.
///
/// Errors: kBug, it cannot be written so.
Result<std::string> manifest_text(proto::CheckpointManifest manifest);

/// The manifest of the checkpoint `folder`, checked with its own checksum, and whether each of its
/// files is there, of its size and with its checksum. Reads them whole; not where another version
/// or build wrote the manifest, which is no damage: check_same_job refuses it.
///
/// Errors
///   kData           it is damaged: names the file that is missing, or what was read and differs.
///   kHostResources  a file cannot be read, which says nothing of what is in it; names it and why.
Result<Checkpoint> read_checkpoint(const std::string& folder);

/// Whether a job of `config` goes on from the checkpoint with the bits that it would have had: all
/// settings must be equal, but for where it runs, what it puts out, and, with a constant learning
/// rate, how many steps it has. Of an ONNX model the bytes count (`onnx_sha256`), and not its path.
///
/// Errors
///   kUsage  names the first setting that differs with both values, or the version; or another
///           build wrote it.
///   kData   the model's file is another one.
Status check_same_job(const Checkpoint& checkpoint, const proto::RunConfig& config,
                      const std::string& onnx_sha256);

}  // namespace poprun::launcher
