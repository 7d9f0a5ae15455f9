#include "replica/report/out_of_memory.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/listed_rows.h"
#include "replica/base/text.h"
#include "replica/report/tile_contents.h"

namespace poprun {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kNamesColumn = 46;
constexpr std::size_t kShortestName = 12;
constexpr std::size_t kKindsMax = 6;  // Kinds listed in each half of the table; the rest are summed up as "others".

/// One tensor's bytes on the tile.
struct Part {
  std::string_view name;
  Bytes bytes;
};

/// Everything of one kind that the tile holds.
struct Kind {
  std::string_view name;
  Bytes bytes;
  std::vector<Part> parts = {};  ///< Sorted by size, largest first.
};

constexpr std::string_view kGaps = "gaps";

/// Returns the kinds in `held`, except for gaps. The largest come first; equal sizes stay in the order of `held`.
std::vector<Kind> kinds_of(const Program& program, const proto::IpuMemory& memory, const std::vector<HeldBytes>& held,
                           bool always_live) {
  std::vector<Kind> kinds;
  for (const HeldBytes& one : held) {
    if (one.always_live != always_live || one.category == kGaps) {
      continue;
    }
    const proto::TileClaim& claim = memory.layout().claims(one.claim);
    const proto::Tensor* tensor = main_tensor(program, claim);
    const std::string_view name = kind_of(program, claim);
    auto kind = std::ranges::find(kinds, name, &Kind::name);
    if (kind == kinds.end()) {
      kind = kinds.insert(kinds.end(), {name, Bytes{}});
    }
    kind->bytes += one.bytes;
    if (tensor != nullptr) {
      kind->parts.push_back({tensor->name(), one.bytes});
    }
  }
  std::ranges::stable_sort(kinds, std::ranges::greater{}, &Kind::bytes);
  return kinds;
}

/// Returns as many of the largest tensors as the line has room for.
std::string largest_text(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) {
    const std::string bytes = fmt::format(" {} B", grouped(part.bytes.count()));
    const std::size_t used = kNamesColumn + text.size() + (text.empty() ? 0 : 2) + bytes.size();
    if (used + std::min(part.name.size(), kShortestName) > kWidth) {
      break;
    }
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", shortened(part.name, kWidth - used), bytes);
  }
  return text;
}

/// The table of one tile. `all` is the number of bytes that the tile needs, which counts as 100 %.
class Table {
 public:
  explicit Table(Bytes all) : all_(all) {}

  void row(std::size_t indent, std::string_view name, Bytes bytes, const std::string& more = {}) {
    const std::string line = fmt::format("{:{}}{:<{}} {:>12} B {:>4} %  {}", "", indent, name, 22 - indent,
                                         grouped(bytes.count()), share(bytes), more);
    text_ += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }

  /// Adds a row for one half of the table and, below it, a row for each kind.
  void half(std::string_view name, const std::vector<Kind>& kinds) {
    Bytes sum;
    for (const Kind& kind : kinds) {
      sum += kind.bytes;
    }
    row(2, name, sum);
    const std::size_t shown = kinds.size() > kKindsMax ? kKindsMax - 1 : kinds.size();
    for (std::size_t i = 0; i < shown; ++i) {
      row(4, kinds[i].name, kinds[i].bytes, largest_text(kinds[i].parts));
      sum = sum - kinds[i].bytes;
    }
    if (shown < kinds.size()) {
      row(4, fmt::format("{} others", kinds.size() - shown), sum);
    }
  }

