#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/machine/machine.h"
#include "replica/program/program.h"

/// The part of the proof of a Program's memory that needs no run of it.
namespace poprun {

/// Errors of the proof: kBug.
tl::unexpected<Error> memory_bug(std::string_view what);

/// "step 12 (conv2d 'conv1')"
std::string describe(const proto::Step& step);

/// A step with what is asked of it often.
struct NamedStep {
  const proto::Step* step = nullptr;
  StepTensors tensors = {};
  std::vector<NamedStep> inner = {};  ///< A repeat's steps.
  bool is_view = false;               ///< It writes nothing.
};

/// A function's steps, with the tensors that they name.
std::vector<NamedStep> name_tensors(const Program& program,
                                    const google::protobuf::RepeatedPtrField<proto::Step>& steps);

/// Checks what holds at every step, whenever it runs: tensors live there, lie on one IPU if they must, and share bytes
/// only if an operator may take those of its input.
class StaticCheck {
 public:
  explicit StaticCheck(const Program& program) : program_(program), highest_(memory_count(program)) {}

  /// Errors, of both: kBug, names step and tensor.
  Status steps(const std::vector<NamedStep>& all);
  /// Whether the planned peaks are those of the steps seen so far.
  [[nodiscard]] Status peaks() const;

 private:
  Status step(const NamedStep& named);
  [[nodiscard]] Status overlaps(const proto::Step& step) const;

  const Program& program_;
  std::vector<std::uint64_t> highest_;  ///< By memory.
};

}  // namespace poprun
