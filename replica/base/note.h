#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "replica/base/units.h"

namespace poprun {

/// A number or text stated by a note, in a form for programs. Sizes are in bytes.
struct Fact {
  Fact(std::string_view what, std::integral auto number) : name(what), value(static_cast<std::int64_t>(number)) {}
  Fact(std::string_view what, Bytes bytes) : name(what), value(bytes.count()) {}
  Fact(std::string_view what, std::string text) : name(what), value(std::move(text)) {}

  std::string name;
  std::variant<std::int64_t, std::string> value;

  friend bool operator==(const Fact&, const Fact&) = default;
};

/// A decision with its reasons, or a statement that an option has no effect (in compilers, a diagnostic or remark).
/// `text` is for people; `code` and `facts` are for programs, which never parse texts.
struct Note {
  std::string code;  ///< Name of the decision, such as "sharding.sharded". It is the same in all versions.
  std::string text;  ///< One line, with the numbers.
  std::vector<Fact> facts = {};

  friend bool operator==(const Note&, const Note&) = default;
};

}  // namespace poprun
