#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "replica/base/error.h"
#include "replica/program/program.h"

/// Explains why a Program does not fit in the memory of its IPUs.
///
///   out of memory: model gpt2 needs 812,344 B on tile 952 of IPU 3, 173,368 B more than the
///   638,976 B of a tile, at step 1234 of the Program (train: matmul 'h.3.mlp'); it fits with
///   model.precision half (-24 % device time per sample)
///
///   tile 952 of IPU 3 at that step, with the largest tensors:
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

/// Returns "step 12 of the Program (train: relu 'relu1')".
std::string place_text(const Program& program, std::uint32_t step);

struct MemoryAdvice {
  std::string sentence;                      ///< For the first line of the message.
  std::string table;                         ///< Lines to print below the message; may be empty.
  std::vector<proto::Remedy> remedies = {};  ///< The same as data.
};

/// Checks that every IPU's fullest tile fits. If not, the error is kOutOfMemory. Its first line states how much memory
/// the fullest tile of all needs and how much it has (also as Facts), and at which step of the Program it is fullest.
/// If `advice` is given, it is called only in this case, and the line also contains the sentence that it returns. Up to
/// 19 lines of 80 columns follow. They list the tile's contents at that step by kind, with the largest tensors,
/// separated into always live and not always live. They also state what uses most of the tile, and whether the IPU as a
/// whole would fit. Then come the advice's table and, if there are several IPUs, a line for each listed one
/// (listed_rows.h). If all tiles fit but Streaming Memory does not, the message states how much the Streaming Memory
/// with the largest shortage needs and has, and lists its largest remote buffers. Requires: IPUs that do not fit have
/// their layout (CompileOptions::layout_if_too_large).
Status check_fits(const Program& program, const std::function<MemoryAdvice()>& advice = {});

/// Returns the first line of an error of `check_fits` as a note, for a job that runs nevertheless.
std::string allowance_note(const Error& out_of_memory);

}  // namespace poprun
