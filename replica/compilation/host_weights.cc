#include "replica/compilation/host_weights.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "replica/base/half.h"
#include "replica/compilation/expert_weights.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

template <typename Stored, typename Convert>
std::string converted(std::string_view data, Convert convert) {
  std::string floats;
  floats.reserve(data.size() / sizeof(Stored) * sizeof(float));
  for (std::size_t i = 0; i + sizeof(Stored) <= data.size(); i += sizeof(Stored)) {
    Stored stored{};
    std::memcpy(&stored, data.data() + i, sizeof(stored));
    const float value = convert(stored);
    floats.append(reinterpret_cast<const char*>(&value), sizeof(value));  // NOLINT: its bytes.
  }
  return floats;
}

}  // namespace

std::string as_f32(std::string_view type, std::string data) {
  if (type == "f32") {
    return data;
  }
  if (type == "f16") {
    return converted<Half>(data, to_float);
  }
  if (type == "bf16") {
    return converted<std::uint16_t>(
        data, [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16U); });
  }
  POPRUN_CHECK(type == "f64");
  return converted<double>(data, [](double value) { return static_cast<float>(value); });
}

WeightsPolicy weights_policy(const proto::RunConfig& config) {
  return {.model_has_weights = !config.model().onnx().empty(), .partial = config.model().initial_weights_partial()};
}

Result<WeightMatch> match_initial_weights(const Program& program, FileTensors& file, const WeightsPolicy& policy) {
  std::vector<WantedWeight> wanted;
  for (const proto::Step& step : find_function(program, name_of(JobFunction::kLoad))->steps()) {
    if (!step.has_stream_in()) {
      continue;
    }
    for (const std::uint32_t id : step.stream_in().tensors()) {
      const proto::Tensor& tensor = program.tensors(static_cast<int>(id));
      if (tensor.role() != proto::ROLE_CONSTANT) {
        POPRUN_ASSIGN(const TensorType type, parse_type(tensor.type()));
        wanted.push_back({tensor.name(), type.shape});
      }
    }
  }
  POPRUN_ASSIGN(const std::optional<Note> stacked, stack_experts(wanted, file));
  const MatchOptions options{.may_lack = policy.model_has_weights || policy.partial,
                             .otherwise = policy.model_has_weights ? "values of the ONNX file" : "initialisation"};
  POPRUN_ASSIGN(WeightMatch match, match_weights(wanted, file, options));
  if (stacked) {
    match.notes.insert(match.notes.begin(), *stacked);
  }
  return match;
}

HostWeights weights_from(FileTensors file, const WeightMatch& match) {
  std::map<std::string, std::size_t> uses;  // Tied weights share a tensor.
  for (const auto& [weight, name] : match.sources) {
    ++uses[name];
  }
  HostWeights weights;
  for (const auto& [weight, name] : match.sources) {
    FileTensor& tensor = file.find(name)->second;
    weights[weight] = as_f32(tensor.type, --uses[name] > 0 ? tensor.data : std::exchange(tensor.data, {}));
  }
  return weights;
}

}  // namespace poprun
