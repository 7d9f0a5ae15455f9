#pragma once

#include <string>

#include <boost/program_options.hpp>

#include "launcher/options/option_table.h"

namespace poprun::launcher {

/// Boost's view of the rows of `group`; every value is text to it. A flag's value is joined to it
/// by `=` before Boost parses (see command_line.cc), and help shows it without one.
boost::program_options::options_description described(Group group, const std::string& caption,
                                                      bool for_help);

}  // namespace poprun::launcher
