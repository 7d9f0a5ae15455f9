#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What a message says to somebody who wrote a name that does not exist.
namespace poprun::launcher {

/// What other launchers and frameworks call an option of ours, or nothing.
std::string_view called_elsewhere(std::string_view typed);

/// The message about an unknown option, as it was `typed`: what to use instead where it is one of
/// poprun, mpirun, torchrun or a framework, otherwise the options of that key, of a name or key
/// nearly so, or of a name that ends so: `--seed` is --training.seed.
std::string unknown_option(std::string_view typed);

}  // namespace poprun::launcher
