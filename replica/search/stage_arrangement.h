#pragma once

#include "replica/search/changed_job.h"

/// How remedies spread the layers of a pipelined job over its IPUs.
namespace poprun {

/// Whether the job says which layers are on which IPU.
bool names_stages(const ChangedJob& job);

/// Replaces the stages named in the job, which fit only one number of IPUs, or those of an earlier arrangement.
void arrange_stages(ChangedJob& job);

/// Moves one layer from the fullest IPU to the emptiest. False if one of them has no stage with layers.
bool move_layer(ChangedJob& job);

/// Moves a last stage that holds only the head from the fullest IPU to the emptiest. False if there is no such stage.
bool move_head(ChangedJob& job);

}  // namespace poprun
