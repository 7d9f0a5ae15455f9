#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace poprun::testing {

/// Returns the texts of notes or of their messages.
template <typename Notes>
std::vector<std::string> texts(const Notes& notes) {
  std::vector<std::string> all;
  for (const auto& note : notes) {
    if constexpr (requires { note.text(); }) {
      all.push_back(note.text());
    } else {
      all.push_back(note.text);
    }
  }
  return all;
}

}  // namespace poprun::testing
