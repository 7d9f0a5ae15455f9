#pragma once

#include <cstdint>
#include <string>

#include "replica/ops/face/operator.h"

namespace poprun {

/// An operation's random-number key. The key is a name, so that identical operations draw different numbers. If several
/// calls share a function, its operations get their names from the call, as salts (JAX folds such salts into its keys):
///
///   call() function="outlined.0" micro_batch=0 salt0="encoder.7.dropout"
///   y = dropout(x) key=0 rate=0.1
///
/// This dropout draws the same numbers as one with `key="encoder.7.dropout"`.
class RandomName {
 public:
  RandomName() = default;
  explicit RandomName(const Attribute& attribute);               ///< A name, or the index of a salt.
  [[nodiscard]] const std::string& at(const Moment& now) const;  ///< Requires: the current call passes the salt.

 private:
  std::string name_;
  std::optional<std::size_t> salt_;
};

/// Returns the key of the numbers that an operation with this name draws now: a pure function of the job's seed, the
/// name, the step, the micro-batch and the replica.
std::uint64_t key_of(const Moment& now, const std::string& name);

/// Returns whether the attribute with that name is a random-number key.
bool keys_random_numbers(const std::string& attribute);

}  // namespace poprun
