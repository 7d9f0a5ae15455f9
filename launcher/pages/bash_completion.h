#pragma once

#include <string>

namespace poprun::launcher {

/// A completion for bash, from the option table: options, the values of those that have a list, and
/// files, folders, hosts, datasets and models where an option takes one. Needs nothing but bash.
std::string bash_completion();

}  // namespace poprun::launcher
