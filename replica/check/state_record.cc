#include "replica/check/state_record.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <string_view>

#include "replica/graph/types.h"

namespace poprun {
namespace {

/// Neither a remote buffer nor a shard, which are where variables reside.
bool lives_on(const proto::Tensor& tensor) {
  const bool is_variable = tensor.role() == proto::ROLE_PARAMETER ||
                           tensor.role() == proto::ROLE_BUFFER ||
                           tensor.role() == proto::ROLE_OPTIMIZER_STATE;
  return is_variable && !is_remote(tensor) && tensor.shard_of().empty();
}

std::size_t elements_of(const proto::Tensor& tensor) {
  const auto type = parse_type(tensor.type());
  POPRUN_CHECK(type.has_value());
  return static_cast<std::size_t>(type->elements());
}

}  // namespace

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void StateRecord::begin(std::uint64_t /*step*/, Engine& /*engine*/) {
  began_ = now_seconds();
}

StateDigest StateRecord::digest(const Engine& engine, std::uint32_t tensor) const {
  const proto::Tensor& source = program_.tensors(static_cast<int>(tensor));
  const Engine::Resident resident = engine.resident(tensor);
  const std::size_t elements = elements_of(source);
  const std::size_t width = source.bytes() / elements;
  const std::size_t size = (elements + shard_.count - 1) / shard_.count * width;
  const std::size_t begin = std::min(shard_.self * size, source.bytes());
  const std::size_t count = std::min(size, source.bytes() - begin);
  if (resident.is_shard) {
    return {.part = digest_of(resident.bytes.first(count)), .is_whole = false};
  }
  return {.whole = digest_of(resident.bytes),
          .part = digest_of(resident.bytes.subspan(begin, count))};
}

void StateRecord::end(const StepReport& report, Engine& engine) {
  seconds_.push_back(now_seconds() - began_);
  StateDigests& digests = steps_.emplace_back();
  digests["the loss"] = {.whole = std::bit_cast<std::uint64_t>(report.loss)};
  digests["the accuracy"] = {.whole = std::bit_cast<std::uint64_t>(report.accuracy)};
  for (int t = 0; t < program_.tensors_size(); ++t) {
    const proto::Tensor& tensor = program_.tensors(t);
    if (lives_on(tensor)) {
      digests["'" + tensor.name() + "'"] = digest(engine, static_cast<std::uint32_t>(t));
    }
  }
}

void StateRecord::add(const EvaluationReport& evaluation) {
  if (evaluation.items > 0) {
    steps_.push_back(
        {{"the loss", {.whole = std::bit_cast<std::uint64_t>(evaluation.loss)}},
         {"the accuracy", {.whole = std::bit_cast<std::uint64_t>(evaluation.accuracy)}}});
  }
}

double StateRecord::step_seconds() const {
  const std::size_t first = seconds_.size() > 1 ? 1 : 0;
  const auto begin = seconds_.begin() + static_cast<std::ptrdiff_t>(first);
  return seconds_.empty() ? 0
                          : std::accumulate(begin, seconds_.end(), 0.0) /
                                static_cast<double>(seconds_.size() - first);
}

std::optional<StateDifference> first_difference(std::span<const StateDigests> reference,
                                                std::span<const StateDigests> other) {
  for (std::size_t step = 0; step < reference.size(); ++step) {
    for (const auto& [name, digest] : reference[step]) {
      if (step >= other.size()) {
        return StateDifference{step + 1, name};
      }
      const auto found = other[step].find(name);
      if (found == other[step].end() || !found->second.agrees(digest)) {
        return StateDifference{step + 1, name};
      }
    }
  }
  return std::nullopt;
}

}  // namespace poprun
