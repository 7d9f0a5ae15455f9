#include "replica/compiler/addresses/demand.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "replica/compiler/tiles/moves.h"
#include "replica/compiler/tiles/product_layout.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/transfer.h"
#include "replica/program/host_contract.h"

namespace poprun {
namespace {

using Row = std::vector<std::int64_t>;

class Demand {
 public:
  Demand(const LaidOut& laid_out, std::uint32_t ipu)
      : laid_out_(laid_out),
        graph_(laid_out.graph),
        moves_(laid_out.graph, laid_out.mappings, laid_out.device),
        tiles_(static_cast<std::size_t>(laid_out.device.tiles)),
        ipu_(ipu),
        claims_(laid_out.device.tiles + laid_out.device.io_tiles),
        vertex_state_(tiles_),
        exchange_code_(tiles_),
        link_code_(tiles_),
        host_code_(tiles_),
        io_host_code_(static_cast<std::size_t>(laid_out.device.io_tiles)),
        io_exchange_code_(io_host_code_.size()) {}

  TileClaims run() {
    std::uint32_t begin = 0;
    for (const Function& function : graph_.functions) {
      const bool is_load = function.name == name_of(JobFunction::kLoad);
      saves_ = function.name == name_of(JobFunction::kSave);
      begin = for_each_step(function, begin, [&](const Operation& operation, std::uint32_t step) {
        if (!is_load) {
          operation_at(operation, step);
        }
      });
    }
    tensors();
    if (steps_ > 0) {
      always(Category::kVertexCode, Row(tiles_, kVertexCode.count()));
      always(Category::kControlCode, Row(tiles_, kControlCode.count() * steps_));
      always(Category::kVertexState, vertex_state_);
      always(Category::kExchangeCode, exchange_code_);
      always(Category::kLinkBuffer, link_code_);
      always(Category::kHostBuffer, host_code_);
    }
    io_tiles();
    return std::move(claims_);
  }

 private:
  struct PlanRows {
    Row operands;
    Row vertex_state;
    Row exchange_code;
  };

  /// Claims the bytes of all tensors. Tensors that share the same bytes of a block and have the same mapping form one
  /// claim. A slice of a tensor, or a part of a concatenation, gets its own bytes here.
  void tensors() {
    std::map<std::tuple<std::uint32_t, Bytes, Bytes>, std::vector<std::uint32_t>> shared;
    for (std::uint32_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      if (tensor.ipu != ipu_ || tensor.is_remote() || laid_out_.liveness.lives[t].spans.empty()) {
        continue;
      }
      const Alias* alias = t < laid_out_.aliases.size() && laid_out_.aliases[t] ? &*laid_out_.aliases[t] : nullptr;
      if (alias == nullptr) {
        claim({t});
      } else {
        shared[{alias->block, alias->offset, tensor.type.bytes()}].push_back(t);
      }
    }
    for (auto& [bytes, together] : shared) {
      const Mapping& mapping = laid_out_.mappings[together.front()];
      const auto apart =
          std::ranges::stable_partition(together, [&](std::uint32_t t) { return laid_out_.mappings[t] == mapping; });
      for (const std::uint32_t t : apart) {
        claim({t});
      }
      together.erase(apart.begin(), apart.end());
      claim(together);
    }
  }

  /// Claims the bytes that these tensors share while any of them is live. Requires: their mappings are the same.
  void claim(const std::vector<std::uint32_t>& tensors) {
    std::vector<Span> spans;
    bool is_stash = false;
    for (const std::uint32_t t : tensors) {
      const std::vector<Span>& lives = laid_out_.liveness.lives[t].spans;
      spans.insert(spans.end(), lives.begin(), lives.end());
      is_stash = is_stash || stashes_.contains(t);
    }
    claims_.add({.category = is_stash ? Category::kStash : Category::kVariable, .tensors = tensors},
                united(std::move(spans)), in_front(bytes_of(TensorId{tensors.front()})));
  }

