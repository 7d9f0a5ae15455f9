#pragma once

#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"

namespace poprun {

/// Prints a job: first everything except the graph, as lines that each consist of a word and its attributes, then the
/// graph (graph.h). A place is a function and the number of one of its regions:
///
///   stages ipus=[0,1]
///   reserved name="conv1.out"                a name in the model file that no tensor has
///   training begin="train:0" loss="loss" metrics="train.metrics" micro_batch="train:1" rate="learning-rate"
///            step="step" update="train:2"    on the same line; also factor="..." loss_scale="..."
///   mean-labels labels="labels" tensor="labels.mean"
///   loss-term count="mlm.count" labels="labels" loss="mlm.loss"
///   phase place="train:2"
///   gradient parameter="w" tensor="w.gradient"
///   evaluation place="evaluate:0"
///   part backward=1 function="backward.0" ipu=0 recomputes=0 stage=0
///   balancing capacity=941334528 in_flight=[2,1] recomputes=[1,0]
///   balanced-layer activations=512 bytes=1024 cycles=5000
///   note code="pass.left-out" text="..."
///   fact name="pass" value="outlining"       belongs to the note above
///   location text="w: off-chip (memory.weights)"
///   graph
///   tensor w : f32[4,3] parameter
///   ...
std::string to_text(const Job& job);

/// Parses text in the format of `to_text`. The text begins at line `first_line` of its file. Only the line `graph` is
/// required. A line that begins with # is a comment. Checks syntax and names, but not operators. Errors: kUsage, with
/// the line.
Result<Job> parse_job(std::string_view text, int first_line = 1);

}  // namespace poprun
