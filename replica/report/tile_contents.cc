#include "replica/report/tile_contents.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::string_view kTensors = "tensors";  // The only category that is split by role.
constexpr std::string_view kActivations = "activations";

struct RoleName {
  proto::Role role;
  std::string_view name;
};

constexpr RoleName kRoles[] = {
    {proto::ROLE_PARAMETER, "weights"},         {proto::ROLE_OPTIMIZER_STATE, "optimiser state"},
    {proto::ROLE_BUFFER, "running statistics"}, {proto::ROLE_CONSTANT, "constants"},
    {proto::ROLE_GRADIENT, "gradients"},        {proto::ROLE_ACTIVATION, kActivations},
    {proto::ROLE_STREAM, "host data"},          {proto::ROLE_METRIC, "metrics"}};

std::uint32_t steps_of(const proto::TileLayout& layout) {
  std::uint32_t steps = 0;
  for (const proto::TileClaim& claim : layout.claims()) {
    for (const proto::Span& span : claim.lives()) {
      steps = std::max(steps, span.last() + 1);
    }
  }
  return steps;
}

bool is_always_live(const proto::TileClaim& claim, std::uint32_t steps) {
  return claim.lives_size() == 1 && claim.lives(0).first() == 0 && claim.lives(0).last() + 1 == steps;
}

bool claim_lives_at(const proto::TileClaim& claim, std::uint32_t step) {
  return std::ranges::any_of(claim.lives(),
                             [step](const proto::Span& span) { return span.first() <= step && step <= span.last(); });
}

using ClaimBytes = std::vector<std::uint64_t>;

ClaimBytes bytes_on_tile(const proto::IpuMemory& memory, std::uint32_t tile) {
  const proto::TileClass& one = class_of_tile(memory, tile);
  return {one.bytes().begin(), one.bytes().end()};
}

ClaimBytes bytes_on_ipu(const proto::IpuMemory& memory) {
  ClaimBytes sum(static_cast<std::size_t>(memory.layout().claims_size()));
  for (const proto::TileClass& one : memory.layout().classes()) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += one.bytes(static_cast<int>(i)) * static_cast<std::uint64_t>(one.tiles_size());
    }
  }
  return sum;
}

std::vector<HeldBytes> held(const proto::TileLayout& layout, const ClaimBytes& bytes, std::uint32_t step) {
  const std::uint32_t steps = steps_of(layout);
  std::vector<HeldBytes> held;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const proto::TileClaim& claim = layout.claims(static_cast<int>(i));
    if (bytes[i] > 0 && claim_lives_at(claim, step)) {
      held.push_back({.claim = static_cast<int>(i),
                      .category = claim.category(),
                      .always_live = is_always_live(claim, steps),
                      .bytes = to_bytes(bytes[i])});
    }
  }
  std::ranges::stable_sort(held, std::ranges::greater{}, &HeldBytes::bytes);
  return held;
}

LivenessCurve liveness(const proto::TileLayout& layout, const ClaimBytes& bytes) {
  const std::uint32_t steps = steps_of(layout);
  LivenessCurve curve;
  std::vector<Bytes> change(steps + std::size_t{1});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const proto::TileClaim& claim = layout.claims(static_cast<int>(i));
    const Bytes size = to_bytes(bytes[i]);
    if (is_always_live(claim, steps)) {
      curve.always += size;
      continue;
    }
    for (const proto::Span& span : claim.lives()) {
      change[span.first()] += size;
      change[span.last() + 1] += Bytes{} - size;
    }
  }
  Bytes now;
  for (std::uint32_t step = 0; step < steps; ++step) {
    curve.not_always.push_back(now += change[step]);
  }
  return curve;
}

const proto::Step* find_in(const google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t number) {
  for (const proto::Step& step : steps) {
    if (step.number() == number) {
      return &step;
    }
    const proto::Step* inner = step.has_repeat() ? find_in(step.repeat().steps(), number) : nullptr;
    if (inner != nullptr) {
      return inner;
    }
  }
  return nullptr;
}

std::string of_tensors(std::string_view kind, int tensors) {
  return fmt::format("{} of {}", kind, counted(static_cast<std::uint64_t>(tensors), "tensor"));
}

}  // namespace

std::vector<HeldBytes> held_on_tile(const proto::IpuMemory& memory, std::uint32_t tile, std::uint32_t step) {
  return held(memory.layout(), bytes_on_tile(memory, tile), step);
}

std::vector<HeldBytes> held_on_ipu(const proto::IpuMemory& memory, std::uint32_t step) {
  return held(memory.layout(), bytes_on_ipu(memory), step);
}

std::uint32_t LivenessCurve::worst_step() const {
  return static_cast<std::uint32_t>(std::ranges::max_element(not_always) - not_always.begin());
}

Bytes LivenessCurve::most() const {
  return not_always.empty() ? always : always + not_always[worst_step()];
}

