#include "replica/check/variants.h"

#include <fmt/format.h>

#include "replica/base/text.h"

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
  const auto add_outlined = [&variants](Variant variant) {
    variant.outlined = true;
    for (const char* recomputation : {"none", "all"}) {
      variant.recomputation = recomputation;
      variants.push_back(variant);
    }
  };
  for (const char* recomputation : kRecomputations) {
    variants.push_back({1, 1, plain_split, "sequential", recomputation});
  }
  add_outlined(variants.front());
  for (const auto& [ipus, stages, split, own_stages, begins] : spreads) {
    for (const char* schedule : kSchedules) {
      for (const char* recomputation : kRecomputations) {
        variants.push_back({ipus, stages, split, schedule, recomputation, own_stages, begins});
      }
    }
    add_outlined({ipus, stages, split, "grouped", "", own_stages, begins});
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
  if (!variant.own_stages) {
    pipeline.clear_layers_per_ipu();
    pipeline.clear_split();
    pipeline.clear_device_mapping();
  }
  if (pipeline.layers_per_ipu().empty() && pipeline.split().empty()) {
    pipeline.mutable_split()->Assign(variant.begins.begin(), variant.begins.end());
  }
  config.mutable_memory()->set_outlining(variant.outlined ? "on" : "off");
  config.mutable_report()->clear_dump_tensors();
  pipeline.set_schedule(variant.schedule);
  pipeline.set_recomputation(variant.recomputation);
  if (variant.recomputation_memory > 0) {
    pipeline.set_recomputation_memory(variant.recomputation_memory);
  }
  const bool is_plain = variant.ipus == 1 && !variant.own_stages && variant.recomputation == "none";
  if (is_plain) {
    pipeline.clear_recompute();
  }
  return config;
}

std::string to_text(const Variant& variant) {
  const std::string ipus = counted(variant.ipus, "IPU");
  const std::string recomputation = fmt::format("recomputation {}{}", variant.recomputation,
                                                variant.outlined ? ", outlined" : "");
  return variant.stages == 1 ? fmt::format("{}, {}", ipus, recomputation)
                             : fmt::format("{}, {}, {}", ipus, variant.schedule, recomputation);
}

}  // namespace poprun
