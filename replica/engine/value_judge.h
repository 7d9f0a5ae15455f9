#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/device_memory.h"
#include "replica/engine/finite.h"
#include "replica/ops/face/operator.h"
#include "replica/program/program.h"

namespace poprun {

/// Judges the values that operators read and write: whether a number that is not finite is a fault, and whose.
/// Infinities that an operator was given and passes on are none, such as attention masks.
class ValueJudge {
 public:
  /// All must outlive this. `types`: by tensor.
  ValueJudge(const Program& program, const std::vector<TensorType>& types, const HostImages& images,
             const Moment& moment)
      : program_(program), types_(types), images_(images), moment_(moment) {}

  /// Findings about the input that an operator overwrites, taken before it runs.
  struct Overwritten {
    std::optional<std::uint32_t> tensor;  ///< Nothing: it overwrites none.
    bool has_extreme = false;
    std::optional<NotFinite> not_finite = {};
  };

  /// Notes that a step only moves numbers from `sources` to `result`.
  void note_move(std::uint32_t result, const google::protobuf::RepeatedField<std::uint32_t>& sources) {
    moved_from_[result] = {sources.begin(), sources.end()};
  }

  /// Cost: a read of that input.
  [[nodiscard]] Overwritten look_at(std::optional<std::uint32_t> overwritten) const;

  /// A number in an operator's result that is a fault. Cost: a read of the result.
  [[nodiscard]] std::optional<NotFinite> fault_of_result(std::uint32_t result, const proto::Execute& step,
                                                         const Overwritten& before) const;

  /// The error of a faulty result: kData, naming the input that had it first, or the result.
  [[nodiscard]] Status blame(std::uint32_t result, const NotFinite& fault, const proto::Execute& step,
                             const Overwritten& before) const;

  /// Checks tensors that are used as `use` says. Errors: kData.
  [[nodiscard]] Status check(std::span<const std::uint32_t> tensors, std::string_view use) const;

  /// Says which index of an operator's input 1 is out of range for its input 0.
  [[nodiscard]] std::string text_of(const StrayIndex& stray, const proto::Execute& step) const;

 private:
  [[nodiscard]] std::optional<NotFinite> not_finite(std::uint32_t tensor) const {
    return find_not_finite(types_.at(tensor), images_.of(tensor));
  }

  /// Whether the tensor may hold infinities that come from its operator's inputs: true for constants and intermediate
  /// results, false for tensors streamed in or updated in place.
  [[nodiscard]] bool may_be_infinite(std::uint32_t tensor) const;

  /// Whether an operator with a result of that type has infinities to pass on, or numbers as good as infinite.
  [[nodiscard]] bool takes_extremes(const proto::Execute& step, const Overwritten& before, DataType result) const;

  /// Whether a number that is not finite was in the data: the tensor is a host stream's, or moved out of one by steps
  /// like reshape, with nothing else in it that is not finite.
  [[nodiscard]] bool comes_from_data(std::uint32_t tensor) const;

  [[nodiscard]] Status failure(std::uint32_t tensor, const NotFinite& found, std::string_view what) const;

  const Program& program_;
  const std::vector<TensorType>& types_;
  const HostImages& images_;
  const Moment& moment_;
  /// By result of a step that only moves numbers, the tensors that it moves them from.
  std::map<std::uint32_t, std::vector<std::uint32_t>> moved_from_;
};

}  // namespace poprun
