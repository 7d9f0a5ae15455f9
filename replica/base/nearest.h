#pragma once

#include <span>
#include <string>
#include <string_view>

namespace poprun {

/// The candidate that `typed` was most likely meant to be, by edit distance (insert, delete,
/// replace, swap neighbours); empty when none is close. Ties go to the first.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

/// How a message about the unknown name `typed` ends: "did you mean mk2?" where a candidate is
/// close, otherwise "available: bow, mk1, mk2".
std::string suggestion(std::string_view typed, std::span<const std::string> candidates);

}  // namespace poprun