  [[nodiscard]] std::int64_t share(Bytes bytes) const {
    return (200 * bytes.count() + all_.count()) / (2 * all_.count());
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Bytes all_;
  std::string text_;
};

/// Returns the line that states what uses most of a tile's memory.
std::string mostly_text(const Table& table, const std::vector<Kind>& always, const std::vector<Kind>& not_always) {
  const Kind* most = nullptr;
  const Kind* second = nullptr;
  for (const std::vector<Kind>* kinds : {&always, &not_always}) {
    for (const Kind& kind : *kinds) {
      if (most == nullptr || kind.bytes > most->bytes) {
        second = most;
        most = &kind;
      } else if (second == nullptr || kind.bytes > second->bytes) {
        second = &kind;
      }
    }
  }
  if (most == nullptr) {
    return "";
  }
  std::string text = fmt::format("mostly {} ({} %)", most->name, table.share(most->bytes));
  if (second != nullptr && 2 * second->bytes.count() >= most->bytes.count()) {
    text += fmt::format(" and {} ({} %)", second->name, table.share(second->bytes));
  }
  return text + '\n';
}

/// Returns the line that states whether the IPU's memory would suffice if its tiles were equally full.
std::string whole_text(const proto::IpuMemory& memory, int ipu) {
  return fmt::format("IPU {} as a whole: {} peak of {}: {} if spread evenly\n", ipu, mebibytes_text(memory.peak()),
                     mebibytes_text(memory.capacity()),
                     memory.peak() <= memory.capacity() ? "it would fit" : "too much even");
}

std::string tile_table(const Program& program, int ipu, std::uint32_t step) {
  const proto::IpuMemory& memory = program.memory(ipu);
  const std::vector<HeldBytes> held = held_on_tile(memory, memory.fullest_tile(), step);
  const Bytes all = to_bytes(memory.fullest_tile_peak());
  Bytes gaps = all;
  for (const HeldBytes& one : held) {
    if (one.category != kGaps) {
      gaps = gaps - one.bytes;
    }
  }
  const std::vector<Kind> always = kinds_of(program, memory, held, true);
  const std::vector<Kind> not_always = kinds_of(program, memory, held, false);
  Table table(all);
  table.half("always live", always);
  table.half("not always live", not_always);
  table.row(2, "gaps", gaps);
  table.row(2, "needed", all,
            fmt::format("{} B over", grouped(all.count() - to_bytes(memory.bytes_per_tile()).count())));
  return fmt::format("tile {} of IPU {} at that step, with the largest tensors:\n{}{}{}", memory.fullest_tile(), ipu,
                     table.text(), mostly_text(table, always, not_always), whole_text(memory, ipu));
}

/// Returns a line for each listed IPU; "" if there is only one.
std::string ipus_table(const Program& program) {
  if (program.memory_size() == 1) {
    return {};
  }
  std::string text = "the fullest tile of each IPU:\n";
  for (const ListedRow& listed : listed_by(program.memory(), &proto::IpuMemory::fullest_tile_peak)) {
    if (listed.left_out > 0) {
      text += fmt::format("  ..     {} omitted (--dry-run -vv lists all)\n", counted(listed.left_out, "IPU"));
    }
    const proto::IpuMemory& memory = program.memory(static_cast<int>(listed.index));
    text += fmt::format(
        "  IPU {:<2} {:>11} of {} B{}\n", listed.index, grouped(memory.fullest_tile_peak()),
        grouped(memory.bytes_per_tile()),
        fits(memory) ? "" : fmt::format(", {} B over", grouped(memory.fullest_tile_peak() - memory.bytes_per_tile())));
  }
  return text;
}

/// Returns the largest remote buffers of an IPU, one per line.
std::string remote_table(const Program& program, int ipu) {
  constexpr std::size_t kLines = 10;
  std::vector<const proto::Tensor*> buffers;
  for (const proto::Tensor& tensor : program.tensors()) {
    if (is_remote(tensor) && tensor.placement().ipu() == static_cast<std::uint32_t>(ipu)) {
      buffers.push_back(&tensor);
    }
  }
  std::ranges::stable_sort(buffers, std::greater(), [](const proto::Tensor* tensor) { return tensor->bytes(); });
  std::string text = fmt::format("remote buffers of IPU {}:\n", ipu);
  for (std::size_t i = 0; i < std::min(kLines, buffers.size()); ++i) {
    text += fmt::format("  {:>15} B  {} {}\n", grouped(buffers[i]->bytes()), buffers[i]->name(), buffers[i]->type());
  }
  if (buffers.size() > kLines) {
    text += fmt::format("  and {}\n", counted(buffers.size() - kLines, "smaller one"));
  }
  return text;
}

Status check_streaming_memory(const Program& program) {
  const auto over = [](const proto::IpuMemory& memory) {
    return static_cast<std::int64_t>(memory.streaming_peak()) - static_cast<std::int64_t>(memory.streaming_capacity());
  };
  const auto fullest = std::ranges::max_element(program.memory(), {}, over);
  if (fullest == program.memory().end() || over(*fullest) <= 0) {
    return {};
  }
  const auto ipu = static_cast<int>(fullest - program.memory().begin());
  std::string message = fmt::format(
      "out of memory: model {} needs {} B of the Streaming Memory of IPU {}, {} B more than its {} B; keep fewer "
      "tensors off-chip ([memory]), shard them across the replicas (memory.replicated-tensor-sharding), or use more "
      "IPUs\n{}",
      program.model(), grouped(fullest->streaming_peak()), ipu, grouped(static_cast<std::uint64_t>(over(*fullest))),
      grouped(fullest->streaming_capacity()), remote_table(program, ipu));
  message.pop_back();  // Remove the end of the last line.
  return fail(ErrorCode::kOutOfMemory, std::move(message),
              {.shortage = Shortage{.needed = to_bytes(fullest->streaming_peak()),
                                    .had = to_bytes(fullest->streaming_capacity())}});
}

}  // namespace

