#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What somebody may have meant who wrote a name that there is not.
namespace poprun::launcher {

/// What other launchers and frameworks call an option of ours, or nothing.
std::string_view called_elsewhere(std::string_view typed);

/// The options that may have been meant by `typed`: of that key, of a name or key nearly so, or of
/// a name that ends so. `--seed` is --training.seed, `--batch-size` --data.micro-batch-size.
std::vector<std::string> meant_by(std::string_view typed);

}  // namespace poprun::launcher