LivenessCurve liveness_of_tile(const proto::IpuMemory& memory, std::uint32_t tile) {
  return liveness(memory.layout(), bytes_on_tile(memory, tile));
}

LivenessCurve liveness_of_ipu(const proto::IpuMemory& memory) {
  return liveness(memory.layout(), bytes_on_ipu(memory));
}

std::vector<std::uint32_t> highest_peaks(const std::vector<Bytes>& curve, std::size_t most) {
  std::vector<std::uint32_t> peaks;
  std::uint32_t begin = 0;  // The first of the consecutive steps with as many live bytes as this one.
  for (std::uint32_t step = 0; step < curve.size(); ++step) {
    begin = curve[step] == curve[begin] ? begin : step;
    const bool rose = begin == 0 || curve[begin - 1] < curve[begin];
    const bool falls = step + 1 == curve.size() || curve[step + 1] < curve[step];
    if (rose && falls) {
      peaks.push_back(begin);
    }
  }
  std::ranges::stable_sort(peaks, std::ranges::greater{}, [&curve](std::uint32_t step) { return curve[step]; });
  peaks.resize(std::min(peaks.size(), most));
  return peaks;
}

const proto::TileClass& class_of_tile(const proto::IpuMemory& memory, std::uint32_t tile) {
  const auto one = std::ranges::find_if(memory.layout().classes(), [tile](const proto::TileClass& c) {
    return std::ranges::binary_search(c.tiles(), tile);
  });
  POPRUN_CHECK(one != memory.layout().classes().end());
  return *one;
}

const proto::Tensor* main_tensor(const Program& program, const proto::TileClaim& claim) {
  const proto::Tensor* largest = nullptr;
  for (const std::uint32_t id : claim.tensors()) {
    const proto::Tensor& tensor = program.tensors(static_cast<int>(id));
    largest = largest == nullptr || tensor.bytes() > largest->bytes() ? &tensor : largest;
  }
  return largest;
}

std::string_view kind_of(const Program& program, const proto::TileClaim& claim) {
  const proto::Tensor* tensor = main_tensor(program, claim);
  if (tensor == nullptr || claim.category() != kTensors) {
    return claim.category();
  }
  while (tensor->has_copy_of()) {
    tensor = &program.tensors(static_cast<int>(tensor->copy_of()));
  }
  const auto known = std::ranges::find(kRoles, tensor->role(), &RoleName::role);
  return known == std::end(kRoles) ? kActivations : known->name;
}

const std::vector<std::string>& kinds_of_tensors() {
  static const std::vector<std::string> kAll = [] {
    std::vector<std::string> names;
    for (const RoleName& known : kRoles) {
      names.emplace_back(known.name);
    }
    return names;
  }();
  return kAll;
}

std::optional<PlacedStep> find_step(const Program& program, std::uint32_t number) {
  for (const proto::Function& function : program.functions()) {
    if (const proto::Step* step = find_in(function.steps(), number); step != nullptr) {
      return PlacedStep{&function, step};
    }
  }
  return std::nullopt;
}

std::string operation_text(const proto::Step& step) {
  switch (step.kind_case()) {
    case proto::Step::kExecute:
      return fmt::format("{} '{}'", step.execute().operation(), step.execute().name());
    case proto::Step::kInitialise:
      return "initialise";
    case proto::Step::kStreamIn:
      return fmt::format("stream_in '{}'", step.stream_in().stream());
    case proto::Step::kStreamOut:
      return fmt::format("stream_out '{}'", step.stream_out().stream());
    case proto::Step::kAllReduce:
      return of_tensors("all_reduce", step.all_reduce().tensors_size());
    case proto::Step::kAwaitAllReduces:
      return of_tensors("await_all_reduces", step.await_all_reduces().tensors_size());
    case proto::Step::kRepeat:
      return fmt::format("Repeat(count: {})", step.repeat().count());
    case proto::Step::kCall:
      return fmt::format("Call(target: {})", step.call().function());
    case proto::Step::kCopy:
      return of_tensors("copy", step.copy().to_size());
    case proto::Step::kStash:
      return "stash";
    case proto::Step::kRestore:
      return "restore";
    case proto::Step::kShard:
      return of_tensors("shard", step.shard().shards_size());
    case proto::Step::kReduceScatter:
      return of_tensors("reduce_scatter", step.reduce_scatter().shards_size());
    case proto::Step::kAllGather:
      return of_tensors("all_gather", step.all_gather().shards_size());
    case proto::Step::kGatherRows:
      return "gather_rows";
    case proto::Step::kScatterRows:
      return "scatter_rows";
    case proto::Step::kOwnRows:
      return "own_rows";
    case proto::Step::KIND_NOT_SET:
      break;
  }
  return "nothing";
}

}  // namespace poprun
