/// poprun-emu-opt --pass NAME FILE: runs one compiler pass alone, from text to text (pass_states.h). FILE contains the
/// output of `poprun-emu --dry-run -vv` or a short handwritten job; - is standard input. Exit codes:
/// replica/base/error.h.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "replica/compilation/pass_states.h"

namespace {

poprun::Result<std::string> read_all(std::istream& stream, const std::string& name) {
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (!stream || bytes.bad()) {
    return poprun::fail(poprun::ErrorCode::kData, fmt::format("{}: cannot be read", name));
  }
  return std::move(bytes).str();
}

poprun::Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return read_all(file, path);
}

/// Runs the pass on the job in the file and appends the resulting job to `text`.
poprun::Status run(std::string_view pass, const std::string& path, std::string& text) {
  poprun::Result<std::string> states = path == "-" ? read_all(std::cin, "standard input") : read_file(path);
  if (!states) {
    return tl::unexpected<poprun::Error>{states.error()};
  }
  return poprun::run_alone(pass, *states, read_file, text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::string_view{argv[1]} != "--pass") {
    fmt::print(stderr, "usage: poprun-emu-opt --pass NAME FILE, with the output of poprun-emu --dry-run -vv in FILE\n");
    return exit_code_of(poprun::ErrorCode::kUsage);
  }
  std::string text;
  const poprun::Status status = run(argv[2], argv[3], text);
  fmt::print("{}", text);
  if (!status) {
    fmt::print(stderr, "{}\n", status.error().message);
    return exit_code_of(status.error().code);
  }
  return 0;
}
