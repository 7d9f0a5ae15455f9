#include "replica/compiler/recomputation/recomputation.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "replica/base/nearest.h"

namespace poprun {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "standard", "layer", "pipeline", "all"};

}  // namespace

std::string_view name_of(Recomputation mode) {
  return kNames.at(static_cast<std::size_t>(mode));
}

Result<Recomputation> parse_recomputation(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    const std::vector<std::string> names(kNames.begin(), kNames.end());
    return fail(ErrorCode::kUsage, fmt::format("pipeline.recomputation = {}: no such mode; {}",
                                               name, suggestion(name, names)));
  }
  return static_cast<Recomputation>(found - kNames.begin());
}

Recomputation default_recomputation(std::size_t stages, bool is_sequential) {
  return stages > 1 && !is_sequential ? Recomputation::kPipeline : Recomputation::kNone;
}

}  // namespace poprun
