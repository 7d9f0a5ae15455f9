#include "replica/compiler/placement/out_of_memory.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace poprun {
namespace {

constexpr std::size_t kRows = 12;

/// Name of what runs at a step, or "" where it is not in `steps`.
std::string step_name(const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                      std::uint32_t number) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      if (std::string name = step_name(step.repeat().steps(), number); !name.empty()) {
        return name;
      }
    }
    if (step.number() == number) {
      return step.has_execute()
                 ? fmt::format("{} '{}'", step.execute().operation(), step.execute().name())
                 : std::string{"a copy or exchange"};
    }
  }
  return {};
}

std::string place_of(const Program& program, std::uint32_t number) {
  for (const proto::Function& function : program.functions()) {
    if (const std::string name = step_name(function.steps(), number); !name.empty()) {
      return fmt::format("step {} of the Program ({}: {})", number, function.name(), name);
    }
  }
  return fmt::format("step {} of the Program", number);
}

/// Tensors of the IPU live at the step, largest first.
std::vector<const proto::Tensor*> live_at(const Program& program, std::uint32_t ipu,
                                          std::uint32_t step) {
  std::vector<const proto::Tensor*> live;
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.placement().ipu() == ipu && lives_at(tensor, step)) {
      live.push_back(&tensor);
    }
  }
  std::ranges::stable_sort(live, std::ranges::greater{}, &proto::Tensor::bytes);
  return live;
}

std::string table(const std::vector<const proto::Tensor*>& live, bool always_live) {
  std::uint64_t total = 0;
  std::size_t count = 0;
  std::string rows;
  for (const proto::Tensor* tensor : live) {
    if (tensor->always_live() != always_live) {
      continue;
    }
    total += tensor->bytes();
    if (++count <= kRows) {
      rows += fmt::format("    {:>28}  {:<32} {}\n",
                          bytes_text(static_cast<std::int64_t>(tensor->bytes())), tensor->name(),
                          tensor->type());
    }
  }
  if (count > kRows) {
    rows += fmt::format("    {:>28}  smaller ones\n", fmt::format("and {}", count - kRows));
  }
  return fmt::format("  {}: {} tensors, {}\n{}", always_live ? "always live" : "not always live",
                     count, bytes_text(static_cast<std::int64_t>(total)), rows);
}

}  // namespace

std::string worst_place(const Program& program, int ipu) {
  return place_of(program, program.memory(ipu).worst_step());
}

Status check_fits(const Program& program, const std::function<std::string()>& advice) {
  const auto lacks = [](const proto::IpuMemory& memory) {
    return static_cast<std::int64_t>(memory.peak()) - static_cast<std::int64_t>(memory.capacity());
  };
  const auto fullest = std::ranges::max_element(program.memory(), {}, lacks);
  if (fullest == program.memory().end() || lacks(*fullest) <= 0) {
    return {};
  }
  const auto ipu = static_cast<int>(fullest - program.memory().begin());
  const auto full = std::ranges::count_if(
      program.memory(), [&](const proto::IpuMemory& memory) { return lacks(memory) > 0; });
  const auto live = live_at(program, static_cast<std::uint32_t>(ipu), fullest->worst_step());
  return fail(
      ErrorCode::kOutOfMemory,
      fmt::format(
          "out of memory: model {} needs {} of In-Processor Memory on IPU {}, but {} has {}{}{}\n"
          "its peak is at {}:\n{}{}",
          program.model(), bytes_text(static_cast<std::int64_t>(fullest->peak())), ipu,
          program.device().name(), bytes_text(static_cast<std::int64_t>(fullest->capacity())),
          full > 1 ? fmt::format(" ({} of its {} IPUs lack memory)", full, program.memory_size())
                   : "",
          advice ? "; " + advice() : "", worst_place(program, ipu), table(live, true),
          table(live, false)),
      {.shortage = Shortage{.needed = Bytes{static_cast<std::int64_t>(fullest->peak())},
                            .had = Bytes{static_cast<std::int64_t>(fullest->capacity())}}});
}

}  // namespace poprun
