#pragma once

#include <cstdint>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/choices/choices.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/training_loop.h"
#include "replica/program/host_contract.h"

/// The length of a job, and the options of its loops. The functions are pure.
namespace poprun {

/// Returns the number of samples that a replica computes at a time: in inference, the micro-batch; in training, the
/// compute batch or, if that does not divide the micro-batch, their greatest common divisor.
std::uint32_t compute_batch_size(const proto::RunConfig& config);

struct JobLength {
  std::uint64_t steps = 0;            ///< Training steps; 0 in inference.
  std::uint64_t steps_per_epoch = 1;  ///< > 0.
  std::uint64_t test_items = 0;       ///< Items of all replicas, per evaluation or, in inference, in total.
  std::uint64_t test_batches = 0;     ///< Batches per replica for these items; 0 if there are none.
};

/// Returns the length of the job. Errors: kUsage if the dataset does not fill one global batch.
Result<JobLength> job_length(const proto::RunConfig& config, const proto::Dataset& dataset);

/// Returns the options of the training loop. Errors: those of `job_length` and of LearningRate::make.
Result<TrainingOptions> training_options(const proto::RunConfig& config, const proto::Dataset& dataset);
EngineOptions inference_options(const proto::RunConfig& config);

/// Returns whether the replicas of a host share images. Not if tensors are dumped: this reads, on one replica, what
/// others may not have written yet.
bool shares_images(const proto::RunConfig& config);

/// Returns the number of items read in inference: those of the test part or, if there is none, those for training.
std::uint64_t inference_items(const proto::Dataset& dataset);

/// Returns the samples that replica `replica` reads from stream kTrain or kTest.
proto::Selection selection_of(const proto::RunConfig& config, const proto::Dataset& dataset, JobStream stream,
                              std::uint32_t replica);

/// Returns what gradient accumulators contain; the default depends on the precision.
AccumulationKind accumulation_kind(const proto::RunConfig& config);

/// Returns whether each token's loss has the same weight, regardless of its micro-batch.
bool weighs_labels(const proto::RunConfig& config);

/// Returns the number of batches per replica in an evaluation or, in inference, in total; 0 if there are none.
Result<std::uint64_t> test_batches(const proto::RunConfig& config, const proto::Dataset& dataset);

}  // namespace poprun
