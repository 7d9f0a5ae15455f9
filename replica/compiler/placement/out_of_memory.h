#pragma once

#include <functional>
#include <string>

#include "replica/base/error.h"
#include "replica/program/program.h"

namespace poprun {

/// Where most bytes of the IPU's memory are live: "step 12 of the Program (train: relu 'relu1')".
std::string worst_place(const Program& program, int ipu);

/// How a job that does not fit could.
struct MemoryAdvice {
  std::string sentence;  ///< For the first line of the message.
  std::string table;     ///< Lines for below it; may be empty.
};

/// Success where every IPU's plan fits its memory. Otherwise kOutOfMemory: a first line with what
/// the fullest IPU needed and had (also as facts) and, where given, `advice`, which is asked only
/// then. Below it a table of several IPUs (ipu_table.h), the advice's table, and what is live on
/// the fullest IPU at its worst step: always-live apart from not-always-live, largest first.
Status check_fits(const Program& program, const std::function<MemoryAdvice()>& advice = {});

}  // namespace poprun
