#include <string_view>

#include <fmt/format.h>

#include "launcher/pages/pages.h"

/// Prints poprun-emu's manual page or its completion script for bash. The build runs this program.
int main(int argc, char** argv) {
  const std::string_view page = argc == 2 ? argv[1] : "";
  if (page != "man" && page != "bash") {
    fmt::print(stderr, "usage: poprun-emu-pages man|bash\n");
    return 64;
  }
  fmt::print("{}", page == "man" ? poprun::launcher::manual_page() : poprun::launcher::bash_completion());
  return 0;
}
