#include "launcher/outputs/onnx_file.h"

#include <limits>

#include <fmt/format.h>

#include "launcher/outputs/read_file.h"
#include "replica/base/text.h"

namespace poprun::launcher {

Result<OnnxFile> read_onnx_file(const std::string& path) {
  const auto bad = [](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("model.onnx {}", why));
  };
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (const auto size = size_of_file(path); size > kMost) {
    return bad(
        fmt::format("{}: is {} B long; an ONNX file can have at most 2 GiB", path, grouped(*size)));
  }
  Result<std::string> bytes = read_file(path, kMost + 1);
  if (!bytes) {
    return bad(bytes.error().message);
  }
  if (bytes->empty()) {
    return bad(path + ": is empty");
  }
  if (bytes->size() > kMost) {
    return bad(path + ": is larger than 2 GiB, the limit for an ONNX file");
  }
  return OnnxFile{path, *std::move(bytes)};
}

}  // namespace poprun::launcher
