#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "replica/base/error.h"
#include "replica/program/program.h"

/// Why a Program does not fit the memory of its IPUs.
///
///   out of memory: model gpt2 needs 812,344 B on tile 952 of IPU 3, 173,368 B more than the
///   638,976 B of a tile, at step 1234 of the Program (train: matmul 'h.3.mlp'); it fits with
///   model.precision half (-24 % device time a sample)
///
///   tile 952 of IPU 3 then, and the largest tensors:
///     always live               512,344 B   63 %
///       optimiser state         300,112 B   37 %  h.3.mlp.weight.moment1 8,192 B
///       ...
///     not always live           295,000 B   36 %
///       temporaries             280,000 B   34 %
///       ...
///     gaps                        5,000 B    1 %
///     needed                    812,344 B  100 %  173,368 B over
///   mostly optimiser state (37 %) and temporaries (34 %)
///   IPU 3 as a whole: 850.3 MiB peak of 897.0 MiB: it would fit if spread evenly
namespace poprun {

/// "step 12 of the Program (train: relu 'relu1')".
std::string place_text(const Program& program, std::uint32_t step);

/// How a job that does not fit could.
struct MemoryAdvice {
  std::string sentence;  ///< For the first line of the message.
  std::string table;     ///< Lines for below it; may be empty.
};

/// Success where every IPU's fullest tile fits. Otherwise kOutOfMemory: a first line with what the fullest tile of all
/// needed and had (also as facts), where in the Program it is fullest and, where given, `advice`, which is asked only
/// then. Below it at most 19 lines of 80 columns: what that tile holds there, by kinds, always live apart from not
/// always live, each with the largest tensors; what most of it is; whether the IPU as a whole would fit. Then the
/// advice's table, and for several IPUs a line each (ipu_table.h). Where all tiles fit, but not what lies in Streaming
/// Memory, the message says what the fullest one needed and had, and its largest remote buffers.
///
/// Requires: IPUs that do not fit have their layout (CompileOptions::layout_if_too_large).
Status check_fits(const Program& program, const std::function<MemoryAdvice()>& advice = {});

/// The first line of an error of `check_fits`, for a job that runs in spite of it.
std::string allowance_note(const Error& out_of_memory);

}  // namespace poprun
