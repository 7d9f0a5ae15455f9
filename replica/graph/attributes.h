#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replica/base/error.h"

namespace poprun {

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

/// An operation's parameters by name, in name order.
///
/// The getters require that the attribute exists and has that type. The operators' shape inference checks attributes
/// from outside; all later code may rely on them.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> values) : values_(values) {}

  void set(std::string name, Attribute value) { values_[std::move(name)] = std::move(value); }
  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }

  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double real(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] const std::vector<std::int64_t>& integers(const std::string& name) const;
  [[nodiscard]] const std::vector<double>& reals(const std::string& name) const;

  [[nodiscard]] const std::map<std::string, Attribute>& values() const { return values_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  std::map<std::string, Attribute> values_;
};

/// Returns text like `bound=0.5 pad=[1,1] rank=2 layout="nhwc" values=[0.5,2.0]`. Reals always have a point or an
/// exponent, and all their digits, so that parsing returns the same value and type. In strings, a backslash escapes
/// quotes and backslashes. An empty list is always a list of integers.
std::string to_text(const Attributes& attributes);

/// Parses the text of `to_text`. Errors: kUsage, quoting the faulty text.
Result<Attributes> parse_attributes(std::string_view text);

}  // namespace poprun
