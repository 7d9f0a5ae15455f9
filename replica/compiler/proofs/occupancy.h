#pragma once

#include "replica/base/error.h"
#include "replica/program/program.h"

namespace poprun {

/// Proves that a Program's memory plan keeps every value until its last reader has run, by running the Program on a map
/// of who owns which bytes. It knows nothing of liveness or placement: only steps, calls and addresses.
///
///   - A step that writes a tensor takes its bytes; whatever else held one of them is lost.
///   - A view (Operator::view) whose inputs and outputs lie at its places writes nothing: inputs
///     and outputs hold the bytes together from then on.
///   - Otherwise an operator's output shares a byte with an input only if the operator may take
///     that input's bytes (Operator::in_place), and with another output never.
///   - A step that reads one, or updates it in place, must find it as it was written. Of a stash,
///     the entry that it reads.
///   - What a step releases is not a number any more: whatever held one of the bytes is lost.
///   - Between two functions that the host runs, only tensors that are always live stay.
///   - A step names tensors only within their planned lives, on IPUs of the replica; one that
///     computes or reduces, those of one IPU; and the highest byte that any names on an IPU ends at
///     its planned peak.
///
/// Runs every function that the host runs, in the Program's order, and all but "load" a second time. Of a repeat it
/// runs rounds until as many in a row as the longest stash has entries have left the map as it was: by then each entry
/// has had its turn, so further rounds do what these did.
///
/// Errors: kBug, the step, the tensor, and who took its bytes.
/// Cost: about 100 ns a tensor that a step names, for those rounds; does not grow with a repeat's count.
Status verify_memory(const Program& program);

}  // namespace poprun
