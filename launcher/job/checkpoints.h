#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "launcher/job/checkpoint_requests.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/screen/console.h"
#include "proto/coordinator.pb.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The checkpoints of one job: what it goes on from, when the next one is due, and what became of
/// each. Belongs to the loop's thread; its writer belongs to the thread that waits for the disk.
class JobCheckpoints {
 public:
  /// All references must outlive this.
  JobCheckpoints(asio::io_context& loop, const Options& options, Console& console);

  /// Finds what the job goes on from. `onnx_sha256`: of its model's file, if it has one.
  ///
  /// Errors
  ///   kUsage  there is none; it is another job's; or the folder holds checkpoints of an earlier
  ///           one.
  ///   kData   all that there are are damaged.
  Status find(const std::string& onnx_sha256);

  /// Takes the folder, if checkpoints were asked for. Errors: those of CheckpointWriter.
  Status take_folder();

  [[nodiscard]] const std::optional<Checkpoint>& resumed() const { return resumed_; }
  /// What is in the job's folders is its own, from before a break.
  [[nodiscard]] bool goes_on() const { return goes_on_; }
  [[nodiscard]] std::uint64_t resumed_step() const {
    return resumed_ ? resumed_->manifest.host().step() : 0;
  }
  /// Path of its variables, or nothing.
  [[nodiscard]] std::string resumed_state() const {
    return resumed_ ? resumed_->folder + "/" + kStateFile : "";
  }
  [[nodiscard]] CheckpointWriter& writer() { return writer_; }

  /// What every checkpoint tells of the job's data and of who computes. Each is known once.
  /// Errors: kData, kHostResources: not what the job goes on from had.
  Status take_data(const proto::Dataset& dataset);
  Status take_numerics(const proto::JoinRequest& request);

  /// The user wants one now.
  void wish() { requests_.wish(); }

  /// As in CheckpointRequests.
  std::optional<std::uint64_t> due(std::uint64_t step, std::uint64_t steps, double now);

  /// Checkpoints stored so far, and the last one's step; 0: none. Of the job's own and the one that
  /// it went on from.
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  /// Seconds of the clock at which it was stored.
  [[nodiscard]] double last_at() const { return last_at_; }

  /// "3 in DIR, the last after step 150: 3.2 MiB in 0.13 s"; empty while there is none.
  [[nodiscard]] std::string summary() const;

 private:
  Result<std::optional<Checkpoint>> latest();
  void set_aside_damaged();
  void identify();
  void on_news(std::uint64_t step, const Result<CheckpointWriter::Stored>& news);
  void tell_of_slowness(const CheckpointWriter::Stored& stored);

  asio::io_context& loop_;
  const Options& options_;
  Console& console_;
  CheckpointWriter writer_;
  std::optional<Checkpoint> resumed_;
  std::vector<std::string> damaged_;
  proto::CheckpointManifest identity_;
  bool goes_on_ = false;
  bool has_earlier_ = false;  ///< The folder has checkpoints.
  bool has_numerics_ = false;
  bool has_data_ = false;

  CheckpointRequests requests_;
  std::uint64_t step_ = 0;  ///< The highest that any replica has done, as far as is known.
  bool slowness_told_ = false;
  std::uint64_t stored_ = 0;
  CheckpointWriter::Stored last_;
  std::uint64_t last_step_ = 0;
  double last_at_ = 0;
  std::optional<double> told_at_;  ///< When a disk that takes none was last told of.
};

}  // namespace poprun::launcher
