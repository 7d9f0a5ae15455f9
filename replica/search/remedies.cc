#include "replica/search/remedies.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun {
namespace {

constexpr std::uint32_t kMostIpus = 64;
constexpr std::uint32_t kShortestSequence = 16;
constexpr std::uint32_t kMostPhases = 8;  // More phases would take more device time than other remedies.

constexpr std::int64_t kMostSlices = 16;  // More slices of an embedding would take too much device time.

bool has_stages(const proto::RunConfig& config) {
  return config.topology().ipus_per_replica() > 1;
}

bool has_state(const proto::RunConfig& config) {
  const Optimizer* optimizer = find_optimizer(config.training().optimizer());
  return !config.inference() && optimizer != nullptr &&
         (!optimizer->states.empty() || config.training().master_weights());
}

bool accumulates(const proto::RunConfig& config) {
  return !config.inference() && (config.training().gradient_accumulation() > 1 ||
                                 compute_batch_size(config) < config.data().micro_batch_size());
}

/// Returns the number of tokens in one sample, or 0 if the data has no tokens.
std::uint32_t sequence_length(const proto::Dataset& dataset) {
  for (const proto::StreamTensor& tensor : dataset.tensors()) {
    if (tensor.name() == "tokens" && tensor.sample_shape_size() == 1) {
      return tensor.sample_shape(0);
    }
  }
  return 0;
}

/// Splits the same batch into more and smaller micro-batches.
Remedy smaller_micro_batches(const proto::RunConfig& config) {
  Remedy remedy{.settings = {},
                .by_halves = true,
                .relieves = {"activations", "gradients", "temporaries", "stashes", "host data"}};
  const std::uint32_t now = config.data().micro_batch_size();
  for (std::uint32_t factor = 2; factor <= now; ++factor) {
    if (now % factor != 0) {
      continue;
    }
    remedy.settings.emplace_back([factor, size = now / factor](ChangedJob& job) {
      job.config.mutable_data()->set_micro_batch_size(size);
      job.changes.push_back(fmt::format("data.micro-batch-size {}", size));
      if (!job.config.inference()) {
        proto::TrainingConfig& training = *job.config.mutable_training();
        training.set_gradient_accumulation(training.gradient_accumulation() * factor);
        job.changes.push_back(fmt::format("training.gradient-accumulation {}", training.gradient_accumulation()));
      }
    });
  }
  return remedy;
}

/// Moves tensors of one kind off the chip, unless they are already off-chip. `storage` is the value of `key`.
void move_off_chip(const char* key, std::string& storage, ChangedJob& job) {
  if (choice_of<Storage>(storage) != Storage::kOffChip) {
    storage = word_of(Storage::kOffChip);
    job.changes.push_back(fmt::format("{} {}", key, storage));
  }
}

void move_state_off_chip(ChangedJob& job) {
  move_off_chip("memory.optimizer-state", *job.config.mutable_memory()->mutable_optimizer_state(), job);
}

/// Moves everything that the job uses in every micro-batch off the chip, unless it is already off-chip.
void move_the_rest_off_chip(ChangedJob& job) {
  proto::MemoryConfig& memory = *job.config.mutable_memory();
  move_off_chip("memory.weights", *memory.mutable_weights(), job);
  if (accumulates(job.config)) {
    move_off_chip("memory.accumulators", *memory.mutable_accumulators(), job);
  }
  const bool has_stashes = has_stages(job.config) || memory.phases() > 1;
  if (!job.config.inference() && has_stashes) {
    move_off_chip("memory.activations", *memory.mutable_activations(), job);
  }
}

/// Returns whether tensors stay on the chip. kAuto does not count: it moves tensors off the chip if necessary.
bool is_on_chip(const std::string& storage) {
  return choice_of<Storage>(storage) == Storage::kOnChip;
}

/// Keeps optimiser state off the chip, which costs transfers once per step.
Remedy state_off_chip(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"optimiser state"}};
  if (has_state(config) && is_on_chip(config.memory().optimizer_state())) {
    remedy.settings.emplace_back(move_state_off_chip);
  }
  return remedy;
}

/// Keeps weights, accumulators and stashed activations off the chip, which costs transfers in every micro-batch.
Remedy the_rest_off_chip(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"weights", "gradients", "stashes"}};
  const proto::MemoryConfig& memory = config.memory();
  if (is_on_chip(memory.weights()) || (accumulates(config) && is_on_chip(memory.accumulators()))) {
    remedy.settings.emplace_back(move_the_rest_off_chip);
  }
  return remedy;
}

