#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "replica/base/error.h"

/// Which activations are kept for the backward pass, and which are computed again there.
namespace poprun {

/// What is kept of a stage's activations. Everything else that the backward pass reads is
/// recomputed from it.
enum class Recomputation : std::uint8_t {
  kNone,      ///< Everything.
  kStandard,  ///< What makes the least work within a memory goal.
  kLayer,     ///< The inputs of each layer.
  kPipeline,  ///< The inputs of the stage; everything in the last stage.
  kAll,       ///< The inputs of every stage, including the last.
};

/// "none", "standard", "layer", "pipeline" or "all".
std::string_view name_of(Recomputation mode);

/// The inverse of `name_of`. Errors: kUsage, lists the names.
Result<Recomputation> parse_recomputation(std::string_view name);

/// What holds for a job that says nothing: kPipeline where several stages work at the same time, so
/// that activations wait in stashes, otherwise kNone. The launcher, which cannot know the model's
/// stages, shows what it expects by the same rule (launcher/options/pipeline.cc).
Recomputation default_recomputation(std::size_t stages, bool is_sequential);

struct RecomputationOptions {
  Recomputation mode = Recomputation::kNone;
  std::string
      checkpoints;  ///< Activations whose names it matches (ECMAScript) are kept; empty: none.
  std::string recompute;  ///< Likewise, activations that are recomputed.
  double memory = 0.5;    ///< Goal of kStandard: proportion of the IPU's memory.
};

}  // namespace poprun
