#include "replica/loops/bit_flips.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/machine/machine.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

void add_tensors_of(const Program& program, const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                    std::set<std::uint32_t>& tensors) {
  for (const proto::Step& step : steps) {
    add_tensors_of(program, step.repeat().steps(), tensors);
    if (step.has_call()) {
      add_tensors_of(program, find_function(program, step.call().function())->steps(), tensors);
    }
    const StepTensors own = tensors_of(step);
    tensors.insert(own.reads.begin(), own.reads.end());
    tensors.insert(own.writes.begin(), own.writes.end());
  }
}

}  // namespace

Result<std::unique_ptr<BitFlips>> BitFlips::create(const Program& program, const std::vector<proto::BitFlip>& flips,
                                                   std::uint64_t total_steps, Communicator& communicator) {
  std::set<std::uint32_t> tensors;
  add_tensors_of(program, find_function(program, name_of(JobFunction::kTrain))->steps(), tensors);
  std::vector<std::string> names;
  for (const std::uint32_t tensor : tensors) {
    names.push_back(program.tensors(static_cast<int>(tensor)).name());
  }
  std::unique_ptr<BitFlips> made(new BitFlips(program, communicator));
  for (const proto::BitFlip& flip : flips) {
    const auto refuse = [&](const std::string& why) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--flip-bit = {}:{}@{}: {}", flip.replica(), flip.tensor(), flip.step(), why));
    };
    if (flip.step() > total_steps) {
      return refuse(fmt::format("the job has steps 1 to {}", total_steps));
    }
    const auto found = std::ranges::find_if(tensors, [&](std::uint32_t tensor) {
      const proto::Tensor& candidate = program.tensors(static_cast<int>(tensor));
      return candidate.name() == flip.tensor() && !is_remote(candidate);
    });
    if (found == tensors.end()) {
      const std::string close = nearest(flip.tensor(), names);
      return refuse(
          fmt::format("no training step has a tensor of this name in In-Processor Memory; {}",
                      close.empty() ? "--dry-run -vv shows all names" : fmt::format("did you mean {}?", close)));
    }
    made->flips_.push_back({flip.replica(), *found, flip.step()});
  }
  return made;
}

Status BitFlips::begin(std::uint64_t step, Engine& engine) {
  engine_ = &engine;
  due_.clear();
  bool changes_state = false;
  for (const Flip& flip : flips_) {
    if (flip.step != step) {
      continue;
    }
    const bool is_mine = flip.replica == index_of(communicator_.self());
    const bool is_state = program_.tensors(static_cast<int>(flip.tensor)).always_live();
    changes_state = changes_state || is_state;
    if (is_mine && is_state) {
      engine.flip_bit(flip.tensor);
    } else if (is_mine) {
      due_.push_back(flip.tensor);
    }
  }
  if (!due_.empty()) {
    engine.add_observer(*this);
  }
  // No replica reads shared images before they are changed.
  return changes_state ? communicator_.barrier() : Status{};
}

void BitFlips::after(const proto::Step& step) {
  if (due_.empty()) {
    return;
  }
  const StepTensors tensors = tensors_of(step);
  std::erase_if(due_, [&](std::uint32_t tensor) {
    const bool is_written = std::ranges::find(tensors.writes, tensor) != tensors.writes.end();
    if (is_written) {
      engine_->flip_bit(tensor);
    }
    return is_written;
  });
}

}  // namespace poprun