  void operation_at(const Operation& operation, std::uint32_t step) {
    const std::vector<TensorId>& named = operation.outputs.empty() ? operation.inputs : operation.outputs;
    if (Stash::is(operation)) {
      stashes_.insert(index_of(operation.outputs[0]));
    }
    const bool here = std::ranges::any_of(named, [this](TensorId tensor) { return graph_.tensor(tensor).ipu == ipu_; });
    if (!here) {
      return;
    }
    const bool does_nothing = is_view(graph_, operation, laid_out_.aliases) && moves_.received(operation).empty();
    steps_ += does_nothing ? 0 : 1;
    const OffChipTransfer transfer =
        laid_out_.device.io_tiles > 0 ? off_chip_transfer(graph_, operation) : OffChipTransfer{};
    if (transfer.is_any()) {
      through_io_tiles(operation, transfer);
    } else if (step < laid_out_.plans.size() && laid_out_.plans[step]) {
      product(operation, *laid_out_.plans[step], step);
    } else if (ReduceScatter::is(operation) || ScatterRows::is(operation)) {
      in_a_ring(operation.inputs, step);
    } else if (AllGather::is(operation) || GatherRows::is(operation)) {
      in_a_ring(operation.outputs, step);
    } else if (const std::optional<AllReduce> reduced = AllReduce::from(operation)) {
      all_reduce(*reduced, step);
    } else if (StreamIn::is(operation) || StreamOut::is(operation)) {
      host_stream(named, step);
    } else {
      if (Copy::is(operation)) {
        copy(operation, step);
      } else if (Stash::is(operation) || Restore::is(operation)) {
        stash(operation, step);
      }
      receive(operation, step);
    }
  }

  /// Claims the bytes that a product needs while it runs. Always counts a regrouped input, to reproduce Graphcore's
  /// table 2.1.
  void product(const Operation& operation, const PlannedProduct& planned, std::uint32_t step) {
    const planner::Plan& plan = *planned.plan;
    Row taken = even(graph_.tensor(operation.inputs[0]).type.bytes());
    if (plan.splits.serial() > 1) {
      const Bytes weights = graph_.tensor(operation.inputs[1]).type.bytes();
      add(taken, even(weights * 2));
      add_code(even(weights), exchange_code_);
    }
    for (const Received& operand : moves_.regrouped(operation, planned)) {
      if (operand.operand == 1U) {
        add(taken, operand.row());
      }
    }
    const PlanRows& rows = rows_of(plan);
    steps_ += plan.parts_of_loop();
    add(taken, rows.operands);
    add(vertex_state_, rows.vertex_state);
    add(exchange_code_, rows.exchange_code);
    during(Category::kTemporary, taken, step);
    during(Category::kGap, Row(tiles_, kGap.count()), step);
  }

  /// Returns the bytes that a plan needs on each tile. They are computed once for all products with the same plan.
  const PlanRows& rows_of(const planner::Plan& plan) {
    const auto [known, is_new] = plan_rows_.try_emplace(&plan);
    PlanRows& rows = known->second;
    if (!is_new) {
      return rows;
    }
    rows = {Row(tiles_), Row(tiles_), Row(tiles_)};
    for (std::int64_t tile = 0; tile < plan.splits.tiles(); ++tile) {
      const auto at = static_cast<std::size_t>(tile);
      const TileOperands held = operands_on(plan, tile);
      if (held.partials == 0) {
        continue;
      }
      rows.operands[at] = held.input + held.weights + held.partials * (plan.splits.serial_inputs > 1 ? 2 : 1);
      rows.vertex_state[at] = kVertexState.count() * (1 + plan.parts_of_loop());
      rows.exchange_code[at] = code_to_receive(held.input) + code_to_receive(held.weights);
      if (plan.splits.reduction_depth() > 1) {
        rows.exchange_code[at] += code_to_receive(held.partials);
      }
    }
    return rows;
  }

