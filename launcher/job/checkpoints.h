#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "launcher/job/world.h"
#include "launcher/options/options.h"
#include "launcher/outputs/checkpoint_files.h"
#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/screen/console.h"
#include "proto/coordinator.pb.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Decides when replicas are asked for a checkpoint: at regular time intervals, and when the user requests one. The
/// checkpoints that replicas take every few steps need no request. Only one request is open at a time. All times are in
/// seconds on the same clock.
class CheckpointRequests {
 public:
  /// `every_seconds` is the time between two timed checkpoints, or 0 to take only those that the user requests.
  explicit CheckpointRequests(double every_seconds) : every_seconds_(every_seconds) {}

  void wish() { wished_ = true; }

  /// Returns the step after which all replicas should take a checkpoint, if one is due and has not been requested yet.
  /// Call this often while the job trains. The step is chosen a few steps ahead, so that every replica learns of the
  /// request in time. If a replica learns of it too late and its part of the checkpoint is missing, the request is
  /// repeated. `step` is the highest step, out of `steps`, that any replica has completed at `now`. `begun` is the step
  /// of the latest checkpoint whose parts have all begun to arrive, or 0.
  std::optional<std::uint64_t> due(std::uint64_t step, std::uint64_t steps, std::uint64_t begun, double now);

  /// Records that the checkpoint after `step` was stored or has failed. Returns whether this answers the open request.
  bool came(std::uint64_t step);

 private:
  [[nodiscard]] double steps_in(double seconds, std::uint64_t step, double now);

  struct Request {
    std::uint64_t first_step = 0;  ///< Any checkpoint from this step on answers the request.
    std::uint64_t last_step = 0;   ///< The step that was requested last.
    double asked_at = 0;           ///< Time at which that step was requested.
  };
  struct Mark {
    std::uint64_t step = 0;
    double at = 0;
  };

  double every_seconds_;
  bool wished_ = false;
  std::optional<Request> request_;  ///< The request that is still open.
  std::optional<double> due_at_;    ///< Time at which the next timed checkpoint is due.
  std::optional<Mark> first_;       ///< The first step seen, to estimate the speed.
};

/// Manages the checkpoints of one job: which one the job resumes from, when the next one is due, and whether each was
/// stored. This class belongs to the loop's thread, and its writer to the thread that waits for the disk.
class JobCheckpoints {
 public:
  /// All references must outlive this.
  JobCheckpoints(const World& world, asio::io_context& loop, const Options& options, Console& console);

  /// Finds the checkpoint that the job resumes from. `onnx_sha256` is the hash of the model's ONNX file, if there is
  /// one. Errors: kUsage if there is no checkpoint, if the checkpoint belongs to a different job, or if the folder
  /// contains checkpoints of an earlier job; kData if all checkpoints are damaged; kHostResources if none is usable and
  /// at least one cannot be read.
  Status find(const std::string& onnx_sha256);

  /// Locks the folder if this job stores checkpoints, or if the job that it continues has stored some. Errors: those of
  /// CheckpointWriter.
  Status take_folder();

  [[nodiscard]] const std::optional<Checkpoint>& resumed() const { return resumed_; }
  /// Returns whether the contents of the job's folders were written by this same job before an interruption.
  [[nodiscard]] bool goes_on() const { return goes_on_; }
  [[nodiscard]] std::uint64_t resumed_step() const { return resumed_ ? resumed_->manifest.host().step() : 0; }
  [[nodiscard]] std::string resumed_state() const { return resumed_ ? resumed_->folder + "/" + kStateFile : ""; }
  [[nodiscard]] CheckpointWriter& writer() { return writer_; }

  /// Record the job's dataset and the numerics of its instances, which every manifest contains. Call take_data once,
  /// and take_numerics for each instance that joins. Errors: kData if the dataset differs from that of the resumed
  /// checkpoint; those of check_numerics_of_checkpoint.
  Status take_data(const proto::Dataset& dataset);
  Status take_numerics(const proto::JoinRequest& request);

  void wish() { requests_.wish(); }

  /// Forwards to CheckpointRequests::due.
  std::optional<std::uint64_t> due(std::uint64_t step, std::uint64_t steps, double now);

  /// Returns the step of the last checkpoint that this job stored or resumed from, or 0 if there is none.
  [[nodiscard]] std::uint64_t last_step() const { return last_step_; }
  /// Returns the time on the world's clock (World::now) at which the last checkpoint was stored.
  [[nodiscard]] double last_at() const { return last_at_; }

  /// Returns the number of checkpoints that this job stored.
  [[nodiscard]] std::uint64_t stored() const { return stored_; }

  /// Returns a text such as "3 in DIR, the last after step 150: 3.2 MiB in 0.13 s", or "" before the first checkpoint.
  [[nodiscard]] std::string summary() const;

 private:
  Result<std::optional<Checkpoint>> latest();
  void set_aside_damaged();
  void identify();
  void on_news(std::uint64_t step, const Result<CheckpointWriter::Stored>& news);
  void tell_of_slowness(const CheckpointWriter::Stored& stored);

  const World& world_;
  asio::io_context& loop_;
  const Options& options_;
  Console& console_;
  CheckpointWriter writer_;
  std::optional<Checkpoint> resumed_;
  std::vector<std::string> damaged_;
  proto::CheckpointManifest identity_;
  bool goes_on_ = false;
  bool has_earlier_ = false;  ///< The folder already contains checkpoints.
  bool has_numerics_ = false;
  bool has_data_ = false;

  CheckpointRequests requests_;
  std::uint64_t step_ = 0;  ///< The highest step that any replica is known to have completed.
  bool slowness_told_ = false;
  std::uint64_t stored_ = 0;
  CheckpointWriter::Stored last_;
  std::uint64_t last_step_ = 0;
  double last_at_ = 0;
  std::optional<double> told_at_;  ///< Time of the last note on a checkpoint that was not stored.
};

}  // namespace poprun::launcher
