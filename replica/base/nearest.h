#pragma once

#include <span>
#include <string>
#include <string_view>

namespace poprun {

/// The candidate that `typed` was most likely meant to be, by edit distance (insert, delete,
/// replace, swap neighbours); empty when none is close. Ties go to the first.
std::string nearest(std::string_view typed, std::span<const std::string> candidates);

}  // namespace poprun