  /// Enlarges the buffers on the I/O tiles, which hold a transfer until the other tiles have received it or it has been
  /// sent. While weights are saved, nothing else runs and they are sent one at a time, so the largest one counts.
  void through_io_tiles(const Operation& operation, const OffChipTransfer& transfer) {
    ++transfers_;
    const Bytes bytes = saves_ ? largest_of(operation.inputs) : transfer.bytes_on(ipu_);
    const Row on_io_tiles = over_io_tiles(bytes);
    if (transfer.direction == proto::TRANSFER_IN) {
      largest_in_ = std::max(largest_in_, bytes);
      add_code(even(bytes), exchange_code_);
    } else {
      largest_out_ = std::max(largest_out_, bytes);
      add_code(on_io_tiles, io_exchange_code_);
    }
    add_code(on_io_tiles, io_host_code_);
  }

  void io_tiles() {
    const auto claim = [this](Category category, const Row& row) {
      claims_.add({.category = category}, whole_run(), behind(row));
    };
    claim(Category::kHostBuffer, over_io_tiles(largest_in_));
    claim(Category::kHostBuffer, over_io_tiles(largest_out_));
    claim(Category::kHostBuffer, io_host_code_);
    claim(Category::kExchangeCode, io_exchange_code_);
    claim(Category::kControlCode, Row(io_host_code_.size(), kControlCode.count() * transfers_));
  }

  /// Spreads bytes evenly over the I/O tiles, in units of 8 bytes.
  [[nodiscard]] Row over_io_tiles(Bytes bytes) const {
    const std::int64_t tiles = laid_out_.device.io_tiles;
    const std::int64_t words = ceil_div(bytes.count(), kTileAlignment.count());
    Row row(static_cast<std::size_t>(tiles));
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      row[static_cast<std::size_t>(tile)] = (words / tiles + (tile < words % tiles ? 1 : 0)) * kTileAlignment.count();
    }
    return row;
  }

