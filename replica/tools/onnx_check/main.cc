/// poprun-emu-onnx-check DIR runs ONNX tests for `poprun-emu --check-onnx DIR`. Exit codes: replica/base/error.h.
#include <cstdio>

#include <fmt/format.h>

#include "replica/tools/onnx_check/onnx_check.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: poprun-emu-onnx-check DIR\n");
    return exit_code_of(poprun::ErrorCode::kUsage);
  }
  // A case can take a long time, so each result is printed as soon as it is available.
  const poprun::Status status = poprun::check_onnx(argv[1], [](std::string_view line) {
    fmt::print("{}", line);
    std::fflush(stdout);
  });
  if (!status) {
    fmt::print(stderr, "{}\n", status.error().message);
    return exit_code_of(status.error().code);
  }
  return 0;
}
