#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/compiler/recomputation/checkpoints.h"
#include "replica/compiler/recomputation/clones.h"
#include "replica/compiler/recomputation/micro_batch.h"
#include "replica/compiler/recomputation/recomputation.h"
#include "replica/compiler/recomputation/stage_memory.h"

/// What a job is told of recomputation that does nothing for it.
namespace poprun {

/// Why a job recomputes nothing. Nothing where kStandard has found no need to.
std::optional<std::string> note_of_no_effect(const RecomputationOptions& asked,
                                             const MicroBatch& micro_batch,
                                             const ChosenByName& chosen, std::size_t tensor_count);

/// In which stages recomputation takes time and saves no memory, such as those whose backward pass
/// follows their forward pass at once; nothing where there are none. `memories` is the
/// micro-batch's. Cost: linear in the operations.
std::optional<std::string> note_of_vain_stages(Recomputation mode, const MicroBatch& micro_batch,
                                               StageMemories& memories, const ClonePlan& plan,
                                               const std::vector<bool>& kept);

}  // namespace poprun
