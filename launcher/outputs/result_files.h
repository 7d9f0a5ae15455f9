#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/outputs/growing_file.h"
#include "launcher/outputs/safetensors.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

/// The files of a job:
///
///   DIR/weights.safetensors   final weights, complete or absent
///   DIR/outputs.npy           what inference put out, complete or absent
///   DIR/dump-step-N.safetensors  tensors of a training step, or of as much of it as ran
///   DIR/metrics.csv           one row a step and evaluation, growing
///   DIR/profile.json          the Profile message, complete or absent
///   DIR/profile.pb            the same, serialised; only of `poprun-emu profile`
///   DIR/failure.txt           of a job that failed: what each replica did; no earlier result
///   DIR/logs/replica-NN.log   what each replica wrote; no earlier result
///
/// and of a check, which leaves those above alone:
///
///   DIR/check.json            what the last check that ended found
///   DIR/check-failure.txt     as failure.txt
///   DIR/check-logs/           as logs/
///
/// A write that fails (disk full) is kInfrastructure with the file's name and, where room is short,
/// what it needs and what there is. A file that was to be complete is absent then, and one that
/// grows ends with a whole line.
namespace poprun::launcher {

/// What a run leaves besides its results: names in its folder.
struct Traces {
  const char* logs;
  const char* failure;
};
Traces traces_of(const proto::RunConfig& config);

/// The folder that a job writes to, and no other job of this machine as long as this lives.
class OutputFolder {
 public:
  /// Makes the folder, with one named `logs`, where they are not there. What an earlier run left
  /// stays, but for results that were not whole when it was killed. With `sets_aside`, failure.txt
  /// and logs of an earlier attempt move to the next free attempts/N, as far as possible. `held`:
  /// what an earlier attempt took of the same `folder`; no other job gets it in between.
  ///
  /// Errors
  ///   kUsage  it can't be made or written to, another job has it, or it holds earlier results and
  ///           `overwrite` is false.
  static Result<OutputFolder> take(const std::string& folder, bool overwrite,
                                   std::string_view logs = "logs", bool sets_aside = false,
                                   OutputFolder held = {});

  /// None.
  OutputFolder() noexcept;
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  ~OutputFolder();

 private:
  explicit OutputFolder(int lock) : lock_(lock) {}

  /// Whether it is the one at `path`, and not one that was removed from there.
  [[nodiscard]] bool lies_at(const std::string& path) const;

  int lock_ = -1;  ///< The open and locked folder, or -1.
};

/// Errors
///   kInfrastructure  the disk of `folder` has no room for `bytes` of weights that this user could
///                    take, earlier results not counted: they go first.
Status check_room(const std::string& folder, std::uint64_t bytes);

/// Removes the results of an earlier run, its dumps if `dumps`, and why it failed; not the file
/// `kept`, which this job begins from. Its logs go with the first new one.
///
/// Errors
///   kInfrastructure  one cannot be removed: better known now than when the new one is complete.
Status clear_results(const std::string& folder, const std::string& kept, bool dumps = true);

/// Writes `parts` one after the other to `path`, so that the file is there whole or not at all.
/// Where `given_up` becomes true meanwhile, from another thread, not at all.
Status write_whole_file(const std::string& path, const std::vector<std::string_view>& parts,
                        const std::atomic<bool>* given_up = nullptr);

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

  /// Orders the tensors that are complete by name.
  void sort_by_name();

  /// Errors: kBug, the last tensor is not complete. Else as write_whole_file.
  [[nodiscard]] Status write(const std::string& path,
                             const std::atomic<bool>* given_up = nullptr) const;

  /// Whether the last tensor is complete.
  [[nodiscard]] bool complete() const { return !open_; }

 private:
  std::vector<Tensor> tensors_;
  bool open_ = false;  ///< The last tensor expects more.
};

/// One log a replica, opened when its first line comes. The very first removes those of an earlier
/// run. While the disk is full a few lines of each wait, and the others are counted.
class ReplicaLogs {
 public:
  ReplicaLogs(std::string folder, std::uint32_t replicas)
      : folder_(std::move(folder)), replicas_(replicas) {}

  /// `FOLDER/replica-05.log`: enough digits that names sort.
  [[nodiscard]] std::string path(std::uint32_t replica) const;

  void write(std::uint32_t replica, std::string_view line);

  /// Lines that wait are tried again. Errors: kInfrastructure, the first log that cannot be
  /// written.
  Status flush();

 private:
  std::string folder_;
  std::uint32_t replicas_;
  std::map<std::uint32_t, GrowingFile> files_;  ///< By replica.
  bool waiting_ = false;                        ///< A line of one.
};

}  // namespace poprun::launcher
