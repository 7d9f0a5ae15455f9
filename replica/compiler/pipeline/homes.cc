#include "replica/compiler/pipeline/homes.h"

#include <fmt/format.h>

namespace poprun {

std::optional<std::uint32_t> Homes::of(TensorId tensor) const {
  return homes_.at(index_of(tensor));
}

void Homes::settle(TensorId tensor, std::uint32_t ipu) {
  std::optional<std::uint32_t>& home = homes_.at(index_of(tensor));
  if (!home) {
    home = ipu;
    graph_.set_ipu(tensor, ipu);
  }
}

TensorId Homes::on(TensorId variable, std::uint32_t ipu) {
  settle(variable, ipu);
  if (of(variable) == ipu) {
    return variable;
  }
  const auto [entry, absent] = replica_on_.try_emplace({variable, ipu}, variable);
  if (absent) {
    const Tensor& tensor = graph_.tensor(variable);
    entry->second = add(fmt::format("{}@ipu{}", tensor.name, ipu), tensor.type, variable, ipu);
    replicas_.push_back({variable, entry->second});
  }
  return entry->second;
}

TensorId Homes::add(const std::string& name, TensorType type, TensorId like, std::uint32_t ipu) {
  // Parameters and buffers are saved and trained by their own names alone.
  const Role role = graph_.tensor(like).role == Role::kStream ? Role::kStream : Role::kActivation;
  const TensorId original = graph_.tensor(like).copy_of.value_or(like);
  const TensorId id = graph_.add_tensor(
      {name, std::move(type), role, graph_.tensor(like).keeps_f32, ipu, original});
  homes_.emplace_back(ipu);
  return id;
}

}  // namespace poprun
