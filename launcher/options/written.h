#pragma once

#include <string>

#include "launcher/options/option_table.h"

namespace poprun::launcher {

/// One value somebody wrote, and where.
struct Written {
  const OptionRow* row;
  std::string value;
  std::string place;  ///< "--training.seed" or "train.cfg:7: seed", for messages.
  Origin origin;
};

}  // namespace poprun::launcher
