#include "replica/check/variants.h"

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr const char* kSchedules[] = {"sequential", "grouped", "interleaved"};
constexpr const char* kRecomputations[] = {"none", "standard", "layer", "pipeline", "all"};

constexpr const char* kPhased = "phased";

void add_phases(const Spread& spread, std::vector<Variant>& variants) {
  const auto add = [&](std::uint32_t ipus, const char* recomputation) {
    Variant& variant =
        variants.emplace_back(Variant{ipus, spread.stages, spread.split, kPhased, recomputation,
                                      spread.own_stages, spread.begins});
    variant.phased = true;
  };
  for (const char* recomputation : kRecomputations) {
    add(1, recomputation);
  }
  add(2, "none");
  add(2, "pipeline");
}

}  // namespace

std::vector<std::uint32_t> default_ipus(const proto::RunConfig& job) {
  const std::uint32_t own = job.topology().ipus_per_replica();
  return own > 1 ? std::vector<std::uint32_t>{own} : std::vector<std::uint32_t>{2, 3, 4};
}

std::vector<Variant> all_variants(const std::string& plain_split, std::span<const Spread> spreads) {
  std::vector<Variant> variants;
  for (const char* recomputation : kRecomputations) {
    variants.push_back({1, 1, plain_split, "sequential", recomputation});
  }
  for (const Spread& spread : spreads) {
    for (const char* schedule : kSchedules) {
      for (const char* recomputation : kRecomputations) {
        if (!spread.phased) {
          variants.push_back({spread.ipus, spread.stages, spread.split, schedule, recomputation,
                              spread.own_stages, spread.begins});
        }
      }
    }
  }
  for (const Spread& spread : spreads) {
    add_phases(spread, variants);
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
  config.mutable_memory()->set_phases(variant.phased ? variant.stages : 1);
  config.mutable_memory()->set_phase_ipus(variant.phased ? variant.ipus : 1);
  if (variant.phased) {
    pipeline.clear_device_mapping();
  }
  pipeline.set_schedule(variant.phased ? "grouped" : variant.schedule);
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
  if (variant.phased) {
    return fmt::format("{} on {}, recomputation {}", counted(variant.stages, "phase"), ipus,
                       variant.recomputation);
  }
  return variant.stages == 1 ? fmt::format("{}, recomputation {}", ipus, variant.recomputation)
                             : fmt::format("{}, {}, recomputation {}", ipus, variant.schedule,
                                           variant.recomputation);
}

}  // namespace poprun
