#include "replica/base/pattern.h"

#include <regex>

namespace poprun {

struct Pattern::Expression {
  std::regex regex;
};

Result<Pattern> Pattern::parse(const std::string& text) {
  try {
    return Pattern(text);
  } catch (const std::regex_error& error) {
    return fail(ErrorCode::kUsage, error.what());
  }
}

Pattern::Pattern(const std::string& text) : expression_(std::make_shared<const Expression>(std::regex(text))) {}

bool Pattern::finds(std::string_view name) const {
  return std::regex_search(name.begin(), name.end(), expression_->regex);
}

bool Pattern::matches(std::string_view name) const {
  return std::regex_match(name.begin(), name.end(), expression_->regex);
}

}  // namespace poprun
