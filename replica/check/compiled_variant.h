#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "proto/check.pb.h"
#include "replica/base/error.h"
#include "replica/check/variants.h"
#include "replica/program/program.h"

namespace poprun {

/// A variant of a job, and the Program that runs it.
struct CompiledVariant {
  std::string name;       ///< As in CheckPlan.combinations.
  proto::CheckedRun run;  ///< Its figures; its verdict only where it is known already.
  Program program;        ///< Empty if the verdict is known.
};

/// By what a Program does: its bytes without its notes.
std::uint64_t digest_of_program(Program program);

/// Compiles the variants of a job one after the other, each after that of the same stages and
/// schedule which recomputes nothing.
class VariantCompiler {
 public:
  using Compile = std::function<Result<Program>(const Variant&)>;

  /// `compile` must outlive this.
  explicit VariantCompiler(const Compile& compile) : compile_(compile) {}

  /// A combination that the compiler refuses is no failure of the check, and one that its verifiers
  /// find wrong is what the check is for: those are verdicts.
  ///
  /// Small jobs meet the memory goal of recomputation "standard" without recomputing anything,
  /// which would compare nothing: they get a goal of half the bytes that their tensors need so, or
  /// else the lowest.
  CompiledVariant compile(Variant variant);

 private:
  Result<Program> compile_standard(Variant& variant);

  /// A Program that recomputes nothing.
  struct Storing {
    std::uint64_t digest = 0;
    std::uint64_t images = 0;  ///< Bytes of tensors where they are most, as `capacity`.
    std::uint64_t capacity = 0;
  };

  const Compile& compile_;
  std::optional<Storing> storing_;  ///< The last one.
};

}  // namespace poprun
