#include "replica/program/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {

std::size_t memory_count(const Program& program) {
  return 2 * static_cast<std::size_t>(program.memory_size());
}

std::size_t memory_of(const Program& program, const proto::Tensor& tensor) {
  const std::size_t first = is_remote(tensor) ? static_cast<std::size_t>(program.memory_size()) : 0;
  return first + tensor.placement().ipu();
}

bool is_remote(const proto::Tensor& tensor) {
  return tensor.placement().memory() == proto::MEMORY_STREAMING;
}

const proto::Function* find_function(const Program& program, const std::string& name) {
  for (const proto::Function& function : program.functions()) {
    if (function.name() == name) {
      return &function;
    }
  }
  return nullptr;
}

std::set<std::string> called_functions(const Program& program) {
  std::set<std::string> called;
  const auto add = [&called](const auto& self, const auto& steps) -> void {
    for (const proto::Step& step : steps) {
      self(self, step.repeat().steps());
      if (step.has_call()) {
        called.insert(step.call().function());
      }
    }
  };
  for (const proto::Function& function : program.functions()) {
    add(add, function.steps());
  }
  return called;
}

bool lives_at(const proto::Tensor& tensor, std::uint32_t step) {
  return std::ranges::any_of(tensor.lives(),
                             [step](const proto::Span& span) { return span.first() <= step && step <= span.last(); });
}

Bytes images_capacity(const proto::IpuMemory& memory) {
  return Bytes{static_cast<std::int64_t>(std::max(memory.capacity(), memory.images_peak()))};
}

Bytes tile_capacity(const proto::IpuMemory& memory) {
  return Bytes{static_cast<std::int64_t>(std::max(memory.bytes_per_tile(), memory.fullest_tile_peak()))};
}

Bytes bytes_touched(const proto::IpuMemory& memory) {
  const Bytes images{static_cast<std::int64_t>(memory.images_peak() + memory.streaming_peak())};
  if (!memory.has_layout()) {
    return images;
  }
  return images + tile_capacity(memory) * static_cast<std::int64_t>(memory.capacity() / memory.bytes_per_tile());
}

bool fits(const proto::IpuMemory& memory) {
  return needed(memory) <= Bytes{static_cast<std::int64_t>(memory.capacity())} &&
         memory.streaming_peak() <= memory.streaming_capacity();
}

Bytes needed(const proto::IpuMemory& memory) {
  const std::uint64_t tiles = memory.capacity() / memory.bytes_per_tile();
  return Bytes{static_cast<std::int64_t>(memory.fullest_tile_peak() * tiles)};
}

bool share_bytes(const proto::Tensor& a, const proto::Tensor& b) {
  return a.placement().ipu() == b.placement().ipu() && a.placement().memory() == b.placement().memory() &&
         a.placement().offset() < b.placement().offset() + b.bytes() &&
         b.placement().offset() < a.placement().offset() + a.bytes();
}

proto::IpuMemory without_layout(proto::IpuMemory memory) {
  memory.clear_layout();
  return memory;
}

const proto::IpuMemory& fullest(const Program& program) {
  return *std::ranges::max_element(program.memory(), {}, needed);
}

proto::Note to_proto(const Note& note) {
  proto::Note message;
  message.set_code(note.code);
  message.set_text(note.text);
  for (const Fact& fact : note.facts) {
    proto::Fact& added = *message.add_facts();
    added.set_name(fact.name);
    if (const auto* number = std::get_if<std::int64_t>(&fact.value)) {
      added.set_number(*number);
    } else {
      added.set_text(std::get<std::string>(fact.value));
    }
  }
  return message;
}

proto::Cost to_proto(const DeviceTime& time) {
  proto::Cost cost;
  const auto cycles = [](Cycles c) { return static_cast<std::uint64_t>(c.count()); };
  cost.set_compute_cycles(cycles(time.compute));
  cost.set_exchange_cycles(cycles(time.exchange));
  cost.set_link_cycles(cycles(time.link));
  cost.set_host_cycles(cycles(time.host));
  cost.set_streaming_cycles(cycles(time.streaming));
  cost.set_sync_cycles(cycles(time.sync));
  cost.set_flops(static_cast<std::uint64_t>(time.flops));
  return cost;
}

void add_note(const Note& note, Program& program) {
  *program.add_notes() = to_proto(note);
}

std::string bytes_text(std::int64_t bytes) {
  const std::string rounded = mebibytes_text(static_cast<std::uint64_t>(bytes));
  return rounded.ends_with("iB") ? fmt::format("{} ({} B)", rounded, grouped(bytes)) : rounded;
}

}  // namespace poprun
