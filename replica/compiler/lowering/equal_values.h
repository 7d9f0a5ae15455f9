#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/program/program.h"

namespace poprun {

/// Finds out which tensors are equal on all replicas, by abstract interpretation of all functions. A value is equal if
/// a step computes it from equal values alone, or if it is initialised, comes from a host stream that is the same for
/// all replicas, or is the result of an exchange that gives all replicas the same. Batches, random numbers, shards and
/// all values derived from them differ. Cost: a few passes over the steps, in which calls are inlined.
class EqualValues {
 public:
  explicit EqualValues(const Program& program);

  /// Returns whether the tensor's value is equal after the first function and after every step that writes it.
  [[nodiscard]] bool is_always_equal(std::uint32_t tensor) const { return always_equal_[tensor] && loaded_[tensor]; }

  /// Returns whether the results of the `execute` step are equal whenever it runs.
  [[nodiscard]] bool has_equal_results(const proto::Step& step) const;

 private:
  using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

  void run();
  void run(const Steps& steps);
  void write(const proto::Step& step);
  void find_random(const Steps& steps);
  void set(std::uint32_t tensor, bool equal);
  bool gives_equal(const proto::Step& step);
  bool execute(const proto::Step& step);
  /// Returns what is equal now and also in the other state.
  [[nodiscard]] std::vector<bool> also_equal_in(const std::vector<bool>& other) const;

  std::vector<const proto::Function*> entries_;  ///< Functions that the host runs; "load" first.
  std::map<std::string, const proto::Function*> callees_;
  std::set<std::uint32_t> random_;  ///< Numbers of steps that give different results for equal operands.
  std::vector<bool> equal_;         ///< Now, indexed by tensor.
  std::vector<bool> always_equal_;
  std::vector<bool> loaded_;
  std::map<std::uint32_t, bool> equal_results_;  ///< Keyed by step number.
};

}  // namespace poprun
