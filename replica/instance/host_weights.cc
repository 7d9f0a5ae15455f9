#include "replica/instance/host_weights.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/half.h"
#include "replica/program/host_contract.h"

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

Status check_initial_weights(const Program& program,
                             const std::map<std::string, Shape, std::less<>>& file,
                             bool model_has_weights) {
  for (const proto::Step& step : find_function(program, name_of(JobFunction::kLoad))->steps()) {
    if (!step.has_stream_in()) {
      continue;
    }
    for (const std::uint32_t id : step.stream_in().tensors()) {
      const proto::Tensor& tensor = program.tensors(static_cast<int>(id));
      POPRUN_ASSIGN(const TensorType type, parse_type(tensor.type()));
      const auto found = file.find(tensor.name());
      const bool fits = found == file.end() ? model_has_weights : found->second == type.shape;
      if (!fits) {
        return fail(
            ErrorCode::kData,
            fmt::format("model.initial-weights: the model needs '{}' [{}], the file has {}",
                        tensor.name(), fmt::join(type.shape, ","),
                        found == file.end() ? "none of that name"
                                            : fmt::format("[{}]", fmt::join(found->second, ","))));
      }
    }
  }
  return {};
}

}  // namespace poprun
