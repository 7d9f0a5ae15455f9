// DEPS: poprun::launcher_outputs
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/outputs/safetensors.h"
#include "tests/fuzz/fuzz.h"

using poprun::launcher::Tensor;

static std::string file_of(const std::vector<Tensor>& tensors) {
  std::string bytes = poprun::launcher::safetensors_header(tensors);
  for (const Tensor& tensor : tensors) {
    bytes += tensor.data;
  }
  return bytes;
}

/// Checks that accepted input can be written and read again without a change.
static void check(std::string_view bytes) {
  const auto tensors = poprun::launcher::parse_safetensors("input", bytes);
  if (!tensors) {
    POPRUN_CHECK(tensors.error().code == poprun::ErrorCode::kData);
    POPRUN_CHECK(tensors.error().message.find('\n') == std::string::npos);
    return;
  }
  const auto again = poprun::launcher::parse_safetensors("again", file_of(*tensors));
  POPRUN_CHECK(again && again->size() == tensors->size());
}

/// Parses the input as a file, and again with a matching header length, so that mutations get past the check of it:
/// everything up to the first newline is the header.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(data, data + size);
  check(bytes);
  const std::size_t header = std::min(bytes.find('\n'), bytes.size());
  std::string framed;
  for (std::size_t i = 0; i < 8; ++i) {
    framed += static_cast<char>((header >> (8 * i)) & 0xFF);
  }
  check(framed + bytes.substr(0, header) + bytes.substr(std::min(header + 1, bytes.size())));
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  const std::string whole = file_of({{"conv1.weight", "F32", {1, 2}, "12345678"}, {"b", "U8", {3}, "abc"}});
  const std::string framed =
      R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})"
      "\n12345678abc";
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  return {{whole.begin(), whole.end()}, {framed.begin(), framed.end()}, {deep.begin(), deep.end()}};
}
