#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/written.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// What the text of a train.cfg gives values to. `file` is for messages.
///
/// Errors
///   kUsage  `file:line: ...`: those of parse_config; an unknown section or key, with the one that
///           may have been meant; a key given twice.
Result<std::vector<Written>> written_in_file(const std::string& file, std::string_view text);

}  // namespace poprun::launcher