/// Shards tensors that all replicas hold: first optimiser state, which needs no additional exchange, and then weights
/// as well. Shards accumulators only if results stay bit-identical.
Remedy shared_by_replicas(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .by_halves = true, .relieves = {"optimiser state", "weights"}};
  if (config.inference() || config.topology().num_replicas() == 1) {
    return remedy;
  }
  const auto& now = config.memory().replicated_tensor_sharding();
  std::vector<std::string> kinds(now.begin(), now.end());
  const auto add = [&](ShardedKind kind) {
    if (lists(kinds, kind)) {
      return;
    }
    kinds.push_back(word_of(kind));
    remedy.settings.emplace_back([kinds](ChangedJob& job) {
      job.config.mutable_memory()->mutable_replicated_tensor_sharding()->Assign(kinds.begin(), kinds.end());
      job.changes.push_back(fmt::format("memory.replicated-tensor-sharding {}", fmt::join(kinds, ",")));
    });
  };
  if (has_state(config)) {
    add(ShardedKind::kOptimizerState);
  }
  add(ShardedKind::kWeights);
  if (accumulates(config) &&
      choice_of<GradientReduction>(config.training().gradient_reduction()) == GradientReduction::kEveryMicroBatch) {
    add(ShardedKind::kAccumulators);
  }
  return remedy;
}

/// Lets identical layers share their code, as they do by default.
Remedy shared_code(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"vertex code", "control code", "exchange code"}};
  if (choice_of<Outlining>(config.memory().outlining()) == Outlining::kOff && config.report().dump_tensors().empty()) {
    remedy.settings.emplace_back([](ChangedJob& job) {
      job.config.mutable_memory()->set_outlining(word_of(Outlining{}));
      job.changes.push_back(fmt::format("memory.outlining {}", job.config.memory().outlining()));
    });
  }
  return remedy;
}

/// Recomputes more activations. kStandard selects which ones to recompute, so it is the mildest setting.
Remedy stronger_recomputation(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"activations", "stashes"}};
  if (config.inference()) {
    return remedy;
  }
  const auto now = open_choice<Recomputation>(config.pipeline().recomputation());
  for (const Recomputation mode : {Recomputation::kStandard, Recomputation::kLayer, Recomputation::kPipeline}) {
    if (mode == now || (mode == Recomputation::kPipeline && !has_stages(config))) {
      continue;
    }
    remedy.settings.emplace_back([mode](ChangedJob& job) {
      job.config.mutable_pipeline()->set_recomputation(word_of(mode));
      job.changes.push_back(fmt::format("pipeline.recomputation {}", word_of(mode)));
    });
  }
  return remedy;
}

/// Keeps fewer micro-batches in flight, which shortens stashes. Together with more IPUs, this also helps a job on one
/// IPU.
Remedy shorter_stashes(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"stashes"}};
  if (!config.inference() && choice_of<Schedule>(config.pipeline().schedule()) == Schedule::kGrouped) {
    remedy.settings.emplace_back([](ChangedJob& job) {
      job.config.mutable_pipeline()->set_schedule(word_of(Schedule::kInterleaved));
      job.changes.push_back(fmt::format("pipeline.schedule {}", job.config.pipeline().schedule()));
    });
  }
  return remedy;
}

/// Moves one layer, or the head, to another IPU.
Remedy moved_layers(const ChangedJob& job) {
  Remedy remedy;
  const auto& layers = job.config.pipeline().layers_per_ipu();
  if (job.tiles.size() < 2 || job.config.memory().phases() > 1 || layers.empty() ||
      std::ranges::find(layers, -1) != layers.end()) {
    return remedy;
  }
  for (const auto move : {move_layer, move_head}) {
    if (ChangedJob moved = job; move(moved)) {
      remedy.settings.emplace_back([move](ChangedJob& changed) { move(changed); });
    }
  }
  return remedy;
}

/// Uses phases: one or two IPUs work on the parts of the model in turn, while the other parts are off the chip.
Remedy phases(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .by_halves = true};
  const std::uint32_t ipus = std::max(1U, config.topology().ipus_per_replica());
  if (config.inference() || ipus > 2) {
    return remedy;
  }
  for (std::uint32_t number = 2; number <= kMostPhases; number *= 2) {
    if (number <= config.memory().phases()) {
      continue;
    }
    remedy.settings.emplace_back([number, ipus](ChangedJob& job) {
      proto::MemoryConfig& memory = *job.config.mutable_memory();
      memory.set_phases(number);
      job.changes.push_back(fmt::format("memory.phases {}", number));
      if (memory.phase_ipus() != ipus && ipus == 2) {
        job.changes.emplace_back("memory.phase-ipus 2");
      }
      memory.set_phase_ipus(ipus);
      if (has_state(job.config)) {
        move_state_off_chip(job);
      }
      move_the_rest_off_chip(job);
      if (names_stages(job)) {
        arrange_stages(job);
      }
    });
  }
  return remedy;
}

/// Keeps the number of IPUs, but distributes the layers differently.
Remedy other_stages(const ChangedJob& job) {
  Remedy remedy;
  if (has_stages(job.config) && names_stages(job)) {
    remedy.settings.emplace_back(arrange_stages);
  }
  if (has_stages(job.config) && job.encoder_layers > 0) {
    remedy.settings.emplace_back([](ChangedJob& changed) {
      changed.head_joins_embeddings = true;
      arrange_stages(changed);
    });
  }
  return remedy;
}

