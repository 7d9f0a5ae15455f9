#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/machine/machine.h"
#include "replica/program/program.h"

/// The part of the memory proof (occupancy.h) that does not run the Program.
namespace poprun {

tl::unexpected<Error> memory_bug(std::string_view what);

/// Describes a step, such as "step 12 (conv2d 'conv1')".
std::string describe(const proto::Step& step);

struct NamedStep {
  const proto::Step* step = nullptr;
  StepTensors tensors = {};
  std::vector<NamedStep> inner = {};  ///< A repeat's steps.
  bool is_view = false;               ///< Whether the step is a view, which writes nothing.
};

std::vector<NamedStep> name_tensors(const Program& program,
                                    const google::protobuf::RepeatedPtrField<proto::Step>& steps);

/// Checks what must hold at every step: its tensors are live, are on one IPU if the step requires this, and share bytes
/// only if the step takes those bytes in place.
class StaticCheck {
 public:
  explicit StaticCheck(const Program& program) : program_(program), highest_(memory_count(program)) {}

  /// Checks these steps. Errors: kBug; the message names the step and the tensor.
  Status steps(const std::vector<NamedStep>& all);
  /// Checks that the steps seen so far reach exactly the planned peaks. Errors: kBug.
  [[nodiscard]] Status peaks() const;

 private:
  Status step(const NamedStep& named);
  [[nodiscard]] Status overlaps(const proto::Step& step) const;

  const Program& program_;
  std::vector<std::uint64_t> highest_;  ///< Indexed by memory.
};

}  // namespace poprun
