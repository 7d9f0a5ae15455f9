#include "replica/check/records.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "replica/base/sha256.h"
#include "replica/graph/types.h"
#include "replica/machine/machine.h"

namespace poprun {
namespace {

/// Returns whether a tensor is itself a variable, rather than a remote buffer or a shard in which a variable resides.
bool lives_on(const proto::Tensor& tensor) {
  const bool is_variable = tensor.role() == proto::ROLE_PARAMETER || tensor.role() == proto::ROLE_BUFFER ||
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
  return {.whole = digest_of(resident.bytes), .part = digest_of(resident.bytes.subspan(begin, count))};
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
  if (report.step == hashed_step_) {
    state_sha256_ = hash(engine);
  }
}

std::string StateRecord::hash(const Engine& engine) const {
  std::map<std::string, std::uint32_t> variables;
  for (int t = 0; t < program_.tensors_size(); ++t) {
    if (lives_on(program_.tensors(t))) {
      variables.emplace(program_.tensors(t).name(), static_cast<std::uint32_t>(t));
    }
  }
  Sha256 sha;
  for (const auto& [name, tensor] : variables) {
    const Engine::Resident resident = engine.resident(tensor);
    if (resident.is_shard) {
      return "";
    }
    sha.add(name);
    sha.add({"", 1});
    sha.add({reinterpret_cast<const char*>(resident.bytes.data()), resident.bytes.size()});
  }
  return sha.digest();
}

void StateRecord::add(const EvaluationReport& evaluation) {
  if (evaluation.items > 0) {
    steps_.push_back({{"the loss", {.whole = std::bit_cast<std::uint64_t>(evaluation.loss)}},
                      {"the accuracy", {.whole = std::bit_cast<std::uint64_t>(evaluation.accuracy)}}});
  }
}

double StateRecord::step_seconds() const {
  const std::size_t first = seconds_.size() > 1 ? 1 : 0;
  const auto begin = seconds_.begin() + static_cast<std::ptrdiff_t>(first);
  return seconds_.empty() ? 0
                          : std::accumulate(begin, seconds_.end(), 0.0) / static_cast<double>(seconds_.size() - first);
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

void ValueTrace::begin(std::uint64_t step, Engine& engine) {
  if (step == step_ && traced_ == Of::kStep) {
    watch(engine);
  }
}

void ValueTrace::end(const StepReport& report, Engine& engine) {
  if (report.step == step_ && traced_ == Of::kEvaluation) {
    watch(engine);
  } else if (engine_ != nullptr) {
    engine.remove_observer(*this);
    engine_ = nullptr;
  }
}

void ValueTrace::watch(Engine& engine) {
  engine_ = &engine;
  engine.add_observer(*this);
}

void ValueTrace::before(const proto::Step& /*step*/) {}

/// Records the tensors that the step wrote. A tensor in a background exchange is recorded when that exchange ends.
void ValueTrace::after(const proto::Step& step) {
  if (step.has_call() || step.all_reduce().in_background()) {
    return;
  }
  const StepTensors tensors = tensors_of(step);
  for (const auto* written : {&tensors.writes, &tensors.ends_exchange}) {
    for (const std::uint32_t tensor : *written) {
      values_.push_back({{tensor, engine_->micro_batch(), step.number()}, digest_of(engine_->inspect(tensor))});
    }
  }
}

void ValueTrace::broken_off(const proto::Step& step) {
  after(step);
}

std::optional<std::string> ValueTrace::first_difference(const ValueTrace& other) const {
  // A tensor that is updated in place is written several times in a micro-batch.
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t>;
  const auto for_each = [](const ValueTrace& trace, auto visit) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> times;
    for (const Value& value : trace.values_) {
      const std::uint32_t time = times[{value.place.tensor, value.place.micro_batch}]++;
      const std::string& name = trace.program_.tensors(static_cast<int>(value.place.tensor)).name();
      if (!visit(Key{name, value.place.micro_batch, time}, value)) {
        return;
      }
    }
  };
  std::map<Key, const Value*> others;
  for_each(other, [&](Key key, const Value& value) {
    others.emplace(std::move(key), &value);
    return true;
  });
  std::optional<std::string> difference;
  for_each(*this, [&](const Key& key, const Value& value) {
    const auto found = others.find(key);
    if (found != others.end() && found->second->digest != value.digest) {
      difference = text_of(other.program_, found->second->place, traced_ == Of::kStep ? "micro-batch" : "batch");
    }
    return !difference;
  });
  return difference;
}

}  // namespace poprun
