#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// A regular expression (ECMAScript) for names, such as those of a job's tensors. Only this class includes <regex>,
/// whose templates take two to three seconds to compile in every file that uses them.
class Pattern {
 public:
  /// Errors: kUsage, with the reason alone, for example "Mismatched '(' and ')' in regular expression".
  static Result<Pattern> parse(const std::string& text);

  /// Requires: `parse` accepts the text.
  explicit Pattern(const std::string& text);

  /// Returns whether a part of `name` matches. An empty pattern finds all names.
  [[nodiscard]] bool finds(std::string_view name) const;

  /// Returns whether the whole of `name` matches.
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  struct Expression;
  std::shared_ptr<const Expression> expression_;
};

}  // namespace poprun