std::string place_text(const Program& program, std::uint32_t step) {
  const std::optional<PlacedStep> placed = find_step(program, step);
  if (!placed) {
    return fmt::format("step {} of the Program", step);
  }
  const proto::Step& found = *placed->step;
  return fmt::format("step {} of the Program ({}: {})", step, placed->function->name(),
                     found.has_execute() ? fmt::format("{} '{}'", found.execute().operation(), found.execute().name())
                                         : operation_text(found));
}

Status check_fits(const Program& program, const std::function<MemoryAdvice()>& advice) {
  const auto fullest = std::ranges::max_element(program.memory(), {}, &proto::IpuMemory::fullest_tile_peak);
  if (fullest == program.memory().end() || fullest->fullest_tile_peak() <= fullest->bytes_per_tile()) {
    return check_streaming_memory(program);
  }
  const auto ipu = static_cast<int>(fullest - program.memory().begin());
  const std::uint32_t step = liveness_of_tile(*fullest, fullest->fullest_tile()).worst_step();
  const MemoryAdvice advised = advice ? advice() : MemoryAdvice{};
  const Shortage shortage{.needed = to_bytes(fullest->fullest_tile_peak()), .had = to_bytes(fullest->bytes_per_tile())};
  std::string message = fmt::format(
      "out of memory: model {} needs {} B on tile {} of IPU {}, {} B more than the {} B of a tile, "
      "at {}{}{}\n{}{}{}",
      program.model(), grouped(shortage.needed.count()), fullest->fullest_tile(), ipu,
      grouped((shortage.needed - shortage.had).count()), grouped(shortage.had.count()), place_text(program, step),
      advised.sentence.empty() ? "" : "; ", advised.sentence, tile_table(program, ipu, step), advised.table,
      ipus_table(program));
  message.pop_back();  // Remove the end of the last line.
  return fail(ErrorCode::kOutOfMemory, std::move(message), {.shortage = shortage});
}

std::string allowance_note(const Error& out_of_memory) {
  return fmt::format("{}; the job runs anyway (--allow-out-of-memory)",
                     out_of_memory.message.substr(0, out_of_memory.message.find('\n')));
}

}  // namespace poprun