/// Uses more IPUs; their number is a power of two, as in Pods. A large shortage needs many IPUs, and a job on many IPUs
/// also compiles faster.
Remedy more_ipus(const ChangedJob& job) {
  Remedy remedy{.settings = {}, .by_halves = job.lacks_much(), .adds_memory = true};
  const proto::RunConfig& config = job.config;
  const std::uint32_t now = std::max(1U, config.topology().ipus_per_replica());
  for (std::uint32_t ipus = 2; ipus <= kMostIpus; ipus *= 2) {
    if (ipus <= now) {
      continue;
    }
    remedy.settings.emplace_back([ipus, phased = config.memory().phases() > 1](ChangedJob& changed) {
      changed.config.mutable_topology()->set_ipus_per_replica(ipus);
      changed.changes.push_back(fmt::format("--ipus-per-replica {}", ipus));
      if (phased) {
        changed.config.mutable_memory()->set_phases(1);
        changed.changes.emplace_back("memory.phases 1");
      }
      if (names_stages(changed)) {
        arrange_stages(changed);
      }
    });
  }
  return remedy;
}

/// Computes the embedding, and the projection tied to it, in more slices.
Remedy sliced_embedding(const ChangedJob& job) {
  Remedy remedy{.settings = {}, .by_halves = true, .relieves = {"temporaries", "gradients", "activations"}};
  const std::int64_t now = std::max<std::int64_t>(1, job.config.model().embedding_serialisation_factor());
  for (std::int64_t slices = 2 * now; slices <= kMostSlices && sequence_length(job.dataset) > 0; slices *= 2) {
    remedy.settings.emplace_back([slices](ChangedJob& changed) {
      changed.config.mutable_model()->set_embedding_serialisation_factor(static_cast<std::uint32_t>(slices));
      changed.changes.push_back(fmt::format("model.embedding-serialisation-factor {}", slices));
    });
  }
  return remedy;
}

void halve_precision(ChangedJob& job) {
  job.config.mutable_model()->set_precision(word_of(Precision::kHalf));
  job.config.mutable_training()->set_loss_scaling(0);  // The default with half precision.
  job.changes.push_back(fmt::format("model.precision {}", job.config.model().precision()));
}

/// Sets all partials to half, except for those of named operators.
void halve_partials(ChangedJob& job) {
  ProductSettingRows& partials = *job.config.mutable_model()->mutable_partials();
  for (int i = partials.size(); i-- > 0;) {
    if (partials[i].operators().empty()) {
      partials.DeleteSubrange(i, 1);
    }
  }
  proto::ProductSetting& all = *partials.Add();
  all.set_partials(word_of(Precision::kHalf));
  all.set_text(all.partials());
  job.changes.push_back(fmt::format("model.partials {}", all.text()));
}

/// Uses half precision for weights, activations and gradients, and then for partial sums as well.
Remedy lower_precision(const proto::RunConfig& config) {
  Remedy remedy{.settings = {}, .relieves = {"weights", "activations", "gradients", "temporaries", "stashes"}};
  if (choice_of<Precision>(config.model().precision()) != Precision::kHalf) {
    remedy.settings.emplace_back(halve_precision);
    remedy.settings.emplace_back([](ChangedJob& job) {
      halve_precision(job);
      halve_partials(job);
    });
    return remedy;
  }
  const ProductSettingRows& partials = config.model().partials();
  const bool all_half = std::ranges::any_of(
      partials, [](const proto::ProductSetting& setting) { return setting.text() == word_of(Precision::kHalf); });
  if (!all_half) {
    remedy.settings.emplace_back(halve_partials);
  }
  return remedy;
}

/// Limits every dimension of every tensor of a sample to the new length.
Remedy shorter_sequences(const proto::Dataset& dataset) {
  Remedy remedy{.settings = {}, .by_halves = true, .is_last_resort = true};
  for (std::uint32_t length = sequence_length(dataset) / 2; length >= kShortestSequence; length /= 2) {
    remedy.settings.emplace_back([length](ChangedJob& job) {
      for (proto::StreamTensor& tensor : *job.dataset.mutable_tensors()) {
        for (std::uint32_t& dimension : *tensor.mutable_sample_shape()) {
          dimension = std::min(dimension, length);
        }
      }
      job.changes.push_back(fmt::format("data.sequence-length {}", length));
    });
  }
  return remedy;
}

}  // namespace

std::vector<Remedy> remedies_for(const ChangedJob& job) {
  std::vector<Remedy> all{smaller_micro_batches(job.config),
                          other_proportions(job),
                          sliced_embedding(job),
                          shared_code(job.config),
                          shared_by_replicas(job.config),
                          stronger_recomputation(job.config),
                          shorter_stashes(job.config),
                          moved_layers(job),
                          state_off_chip(job.config),
                          other_stages(job),
                          more_ipus(job),
                          lower_precision(job.config),
                          the_rest_off_chip(job.config),
                          phases(job.config),
                          shorter_sequences(job.dataset)};
  std::erase_if(all, [](const Remedy& remedy) { return remedy.settings.empty(); });
  return all;
}

}  // namespace poprun
