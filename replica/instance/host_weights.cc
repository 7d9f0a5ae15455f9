#include "replica/instance/host_weights.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "replica/base/half.h"

namespace poprun {
namespace {

template <typename Stored, typename Convert>
void append(const std::string& data, std::string& floats, Convert convert) {
  for (std::size_t i = 0; i + sizeof(Stored) <= data.size(); i += sizeof(Stored)) {
    Stored stored{};
    std::memcpy(&stored, data.data() + i, sizeof(stored));
    const float value = convert(stored);
    floats.append(reinterpret_cast<const char*>(&value), sizeof(value));  // NOLINT: its bytes.
  }
}

}  // namespace

Status append_as_f32(const proto::TensorChunk& chunk, std::string& floats) {
  if (chunk.type() == "f32") {
    floats += chunk.data();
  } else if (chunk.type() == "f16") {
    append<Half>(chunk.data(), floats, to_float);
  } else if (chunk.type() == "bf16") {
    append<std::uint16_t>(chunk.data(), floats, [](std::uint16_t bits) {
      return std::bit_cast<float>(std::uint32_t{bits} << 16U);
    });
  } else if (chunk.type() == "f64") {
    append<double>(chunk.data(), floats, [](double value) { return static_cast<float>(value); });
  } else {
    return fail(ErrorCode::kData,
                fmt::format("model.initial-weights: '{}' has elements of type {}; weights are F32, "
                            "F16, BF16 or F64",
                            chunk.name(), chunk.type()));
  }
  return {};
}

}  // namespace poprun
