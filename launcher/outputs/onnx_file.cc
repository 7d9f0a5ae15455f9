#include "launcher/outputs/onnx_file.h"

#include <limits>

#include <fmt/format.h>

#include "launcher/outputs/read_file.h"

namespace poprun::launcher {

Result<OnnxFile> read_onnx_file(const std::string& path) {
  const auto bad = [](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("model.onnx {}", why));
  };
  Result<std::string> bytes = read_file(path);
  if (!bytes) {
    return bad(bytes.error().message);
  }
  if (bytes->empty()) {
    return bad(path + ": is empty");
  }
  if (bytes->size() > std::numeric_limits<std::int32_t>::max()) {
    return bad(path + ": is larger than 2 GiB, which no ONNX file is");
  }
  return OnnxFile{path, *std::move(bytes)};
}

}  // namespace poprun::launcher
