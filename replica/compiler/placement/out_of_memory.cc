#include "replica/compiler/placement/out_of_memory.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/tables/ipu_table.h"

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

std::string mebibytes_and_bytes(std::uint64_t bytes) {
  return fmt::format("{} ({} B)", mebibytes_text(bytes), grouped(bytes));
}

/// The bytes of tensors on one IPU; those that several have count once.
std::uint64_t bytes_of(std::vector<const proto::Tensor*> tensors) {
  std::ranges::sort(tensors, {}, [](const auto* tensor) { return tensor->placement().offset(); });
  std::uint64_t bytes = 0;
  std::uint64_t end = 0;
  for (const proto::Tensor* tensor : tensors) {
    const std::uint64_t begin = std::max(end, tensor->placement().offset());
    end = std::max(end, tensor->placement().offset() + tensor->bytes());
    bytes += end - begin;
  }
  return bytes;
}

/// ", in the bytes of 'x'", if a tensor before it in `live` has all of its bytes; or nothing.
std::string shared_text(const std::vector<const proto::Tensor*>& live,
                        const proto::Tensor* tensor) {
  for (const proto::Tensor* other : live) {
    if (other == tensor) {
      break;
    }
    const std::uint64_t begin = tensor->placement().offset();
    const std::uint64_t other_begin = other->placement().offset();
    if (other_begin <= begin && begin + tensor->bytes() <= other_begin + other->bytes()) {
      return fmt::format(", in the bytes of '{}'", other->name());
    }
  }
  return {};
}

/// `live` are all that live at the step, largest first.
std::string table(const std::vector<const proto::Tensor*>& live, bool always_live) {
  std::vector<const proto::Tensor*> listed = live;
  std::erase_if(listed, [always_live](const proto::Tensor* tensor) {
    return tensor->always_live() != always_live;
  });
  const std::span shown = std::span(listed).first(std::min(listed.size(), kRows));
  std::size_t width = 0;
  for (const proto::Tensor* tensor : shown) {
    width = std::max(width, tensor->name().size());
  }
  std::string rows;
  for (const proto::Tensor* tensor : shown) {
    rows += fmt::format("    {:>13} B  {:<{}}  {}{}\n", grouped(tensor->bytes()), tensor->name(),
                        width, tensor->type(), shared_text(live, tensor));
  }
  if (listed.size() > kRows) {
    rows +=
        fmt::format("    {:>13}    smaller ones\n", fmt::format("and {}", listed.size() - kRows));
  }
  std::vector<const proto::Tensor*> variables = live;
  std::erase_if(variables, [](const proto::Tensor* tensor) { return !tensor->always_live(); });
  // A view of a variable takes no more bytes.
  const std::uint64_t total =
      always_live ? bytes_of(variables) : bytes_of(live) - bytes_of(variables);
  return fmt::format("  {}: {}, {} B\n{}", always_live ? "always live" : "not always live",
                     counted(listed.size(), "tensor"), grouped(total), rows);
}

/// Negative where it fits.
std::int64_t lacks(const proto::IpuMemory& memory) {
  return needed(memory).count() - static_cast<std::int64_t>(memory.capacity());
}

/// Why an IPU needs more than its tiles hold together.
std::string tile_text(const proto::IpuMemory& memory) {
  return fmt::format(" (tile {} needs {} of {} B)", memory.fullest_tile(),
                     grouped(memory.fullest_tile_peak()), grouped(memory.bytes_per_tile()));
}

/// A line for each listed IPU; nothing where there is only one.
std::string ipus_table(const Program& program) {
  if (program.memory_size() == 1) {
    return {};
  }
  std::string text = "planned peak of each IPU:\n";
  for (const ListedRow& listed : listed_by(program.memory(), lacks)) {
    if (listed.left_out > 0) {
      text +=
          fmt::format("  ..     {}, which --dry-run -vv lists\n", counted(listed.left_out, "IPU"));
    }
    const proto::IpuMemory& memory = program.memory(static_cast<int>(listed.index));
    text += fmt::format(
        "  IPU {:<2} {:>12} of {}{}\n", listed.index,
        mebibytes_text(static_cast<std::uint64_t>(needed(memory).count())),
        mebibytes_text(memory.capacity()),
        lacks(memory) > 0
            ? fmt::format(", over by {}", mebibytes_text(static_cast<std::uint64_t>(lacks(memory))))
            : "");
  }
  return text;
}

}  // namespace

std::string worst_place(const Program& program, int ipu) {
  return place_of(program, program.memory(ipu).worst_step());
}

Status check_fits(const Program& program, const std::function<MemoryAdvice()>& advice) {
  const auto fullest = std::ranges::max_element(program.memory(), {}, lacks);
  if (fullest == program.memory().end() || lacks(*fullest) <= 0) {
    return {};
  }
  const auto ipu = static_cast<int>(fullest - program.memory().begin());
  const auto live = live_at(program, static_cast<std::uint32_t>(ipu), fullest->worst_step());
  const auto most = static_cast<std::uint64_t>(needed(*fullest).count());
  const MemoryAdvice advised = advice ? advice() : MemoryAdvice{};
  return fail(
      ErrorCode::kOutOfMemory,
      fmt::format("out of memory: model {} needs {} of In-Processor Memory on IPU {}{}, but {} "
                  "has {}{}{}\n{}{}the peak of IPU {} is at {}:\n{}{}",
                  program.model(), mebibytes_and_bytes(most), ipu, tile_text(*fullest),
                  program.device().name(), mebibytes_and_bytes(fullest->capacity()),
                  advised.sentence.empty() ? "" : "; ", advised.sentence, ipus_table(program),
                  advised.table, ipu, worst_place(program, ipu), table(live, true),
                  table(live, false)),
      {.shortage = Shortage{.needed = needed(*fullest),
                            .had = Bytes{static_cast<std::int64_t>(fullest->capacity())}}});
}

}  // namespace poprun
