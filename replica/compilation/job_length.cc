#include "replica/compilation/job_length.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "hostio/sampling/sampling.h"
#include "replica/choices/choices.h"

namespace poprun {
namespace {

/// Returns the number of items per evaluation or, in inference, of the whole job; 0 if there are none.
std::uint64_t test_items(const proto::RunConfig& config, const proto::Dataset& dataset) {
  if (config.inference()) {
    const std::uint64_t items = inference_items(dataset);
    const std::uint64_t profiled =
        std::uint64_t{config.profile().steps()} * config.topology().num_replicas() * config.data().micro_batch_size();
    return config.has_profile() ? std::min(items, profiled) : items;
  }
  return config.training().evaluate() && !config.has_profile() ? dataset.test_items() : 0;
}

/// Returns the number by which the sum of a step's gradients, over all its parts and replicas, is divided.
double averaged_gradients(const proto::RunConfig& config) {
  const proto::TrainingConfig& training = config.training();
  const double parts = static_cast<double>(training.gradient_accumulation()) *
                       (config.data().micro_batch_size() / compute_batch_size(config));
  return (accumulation_kind(config) == AccumulationKind::kSum ? 1.0 : parts) *
         (choice_of<GradientReduction>(training.gradient_reduction()) == GradientReduction::kSum
              ? 1.0
              : static_cast<double>(config.topology().num_replicas()));
}

std::vector<LabelTensor> label_tensors(const proto::Dataset& dataset) {
  std::vector<LabelTensor> labels;
  for (int t = 0; t < dataset.tensors_size(); ++t) {
    if (is_labels(dataset.tensors(t).name())) {
      labels.push_back({.name = dataset.tensors(t).name(),
                        .field = static_cast<std::size_t>(t),
                        .is_integer = dataset.tensors(t).element() == "i32"});
    }
  }
  return labels;
}

}  // namespace

std::uint32_t compute_batch_size(const proto::RunConfig& config) {
  const std::uint32_t micro = config.data().micro_batch_size();
  const std::uint32_t compute = config.data().compute_batch_size();
  return config.inference() || compute == 0 ? micro : std::gcd(micro, compute);
}

AccumulationKind accumulation_kind(const proto::RunConfig& config) {
  return open_choice<AccumulationKind>(config.training().gradient_accumulation_kind())
      .value_or(default_accumulation(choice_of<Precision>(config.model().precision())));
}

bool weighs_labels(const proto::RunConfig& config) {
  return choice_of<LossMean>(config.training().loss_mean()) == LossMean::kTokens && !config.inference();
}

Result<std::uint64_t> test_batches(const proto::RunConfig& config, const proto::Dataset& dataset) {
  const std::uint64_t items = test_items(config, dataset);
  if (items == 0) {
    return 0;
  }
  const proto::Selection selection = selection_of(config, dataset, JobStream::kTest, 0);
  POPRUN_ASSIGN(const std::uint64_t batches, hostio::evaluation_batches(items, selection));
  constexpr std::uint64_t kRoundsMax = std::numeric_limits<std::uint32_t>::max();
  if (const std::uint64_t parts = config.data().micro_batch_size() / compute_batch_size(config);
      batches > kRoundsMax / parts) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.source {}: its {} items form {} batches per replica, but a Program can run at most "
                            "{}; use fewer items, more replicas or a larger data.micro-batch-size",
                            config.data().source(), items, batches, kRoundsMax / parts));
  }
  return batches;
}

Result<JobLength> job_length(const proto::RunConfig& config, const proto::Dataset& dataset) {
  JobLength length;
  if (!config.inference()) {
    const proto::TrainingConfig& training = config.training();
    POPRUN_ASSIGN(length.steps_per_epoch,
                  hostio::steps_per_epoch(dataset.train_items(), selection_of(config, dataset, JobStream::kTrain, 0)));
    length.steps = training.steps() > 0 ? training.steps() : training.epochs() * length.steps_per_epoch;
  }
  length.test_items = test_items(config, dataset);
  POPRUN_ASSIGN(length.test_batches, test_batches(config, dataset));
  return length;
}

Result<TrainingOptions> training_options(const proto::RunConfig& config, const proto::Dataset& dataset) {
  POPRUN_ASSIGN(const JobLength length, job_length(config, dataset));
  TrainingOptions options;
  options.total_steps = length.steps;
  options.steps_per_epoch = length.steps_per_epoch;
  options.micro_batches = config.training().gradient_accumulation();
  options.evaluation_batches = length.test_batches;
  const proto::TrainingConfig& training = config.training();
  options.evaluate_every_epochs = training.evaluate_every_epochs();
  POPRUN_ASSIGN(options.learning_rate, LearningRate::make({.schedule = choice_of<RateSchedule>(training.schedule()),
                                                           .base = training.learning_rate(),
                                                           .total_steps = options.total_steps,
                                                           .warmup_steps = training.warmup_steps(),
                                                           .decay_every = training.schedule_steps(),
                                                           .decay = training.schedule_decay()}));
  for (const proto::DumpRequest& request : config.report().dump_tensors()) {
    options.dumps.push_back({request.pattern(), request.step()});
  }
  options.replay_every = config.corruption().replay_every();
  options.bit_flips.assign(config.corruption().flips().begin(), config.corruption().flips().end());
  options.engine = {.seed = training.seed(),
                    .poison_dead = config.memory().poison_dead(),
                    .check_finite = training.check_finite(),
                    .shares_images = shares_images(config)};
  options.scale_loss = training.loss_scaling() == 0;
  options.labels = label_tensors(dataset);
  options.batch_samples = config.data().micro_batch_size();
  options.weighted_mean_of = weighs_labels(config) ? averaged_gradients(config) : 0;
  options.sharding_group = config.memory().sharding_group();
  return options;
}

bool shares_images(const proto::RunConfig& config) {
  return !config.memory().private_images() && config.report().dump_tensors().empty();
}

EngineOptions inference_options(const proto::RunConfig& config) {
  return {.seed = config.training().seed(),
          .poison_dead = config.memory().poison_dead(),
          .shares_images = shares_images(config)};
}

std::uint64_t inference_items(const proto::Dataset& dataset) {
  return dataset.test_items() > 0 ? dataset.test_items() : dataset.train_items();
}

proto::Selection selection_of(const proto::RunConfig& config, const proto::Dataset& dataset, JobStream stream,
                              std::uint32_t replica) {
  const proto::Split once =
      config.inference() && dataset.test_items() == 0 ? proto::SPLIT_TRAIN_ONCE : proto::SPLIT_TEST;
  proto::Selection selection;
  selection.set_source(config.data().source());
  selection.set_fingerprint(dataset.fingerprint());
  selection.set_split(stream == JobStream::kTrain ? proto::SPLIT_TRAIN : once);
  selection.set_seed(config.training().seed());
  selection.set_sequential(config.data().sequential());
  selection.set_replica(replica);
  selection.set_replica_count(config.topology().num_replicas());
  selection.set_micro_batch_size(config.data().micro_batch_size());
  selection.set_micro_batches_per_step(stream == JobStream::kTrain ? config.training().gradient_accumulation() : 1);
  return selection;
}

}  // namespace poprun
