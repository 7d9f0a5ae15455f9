#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "launcher/pages/pages.h"

/// Prints poprun-emu's manual page, or its completion script for a shell. The build runs this program.
int main(int argc, char** argv) {
  using namespace poprun::launcher;
  const std::map<std::string_view, std::string (*)()> pages = {
      {"man", manual_page}, {"bash", bash_completion}, {"fish", fish_completion}, {"zsh", zsh_completion}};
  const auto page = pages.find(argc == 2 ? argv[1] : "");
  if (page == pages.end()) {
    fmt::print(stderr, "usage: poprun-emu-pages man|bash|fish|zsh\n");
    return 64;
  }
  fmt::print("{}", page->second());
  return 0;
}
