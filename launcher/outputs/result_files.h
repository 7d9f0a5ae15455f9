#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/outputs/safetensors.h"
#include "proto/coordinator.pb.h"
#include "proto/profile.pb.h"
#include "replica/base/error.h"

/// The files of a job:
///
///   DIR/weights.safetensors   final weights, complete or absent
///   DIR/outputs.npy           what inference put out, complete or absent
///   DIR/dump-step-N.safetensors  tensors of a training step, or of as much of it as ran
///   DIR/metrics.csv           one row a step and evaluation, growing
///   DIR/profile.json          the Profile message, complete or absent
///   DIR/failure.txt           of a job that failed: what each replica did; no earlier result
///   DIR/logs/replica-NN.log   what each replica wrote; no earlier result
///
/// A write that fails (disk full) is kInfrastructure with the file's name, at the latest when the
/// file is finished.
namespace poprun::launcher {

/// The folder that a job writes to, and no other job of this machine as long as this lives.
class OutputFolder {
 public:
  /// Makes the folder where it is not there. What an earlier run left stays.
  ///
  /// Errors
  ///   kUsage  it can't be made or written to, another job has it, or it holds earlier results and
  ///           `overwrite` is false.
  static Result<OutputFolder> take(const std::string& folder, bool overwrite);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  ~OutputFolder();

 private:
  explicit OutputFolder(int lock) : lock_(lock) {}

  int lock_;  ///< The open and locked folder, or -1.
};

/// Errors
///   kInfrastructure  the disk of `folder` has no room for `bytes` of weights, earlier results
///                    not counted: they go first.
Status check_room(const std::string& folder, std::uint64_t bytes);

/// Removes the results of an earlier run, and why it failed; not the file `kept`, which this job
/// begins from. Its logs go with the first new one.
///
/// Errors
///   kInfrastructure  one cannot be removed: better known now than when the new one is complete.
Status clear_results(const std::string& folder, const std::string& kept);

/// Writes `parts` one after the other to `path`, so that the file is there whole or not at all.
Status write_whole_file(const std::string& path, const std::vector<std::string_view>& parts);

/// A file that grows.
class GrowingFile {
 public:
  static Result<GrowingFile> open(const std::string& path);
  Status append(std::string_view text);
  Status flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[nodiscard]] Status failed() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

std::string metrics_header();
/// Floats with 9 digits, so that each float32 reads back exactly. An evaluation's split is "test".
std::string metrics_row(const proto::StepMetrics& metrics);
std::string metrics_row(const proto::EvaluationMetrics& metrics);

/// Puts weights, or a dump's tensors, together from the chunks of a report.
class WeightsCollector {
 public:
  /// Errors
  ///   kBug  chunks of two tensors are mixed, a type is unknown, or the size does not fit the
  ///   shape.
  Status take(const proto::TensorChunk& chunk);

  /// Forgets a last tensor that is not complete. Returns how many there are.
  std::size_t keep_complete();

  /// Errors: kBug, the last tensor is not complete. Else as write_whole_file.
  [[nodiscard]] Status write(const std::string& path) const;

 private:
  std::vector<Tensor> tensors_;
  bool open_ = false;  ///< The last tensor expects more.
};

Status write_profile(const std::string& path, const proto::Profile& profile);

/// One log a replica, opened when its first line comes. The very first removes those of an earlier
/// run.
class ReplicaLogs {
 public:
  ReplicaLogs(std::string folder, std::uint32_t replicas)
      : folder_(std::move(folder)), replicas_(replicas) {}

  /// `FOLDER/replica-05.log`: enough digits that names sort.
  [[nodiscard]] std::string path(std::uint32_t replica) const;

  Status write(std::uint32_t replica, std::string_view line);

 private:
  std::string folder_;
  std::uint32_t replicas_;
  std::map<std::uint32_t, GrowingFile> files_;  ///< By replica.
};

}  // namespace poprun::launcher
