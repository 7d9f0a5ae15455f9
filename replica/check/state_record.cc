#include "replica/check/state_record.h"

#include <bit>
#include <functional>
#include <numeric>
#include <string_view>

namespace poprun {
namespace {

bool lives_on(const proto::Tensor& tensor) {
  return tensor.role() == proto::ROLE_PARAMETER || tensor.role() == proto::ROLE_BUFFER ||
         tensor.role() == proto::ROLE_OPTIMIZER_STATE;
}

}  // namespace

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void StateRecord::begin(std::uint64_t /*step*/, Engine& /*engine*/) {
  began_ = now_seconds();
}

void StateRecord::end(const StepReport& report, Engine& engine) {
  seconds_.push_back(now_seconds() - began_);
  StateDigests& digests = steps_.emplace_back();
  digests["the loss"] = std::bit_cast<std::uint64_t>(report.loss);
  digests["the accuracy"] = std::bit_cast<std::uint64_t>(report.accuracy);
  for (int t = 0; t < program_.tensors_size(); ++t) {
    const proto::Tensor& tensor = program_.tensors(t);
    if (lives_on(tensor)) {
      digests["'" + tensor.name() + "'"] = digest_of(engine.inspect(static_cast<std::uint32_t>(t)));
    }
  }
}

void StateRecord::add(const EvaluationReport& evaluation) {
  if (evaluation.items > 0) {
    steps_.push_back({{"the loss", std::bit_cast<std::uint64_t>(evaluation.loss)},
                      {"the accuracy", std::bit_cast<std::uint64_t>(evaluation.accuracy)}});
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
      if (found == other[step].end() || found->second != digest) {
        return StateDifference{step + 1, name};
      }
    }
  }
  return std::nullopt;
}

}  // namespace poprun
