#pragma once

#include <string>

namespace poprun::launcher {

/// Generates poprun-emu(1) in groff's man macros (groff_man(7)) from the option table.
std::string manual_page();

}  // namespace poprun::launcher
