#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/loops/loop.h"
#include "replica/program/program.h"

namespace poprun {

/// Digests of everything that the steps of one training step write, or those of the evaluation
/// after it, in order and in every micro-batch: to find where two runs of a job part. Costs 24
/// bytes for each tensor written.
class ValueTrace final : public StepWatcher, private StepObserver {
 public:
  enum class Of : std::uint8_t { kStep, kEvaluation };

  /// Traces training step `step`, from 1, or what the run does after it. `program` must outlive
  /// this, and this the run.
  ValueTrace(const Program& program, std::uint64_t step, Of traced)
      : program_(program), step_(step), traced_(traced) {}

  /// The first value of this trace whose counterpart in `other` is not equal, as a phrase:
  /// "'fc1.weight.gradient' of linear_grad in micro-batch 2, backward part of stage 1 on IPU 1".
  /// Where and by what operation are those of `other`. Values that only one has do not count.
  [[nodiscard]] std::optional<std::string> first_difference(const ValueTrace& other) const;

 private:
  /// A value that a step wrote.
  struct Value {
    std::uint32_t tensor;
    std::uint32_t micro_batch;
    std::uint32_t step;  ///< Step.number.
    std::uint64_t digest;
  };

  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;
  void watch(Engine& engine);
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& step) override;
  [[nodiscard]] bool sees_every_round() const override { return true; }

  [[nodiscard]] std::string text_of(const Value& value) const;

  const Program& program_;
  std::uint64_t step_;
  Of traced_;
  Engine* engine_ = nullptr;  ///< While it is traced.
  std::vector<Value> values_;
};

}  // namespace poprun
