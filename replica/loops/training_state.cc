#include "replica/loops/training_state.h"

#include <algorithm>
#include <cstring>

#include "replica/graph/types.h"

namespace poprun {
namespace {

/// Returns whether the tensor keeps its value after the function that wrote it. This is false for remote buffers and
/// shards, which are stored as the variables that reside there.
bool is_state(const proto::Tensor& tensor) {
  const bool is_hosts = tensor.role() == proto::ROLE_STREAM || tensor.role() == proto::ROLE_METRIC;
  return (tensor.always_live() || tensor.has_residence()) && !is_hosts && tensor.role() != proto::ROLE_CONSTANT &&
         !is_remote(tensor) && tensor.shard_of().empty();
}

/// Returns the bytes of the shard in which a variable resides, or 0 if it is not sharded.
std::size_t shard_bytes(const Program& program, const proto::Tensor& tensor) {
  if (!tensor.shard_of().empty()) {
    return tensor.bytes();
  }
  // A remote buffer contains the bytes of all its entries, so its size is not that of a shard.
  const bool goes_on = tensor.has_residence() && tensor.residence().entry() < 0;
  return goes_on ? shard_bytes(program, program.tensors(static_cast<int>(tensor.residence().tensor()))) : 0;
}

}  // namespace

TrainingState::TrainingState(const Program& program, std::size_t self, std::size_t replicas, std::size_t group)
    : program_(program), self_(self), shards_(group > 0 ? group : replicas) {
  for (int t = 0; t < program.tensors_size(); ++t) {
    const proto::Tensor& tensor = program.tensors(t);
    if (is_state(tensor)) {
      variables_.push_back(
          {static_cast<std::uint32_t>(t), tensor.name(), tensor.bytes(), shard_bytes(program, tensor)});
      parts_ = variables_.back().shard_bytes > 0 ? shards_ : parts_;
    }
  }
  std::ranges::sort(variables_, {}, &Variable::name);
  for (std::size_t v = 0; v < variables_.size() && has_part(); ++v) {
    const auto& [tensor, name, bytes, shard] = variables_[v];
    const std::size_t begin = std::min(self_ * shard, bytes);
    const std::size_t count = shard > 0 ? std::min(shard, bytes - begin) : bytes;
    if (count > 0 && (shard > 0 || self_ == 0)) {
      slices_.push_back({v, begin, count});
    }
  }
}

proto::StateVariable TrainingState::described(const Variable& variable) const {
  const auto type = parse_type(program_.tensors(static_cast<int>(variable.tensor)).type());
  POPRUN_CHECK(type.has_value());
  proto::StateVariable described;
  described.set_name(variable.name);
  described.set_type(std::string(element_name(type->data)));
  if (type->layout == Layout::kRowMajor) {
    described.mutable_shape()->Add(type->shape.begin(), type->shape.end());
  } else {
    described.add_shape(type->elements());
  }
  described.set_bytes(variable.bytes);
  return described;
}

proto::StatePart TrainingState::part() const {
  proto::StatePart part;
  part.set_replica(static_cast<std::uint32_t>(self_));
  part.set_parts(static_cast<std::uint32_t>(parts_));
  for (const Variable& variable : variables_) {
    *part.add_variables() = described(variable);
  }
  for (const auto& [variable, offset, bytes] : slices_) {
    proto::StateSlice& slice = *part.add_slices();
    slice.set_variable(static_cast<std::uint32_t>(variable));
    slice.set_offset(offset);
    slice.set_bytes(bytes);
  }
  return part;
}

std::size_t TrainingState::bytes() const {
  std::size_t bytes = 0;
  for (const Slice& slice : slices_) {
    bytes += slice.bytes;
  }
  return bytes;
}

void TrainingState::copy(const Engine& engine, const StatisticsBackup& statistics, std::span<std::byte> into) const {
  for (const Slice& slice : slices_) {
    const Variable& variable = variables_[slice.variable];
    const Engine::Resident resident = engine.resident(variable.tensor);
    POPRUN_CHECK(resident.is_shard == (variable.shard_bytes > 0));
    const std::span<const std::byte> bytes =
        resident.is_shard ? resident.bytes : statistics.of(variable.name, resident.bytes);
    std::memcpy(into.data(), bytes.data(), slice.bytes);
    into = into.subspan(slice.bytes);
  }
}

Status TrainingState::restore(CheckpointSource* source, Engine& engine, Communicator& communicator) const {
  std::vector<std::byte> whole;
  for (const Variable& variable : variables_) {
    // All shards have the same size; the last ones are padded with zeros.
    whole.assign(std::max(variable.bytes, variable.shard_bytes * shards_), std::byte{});
    const std::span<std::byte> value = std::span(whole).first(variable.bytes);
    if (source != nullptr) {
      POPRUN_TRY(source->read(described(variable), value));
    }
    POPRUN_TRY(communicator.broadcast(value, ReplicaId{0}, variable.name));
    const std::size_t shard = variable.shard_bytes;
    engine.restore(variable.tensor, shard > 0 ? std::span(whole).subspan(self_ % shards_ * shard, shard) : value);
  }
  return engine.settle();
}

StatisticsBackup::StatisticsBackup(const Program& program) : program_(program) {
  for (int t = 0; t < program.tensors_size(); ++t) {
    const proto::Tensor& tensor = program.tensors(t);
    if (tensor.role() == proto::ROLE_BUFFER) {
      statistics_[tensor.name()] = {static_cast<std::uint32_t>(t), {}};
    }
  }
}

void StatisticsBackup::take(const Engine& engine) {
  for (auto& [name, statistic] : statistics_) {
    const std::span<const std::byte> bytes = engine.inspect(statistic.tensor);
    statistic.bytes.assign(bytes.begin(), bytes.end());
  }
  taken_ = true;
}

void StatisticsBackup::restore(Engine& engine) const {
  for (const auto& [name, statistic] : statistics_) {
    if (program_.tensors(static_cast<int>(statistic.tensor)).always_live()) {
      engine.restore(statistic.tensor, statistic.bytes);
    }
  }
}

std::span<const std::byte> StatisticsBackup::of(std::string_view tensor, std::span<const std::byte> bytes) const {
  const auto found = statistics_.find(tensor);
  return taken_ && found != statistics_.end() ? found->second.bytes : bytes;
}

}  // namespace poprun
