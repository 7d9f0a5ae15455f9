#pragma once

#include <cstdint>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/training_loop.h"
#include "replica/program/host_contract.h"

/// How much a job does, and what its loops take. Pure functions.
namespace poprun {

/// Samples that a replica computes at once: in training the compute batch, in inference the micro-batch. Divides the
/// micro-batch: of a compute batch that does not, what both have in common.
std::uint32_t compute_batch_size(const proto::RunConfig& config);

/// How much a job does.
struct JobLength {
  std::uint64_t steps = 0;            ///< Training steps; 0 in inference.
  std::uint64_t steps_per_epoch = 1;  ///< > 0.
  std::uint64_t test_items = 0;       ///< In each evaluation, or in inference; all replicas'.
  std::uint64_t test_batches = 0;     ///< Likewise, one replica's batches of them. 0: none.
};

/// Errors: kUsage, the dataset does not fill one global batch.
Result<JobLength> job_length(const proto::RunConfig& config, const proto::Dataset& dataset);

/// Options of the loop of such a job. Errors: those of `job_length`; kUsage if the schedule is unknown.
Result<TrainingOptions> training_options(const proto::RunConfig& config, const proto::Dataset& dataset);
EngineOptions inference_options(const proto::RunConfig& config);

/// Items that inference runs over: the test part, or where there is none the training items.
std::uint64_t inference_items(const proto::Dataset& dataset);

/// The samples that replica `replica` reads from stream kTrain or kTest.
proto::Selection selection_of(const proto::RunConfig& config, const proto::Dataset& dataset, JobStream stream,
                              std::uint32_t replica);

/// Whether each token's loss counts alike, wherever its micro-batch is.
bool weighs_labels(const proto::RunConfig& config);

/// Each replica's batches in an evaluation, or in inference; 0: there are none.
Result<std::uint64_t> test_batches(const proto::RunConfig& config, const proto::Dataset& dataset);

}  // namespace poprun
