#pragma once

#include <string>

#include "replica/ops/face/operator.h"

namespace poprun {

/// The key of an operation's random numbers: a name, so that equal operations draw different numbers. Equal runs of
/// operations that share one function have their names from the call:
///
///   call() function="outlined.0" micro_batch=0 salt0="encoder.7.dropout"
///   y = dropout(x) key=0 rate=0.1
///
/// draws what `key="encoder.7.dropout"` does.
class RandomName {
 public:
  RandomName() = default;

  /// The attribute is a name, or the number of a salt.
  explicit RandomName(const Attribute& attribute);

  /// Requires: the running call has the salt.
  [[nodiscard]] const std::string& at(const Moment& now) const;

 private:
  std::string name_;
  std::optional<std::size_t> salt_;
};

/// Whether an operation's attribute of that name keys random numbers.
bool keys_random_numbers(const std::string& attribute);

}  // namespace poprun
