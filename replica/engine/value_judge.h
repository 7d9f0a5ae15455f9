#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/device_memory.h"
#include "replica/graph/types.h"
#include "replica/ops/face/operator.h"
#include "replica/program/program.h"

namespace poprun {

inline constexpr std::string_view kInfinity = "infinity";

/// An element that is NaN or infinite.
struct NotFinite {
  std::string_view what;  ///< "NaN" or kInfinity.
  std::int64_t element;   ///< Index in storage order.
};

/// Returns the first NaN in a float tensor, or else its first infinite element; integers are always finite. Cost: one
/// read of the bytes, several elements at a time. The cost is higher if there is such an element.
std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes);

/// Returns whether any element is infinite, or has at least the magnitude of the largest finite number of its own type
/// or of type `result`. Masks consist of such numbers, which stay extreme if something is added to them. Cost: one read
/// of the bytes, several elements at a time.
bool has_extreme(const TensorType& type, std::span<const std::byte> bytes, DataType result);

/// Decides whether a non-finite number that an operator reads or writes is a fault, and where the fault began.
/// Infinities that an operator was given and passes on, such as attention masks, are not faults.
class ValueJudge {
 public:
  /// All arguments must outlive this object. `types` is indexed by tensor.
  ValueJudge(const Program& program, const std::vector<TensorType>& types, const HostImages& images,
             const Moment& moment)
      : program_(program), types_(types), images_(images), moment_(moment) {}

  /// Findings about the input that an operator overwrites, made before the operator runs.
  struct Overwritten {
    std::optional<std::uint32_t> tensor;  ///< Empty if the operator overwrites no input.
    bool has_extreme = false;
    std::optional<NotFinite> not_finite = {};
  };

  /// Records that a step only moves numbers from `sources` to `result`.
  void note_move(std::uint32_t result, const google::protobuf::RepeatedField<std::uint32_t>& sources) {
    moved_from_[result] = {sources.begin(), sources.end()};
  }

  /// Examines the input that an operator is about to overwrite. Cost: one read of that input.
  [[nodiscard]] Overwritten look_at(std::optional<std::uint32_t> overwritten) const;

  /// Returns a faulty number in an operator's result, if there is one. Cost: one read of the result.
  [[nodiscard]] std::optional<NotFinite> fault_of_result(std::uint32_t result, const proto::Execute& step,
                                                         const Overwritten& before) const;

  /// Returns the error for a faulty result: kData, naming the first faulty input or, if there is none, the result.
  [[nodiscard]] Status blame(std::uint32_t result, const NotFinite& fault, const proto::Execute& step,
                             const Overwritten& before) const;

  /// Checks that tensors are finite; `use` describes how they are used. Errors: kData.
  [[nodiscard]] Status check(std::span<const std::uint32_t> tensors, std::string_view use) const;

  /// Describes an index in an operator's input 1 that is out of range for its input 0.
  [[nodiscard]] std::string text_of(const StrayIndex& stray, const proto::Execute& step) const;

 private:
  [[nodiscard]] std::optional<NotFinite> not_finite(std::uint32_t tensor) const {
    return find_not_finite(types_.at(tensor), images_.of(tensor));
  }

  /// Returns whether the tensor may hold infinities that come from its operator's inputs: true for constants and
  /// intermediate results, false for tensors streamed in or updated in place.
  [[nodiscard]] bool may_be_infinite(std::uint32_t tensor) const;

  /// Returns whether an operator with a result of that type may pass on extremes (has_extreme) of its inputs.
  [[nodiscard]] bool takes_extremes(const proto::Execute& step, const Overwritten& before, DataType result) const;

  /// Returns whether a number that is not finite comes from the data: whether the tensor is part of a host stream, or
  /// was moved out of one by steps, such as reshape, whose other sources are finite.
  [[nodiscard]] bool comes_from_data(std::uint32_t tensor) const;

  /// `known_remedy` replaces the usual remedies, if it is not null.
  [[nodiscard]] Status failure(std::uint32_t tensor, const NotFinite& found, std::string_view what,
                               const char* known_remedy = nullptr) const;

  const Program& program_;
  const std::vector<TensorType>& types_;
  const HostImages& images_;
  const Moment& moment_;
  /// For the result of each step that only moves numbers, the tensors from which it moves them.
  std::map<std::uint32_t, std::vector<std::uint32_t>> moved_from_;
};

}  // namespace poprun
