#include "replica/search/stage_arrangement.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun {
namespace {

std::uint32_t fullest_ipu(const ChangedJob& job) {
  return static_cast<std::uint32_t>(std::ranges::max_element(job.tiles) - job.tiles.begin());
}

std::uint32_t emptiest_ipu(const ChangedJob& job) {
  return static_cast<std::uint32_t>(std::ranges::min_element(job.tiles) - job.tiles.begin());
}

/// Replaces the job's mapping by stage s on IPU s. Phases allow no mapping.
void map_in_order(ChangedJob& job) {
  if (job.config.memory().phases() > 1) {
    job.changes.emplace_back(kNoMapping);
    return;
  }
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  for (std::uint32_t ipu = 0; ipu < job.config.topology().ipus_per_replica(); ++ipu) {
    pipeline.add_device_mapping(ipu);
  }
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(pipeline.device_mapping(), " ")));
}

/// Puts embeddings and head on IPU 0, where they share their weights, and the layers on the others.
void join_head_and_embeddings(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const std::uint32_t others = job.config.topology().ipus_per_replica() - 1;
  pipeline.add_layers_per_ipu(0);
  pipeline.add_device_mapping(0);
  for (std::uint32_t ipu = 0; ipu < others; ++ipu) {
    const bool has_more = ipu < job.encoder_layers % others;
    pipeline.add_layers_per_ipu(job.encoder_layers / others + (has_more ? 1 : 0));
    pipeline.add_device_mapping(ipu + 1);
  }
  pipeline.add_layers_per_ipu(0);
  pipeline.add_device_mapping(0);
  job.changes.push_back(fmt::format("pipeline.layers-per-ipu {}", fmt::join(pipeline.layers_per_ipu(), " ")));
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(pipeline.device_mapping(), " ")));
}

}  // namespace

bool names_stages(const ChangedJob& job) {
  const proto::PipelineConfig& pipeline = job.config.pipeline();
  return !pipeline.layers_per_ipu().empty() || !pipeline.split().empty() || !pipeline.device_mapping().empty();
}

void arrange_stages(ChangedJob& job) {
  std::erase_if(job.changes, [](const std::string& change) {
    return change.starts_with("pipeline.layers-per-ipu ") || change.starts_with("pipeline.device-mapping ") ||
           change == kNoSplit || change == kNoMapping;
  });
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const bool has_split = !pipeline.split().empty();
  const bool has_mapping = !pipeline.device_mapping().empty();
  pipeline.clear_layers_per_ipu();
  pipeline.clear_split();
  pipeline.clear_device_mapping();
  if (job.head_joins_embeddings) {
    join_head_and_embeddings(job);
  } else {
    job.changes.emplace_back("pipeline.layers-per-ipu balanced");
  }
  if (has_split) {
    job.changes.emplace_back(kNoSplit);
  }
  if (has_mapping && !job.head_joins_embeddings) {
    map_in_order(job);
  }
}

bool move_layer(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const auto ipu_of = [&](int stage) {
    return pipeline.device_mapping().empty() ? static_cast<std::uint32_t>(stage) : pipeline.device_mapping(stage);
  };
  auto& layers = *pipeline.mutable_layers_per_ipu();
  int from = -1;
  int to = -1;
  for (int stage = 0; stage < layers.size(); ++stage) {
    const bool has_some = from < 0 || layers[stage] > layers[from];
    if (ipu_of(stage) == fullest_ipu(job) && layers[stage] > 0 && has_some) {
      from = stage;
    }
    if (ipu_of(stage) == emptiest_ipu(job) && layers[stage] > 0) {
      to = stage;
    }
  }
  if (from < 0 || to < 0 || from == to) {
    return false;
  }
  layers[from] -= 1;
  layers[to] += 1;
  job.changes.push_back(fmt::format("pipeline.layers-per-ipu {}", fmt::join(layers, " ")));
  return true;
}

bool move_head(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const auto& layers = pipeline.layers_per_ipu();
  auto& mapping = *pipeline.mutable_device_mapping();
  const int last = layers.size() - 1;
  if (layers.empty() || mapping.empty() || layers[last] != 0 || mapping[last] != fullest_ipu(job) ||
      fullest_ipu(job) == emptiest_ipu(job)) {
    return false;
  }
  mapping[last] = emptiest_ipu(job);
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(mapping, " ")));
  return true;
}

}  // namespace poprun
