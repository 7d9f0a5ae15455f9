#include "replica/check/variants.h"

#include <fmt/format.h>

namespace poprun {
namespace {

constexpr const char* kSchedules[] = {"sequential", "grouped", "interleaved"};
constexpr const char* kRecomputations[] = {"none", "standard", "layer", "pipeline", "all"};

}  // namespace

std::vector<std::uint32_t> default_ipus(const proto::RunConfig& job) {
  const std::uint32_t own = job.topology().ipus_per_replica();
  return own > 1 ? std::vector<std::uint32_t>{own} : std::vector<std::uint32_t>{2, 3, 4};
}

std::vector<Variant> all_variants(const std::string& plain_split, std::span<const Spread> spreads) {
  std::vector<Variant> variants;
  for (const char* recomputation : kRecomputations) {
    variants.push_back({1, plain_split, "sequential", recomputation});
  }
  for (const auto& [ipus, split, begins] : spreads) {
    for (const char* schedule : kSchedules) {
      for (const char* recomputation : kRecomputations) {
        variants.push_back({ipus, split, schedule, recomputation, begins});
      }
    }
  }
  return variants;
}

proto::RunConfig config_of(const Variant& variant, const proto::RunConfig& job) {
  proto::RunConfig config = job;
  config.mutable_topology()->set_ipus_per_replica(variant.ipus);
  proto::PipelineConfig& pipeline = *config.mutable_pipeline();
  if (!job.has_pipeline()) {
    pipeline.set_recomputation_memory(0.9);
  }
  if (variant.ipus == 1 || variant.ipus != job.topology().ipus_per_replica()) {
    pipeline.clear_layers_per_ipu();
    pipeline.clear_split();
    pipeline.clear_device_mapping();
  }
  if (pipeline.layers_per_ipu().empty() && pipeline.split().empty()) {
    pipeline.mutable_split()->Assign(variant.begins.begin(), variant.begins.end());
  }
  pipeline.set_schedule(variant.schedule);
  pipeline.set_recomputation(variant.recomputation);
  if (variant == Variant{1, variant.split, "sequential", "none"}) {
    pipeline.clear_recompute();
  }
  return config;
}

std::string to_text(const Variant& variant) {
  return variant.ipus == 1 ? fmt::format("1 IPU, recomputation {}", variant.recomputation)
                           : fmt::format("{} IPUs, {}, recomputation {}", variant.ipus,
                                         variant.schedule, variant.recomputation);
}

}  // namespace poprun
