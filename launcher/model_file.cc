#include "launcher/model_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>

namespace poprun::launcher {

Result<std::string> read_model_file(const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("model.onnx {}: {}", path, why));
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return bad(std::strerror(errno));
  }
  std::ostringstream stream;
  stream << file.rdbuf();
  std::string bytes = std::move(stream).str();
  if (!file || bytes.empty()) {
    return bad("cannot be read, or is empty");
  }
  if (bytes.size() > std::numeric_limits<std::int32_t>::max()) {
    return bad("is larger than 2 GiB, which no ONNX file is");
  }
  return bytes;
}

}  // namespace poprun::launcher
