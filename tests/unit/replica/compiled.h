#pragma once

#include <utility>

#include "replica/compiler/automatic.h"
#include "replica/report/out_of_memory.h"

namespace poprun {

/// Compiles a Program to execute. Errors: those of plan_program and check_fits.
inline Result<Program> compile(CompileOptions options) {
  options.layout_if_too_large = true;
  POPRUN_ASSIGN(Program program, plan_program(options));
  POPRUN_TRY(check_fits(program));
  return program;
}

}  // namespace poprun