  /// Extend a row to all tiles: `in_front` extends a row of the compute tiles, `behind` a row of the I/O tiles.
  [[nodiscard]] Row in_front(Row row) const {
    row.resize(static_cast<std::size_t>(claims_.tiles()));
    return row;
  }
  [[nodiscard]] Row behind(const Row& row) const {
    Row all(tiles_);
    all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  /// Claims the buffer through which tensors pass to and from the host, one at a time.
  void host_stream(const std::vector<TensorId>& tensors, std::uint32_t step) {
    through(Category::kHostBuffer, even(largest_of(tensors)), step, host_code_);
  }

  [[nodiscard]] Bytes largest_of(const std::vector<TensorId>& tensors) const {
    Bytes largest;
    for (const TensorId tensor : tensors) {
      if (graph_.tensor(tensor).ipu == ipu_) {
        largest = std::max(largest, graph_.tensor(tensor).type.bytes());
      }
    }
    return largest;
  }

  /// Claims one buffer for each tensor from a different IPU, and one for all tensors from or to Streaming Memory.
  void copy(const Operation& operation, std::uint32_t step) {
    Bytes largest_streamed;
    for (std::size_t k = 0; k < operation.outputs.size(); ++k) {
      const Tensor& from = graph_.tensor(operation.inputs[k]);
      const Tensor& to = graph_.tensor(operation.outputs[k]);
      if (to.ipu != ipu_) {
        continue;
      }
      if (from.is_remote() || to.is_remote()) {
        largest_streamed = std::max(largest_streamed, (from.is_remote() ? to : from).type.bytes());
      } else if (from.ipu != ipu_) {
        through(Category::kLinkBuffer, even(to.type.bytes()), step, link_code_);
      }
    }
    if (largest_streamed > Bytes{}) {
      through(Category::kHostBuffer, even(largest_streamed), step, host_code_);
    }
  }

  /// Claims the buffer through which a stash in Streaming Memory is accessed.
  void stash(const Operation& operation, std::uint32_t step) {
    const bool stores = Stash::is(operation);
    const TensorId stash = stores ? operation.outputs[0] : operation.inputs[0];
    const TensorId tensor = stores ? operation.inputs[0] : operation.outputs[0];
    if (graph_.tensor(stash).is_remote()) {
      through(Category::kHostBuffer, even(graph_.tensor(tensor).type.bytes()), step, host_code_);
    }
  }

  /// Claims the buffer of an all-reduce. Tiles receive each byte twice: once to add it, and once as part of the result.
  void all_reduce(const AllReduce& reduced, std::uint32_t step) {
    if (laid_out_.replicas == 1) {
      return;
    }
    std::vector<TensorId> here;
    std::ranges::copy_if(reduced.tensors, std::back_inserter(here),
                         [this](TensorId tensor) { return graph_.tensor(tensor).ipu == ipu_; });
    const auto bytes = [this](TensorId tensor) { return graph_.tensor(tensor).type.bytes(); };
    const TensorId largest = *std::ranges::max_element(here, {}, bytes);
    const std::vector<Span> whole_life = laid_out_.liveness.lives[index_of(largest)].spans;
    claims_.add({.category = Category::kLinkBuffer, .step = step},
                reduced.in_background ? whole_life : std::vector<Span>{{step, step}},
                in_front(even(Bytes{ceil_div(bytes(largest).count(), laid_out_.replicas)})));
    add_code(even(graph_.bytes(here) * 2), link_code_);
  }

  /// Claims the buffer for one pass around the ring of replicas. The tensors are sent one at a time.
  void in_a_ring(const std::vector<TensorId>& tensors, std::uint32_t step) {
    const auto bytes = [this](TensorId tensor) { return graph_.tensor(tensor).type.bytes(); };
    const Bytes largest = bytes(*std::ranges::max_element(tensors, {}, bytes));
    during(Category::kLinkBuffer, even(Bytes{ceil_div(largest.count(), laid_out_.replicas)}), step);
    add_code(even(graph_.bytes(tensors)), link_code_);
  }

  /// Claims the bytes of operands that are moved to the operation's tiles. Results that move need only exchange code.
  void receive(const Operation& operation, std::uint32_t step) {
    for (const Received& tensor : moves_.received(operation)) {
      if (tensor.operand) {
        through(Category::kTemporary, tensor.row(), step, exchange_code_);
      } else {
        add_code(tensor.row(), exchange_code_);
      }
    }
  }

  /// Claims bytes that tiles receive and hold during a step. Adds the size of the code that receives them to `code`.
  void through(Category category, const Row& row, std::uint32_t step, Row& code) {
    during(category, row, step);
    add_code(row, code);
  }

  static void add_code(const Row& received, Row& code) {
    for (std::size_t tile = 0; tile < code.size(); ++tile) {
      code[tile] += code_to_receive(received[tile]);
    }
  }

  void during(Category category, const Row& row, std::uint32_t step) {
    claims_.add({.category = category, .step = step}, {{step, step}}, in_front(row));
  }

  void always(Category category, const Row& row) { claims_.add({.category = category}, whole_run(), in_front(row)); }

  [[nodiscard]] std::vector<Span> whole_run() const { return {{0, laid_out_.liveness.step_count - 1}}; }

  static void add(Row& row, const Row& other) { std::ranges::transform(row, other, row.begin(), std::plus()); }

  Row even(Bytes bytes) { return moves_.even(bytes).by_tile; }

  Row bytes_of(TensorId tensor) {
    return Received{.counts = &moves_.counts(tensor), .width = size_of(graph_.tensor(tensor).type.data).count()}.row();
  }

  const LaidOut& laid_out_;
  const Graph& graph_;
  Moves moves_;
  std::size_t tiles_;
  std::uint32_t ipu_;
  TileClaims claims_;
  std::set<std::uint32_t> stashes_;
  std::map<const planner::Plan*, PlanRows> plan_rows_;
  std::int64_t steps_ = 0;
  Row vertex_state_;
  Row exchange_code_;
  Row link_code_;
  Row host_code_;
  bool saves_ = false;          ///< Whether the current function is "save".
  std::int64_t transfers_ = 0;  ///< Number of transfers through I/O tiles.
  Bytes largest_in_;
  Bytes largest_out_;
  Row io_host_code_;  ///< Indexed by I/O tile.
  Row io_exchange_code_;
};

}  // namespace

TileClaims demand_on_tiles(const LaidOut& laid_out, std::uint32_t ipu) {
  return Demand(laid_out, ipu).run();
}

}  // namespace poprun
