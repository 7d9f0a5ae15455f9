#include "replica/compiler/planner/plan_search.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace poprun::planner {
namespace {

/// Counts the distinct inputs that one dimension of a product reads.
std::int64_t inputs_read(const FieldDimension& d) {
  std::vector<bool> read(static_cast<std::size_t>(d.input));
  for (std::int64_t y = 0; y < d.output; ++y) {
    for (std::int64_t k = 0; k < d.kernel; ++k) {
      const std::int64_t place = y * d.stride + k * d.kernel_dilation - d.padding;
      if (place >= 0 && place % d.input_dilation == 0 && place / d.input_dilation < d.input) {
        read[static_cast<std::size_t>(place / d.input_dilation)] = true;
      }
    }
  }
  return std::ranges::count(read, true);
}

std::vector<std::int64_t> divisors(std::int64_t size) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= size; ++d) {
    if (size % d == 0) {
      found.push_back(d);
    }
  }
  return found;
}

/// One way to compute a product: a view with a vertex.
struct Way {
  std::size_t number = 0;  ///< Index in the result of ways_of().
  const ViewedProduct* viewed = nullptr;
  Vertex vertex;
};

std::vector<Way> ways_of(const std::vector<ViewedProduct>& views, const Target& target, Arithmetic arithmetic) {
  std::vector<Way> ways;
  for (const ViewedProduct& viewed : views) {
    for (const Vertex& vertex : vertices_for(viewed.product, target, arithmetic)) {
      ways.push_back({.number = ways.size(), .viewed = &viewed, .vertex = vertex});
    }
  }
  return ways;
}

/// Sorts ways by the time that the vertex would take if one tile did everything. Good plans that are found early prune
/// much of the search. The order does not change the result.
std::vector<Way> promising_first(std::vector<Way> ways, const Target& target) {
  const auto cycles = [&target](const Way& way) {
    const Load load = load_of(*way.viewed, way.vertex, target, Splits{});
    return vertex_cycles(way.vertex, way.viewed->product, target, load.part);
  };
  std::ranges::stable_sort(ways, {}, cycles);
  return ways;
}

/// Searches the splits of one view and vertex. It splits channels first, because they determine the weights. At each
/// level, it skips all deeper splits if the frontier beats a lower bound on their costs.
class SplitSearch {
 public:
  SplitSearch(const Way& way, const Target& target, Frontier& frontier)
      : way_(way.number),
        viewed_(*way.viewed),
        product_(viewed_.product),
        vertex_(way.vertex),
        target_(target),
        blocks_(blocks_of(product_, vertex_)),
        batch_counts_(part_counts(product_.batch, target.tiles)),
        row_counts_(part_counts(product_.field[0].output, target.tiles)),
        column_counts_(part_counts(product_.field[1].output, target.tiles)),
        kernel_counts_(part_counts(product_.field[0].kernel, target.tiles)),
        group_counts_(part_counts(blocks_.groups, target.tiles)),
        inputs_read_(inputs_read(product_.field[0]) * inputs_read(product_.field[1])),
        frontier_(frontier) {}

  void run() {
    for (const std::int64_t steps : divisors(blocks_.inputs)) {
      cut_channels(steps, 1);
    }
    for (const std::int64_t steps : divisors(blocks_.outputs)) {
      if (steps > 1) {
        cut_channels(1, steps);
      }
    }
  }

 private:
  void cut_channels(std::int64_t serial_inputs, std::int64_t serial_outputs) {
    Splits s;
    s.serial_inputs = serial_inputs;
    s.serial_outputs = serial_outputs;
    const auto input_counts = part_counts(blocks_.inputs / serial_inputs, target_.tiles);
    const auto output_counts = part_counts(blocks_.outputs / serial_outputs, target_.tiles);
    for (const std::int64_t groups : group_counts_) {
      s.groups = groups;
      for (const std::int64_t inputs : input_counts) {
        s.inputs = inputs;
        for (const std::int64_t kernel : kernel_counts_) {
          s.kernel = kernel;
          s.outputs = 1;
          if (s.tiles() > target_.tiles || is_beaten_for_all_outputs(s)) {
            continue;
          }
          for (const std::int64_t outputs : output_counts) {
            s.outputs = outputs;
            if (s.tiles() > target_.tiles) {
              break;
            }
            cut_batch(s);
          }
        }
      }
    }
  }

  void cut_batch(Splits s) {
    const std::int64_t left = target_.tiles / s.tiles();
    const Load whole = load_of(viewed_, vertex_, target_, s);
    if (is_beaten(bound(whole, s, left))) {
      return;
    }
    for (const std::int64_t batch : batch_counts_) {
      if (batch > left) {
        break;
      }
      s.batch = batch;
      cut_rows(s);
    }
  }

  void cut_rows(Splits s) {
    const std::int64_t left = target_.tiles / s.tiles();
    if (is_beaten(bound(load_of(viewed_, vertex_, target_, s), s, left))) {
      return;
    }
    for (const std::int64_t rows : row_counts_) {
      if (rows > left) {
        break;
      }
      s.rows = rows;
      cut_columns(s);
    }
  }

  void cut_columns(Splits s) {
    const std::int64_t left = target_.tiles / s.tiles();
    for (const std::int64_t columns : column_counts_) {
      if (columns > left) {
        break;
      }
      s.columns = columns;
      const Cost cost = cost_of(viewed_, vertex_, target_, load_of(viewed_, vertex_, target_, s));
      frontier_.offer(
          {.cycles = cost.cycles.total(), .bytes = cost.bytes.total(), .tiles = s.tiles(), .splits = s, .way = way_});
    }
  }

  /// Returns a lower bound on the loads of plans that split `whole`, the load of `s`, into at most `left` more parts.
  /// The bound assumes an even split.
  [[nodiscard]] Load bound(const Load& whole, const Splits& s, std::int64_t left) const {
    Load least = whole;
    TilePart& part = least.part;
    const std::int64_t positions = whole.part.batch * ceil_div(whole.part.rows * whole.part.columns, left);
    const std::int64_t even = s.batch > 1 ? positions : ceil_div(whole.part.positions(), left);
    part.batch = 1;
    part.rows = 1;
    // The part becomes one row, which is shortened for a dilated input as in vertex.cc.
    part.columns = ceil_div(even, product_.field[0].input_dilation);
    least.sums = even * part.outputs * part.groups;
    least.input_elements = ceil_div(whole.part.batch * inputs_read_, left * s.kernel) * part.inputs * part.groups;
    least.input_share = ceil_div(least.input_elements, s.outputs);
    least.input_received = least.input_elements - least.input_elements / s.outputs;
    least.weight_share = ceil_div(whole.weight_elements, s.positions() * left);
    return least;
  }

  /// Returns whether the frontier beats the lower bound on all plans that split positions and output channels of `s`.
  /// The bound gives each part one block of output channels, and an even share of all pairs of position and block.
  [[nodiscard]] bool is_beaten_for_all_outputs(const Splits& s) const {
    if (vertex_.kind == VertexKind::kHmac) {
      return false;  // HMAC is faster with more channels at a time, so one block gives no bound.
    }
    const std::int64_t left = target_.tiles / s.tiles();
    Load least = load_of(viewed_, vertex_, target_, s);
    const Load whole = least;
    TilePart& part = least.part;
    const std::int64_t blocks = whole.part.outputs / vertex_.outputs;
    const std::int64_t even = ceil_div(whole.part.positions() * blocks, left);
    part.batch = 1;
    part.rows = 1;
    part.columns = ceil_div(even, product_.field[0].input_dilation);
    part.outputs = vertex_.outputs;
    least.sums = even * part.outputs * part.groups;
    const std::int64_t inputs = whole.part.batch * inputs_read_ * part.inputs * part.groups;
    least.input_elements = ceil_div(inputs, left * s.kernel);
    least.input_share = least.input_elements;
    least.input_received = 0;
    least.weight_elements = ceil_div(whole.weight_elements, std::min(blocks, left));
    least.weight_share = ceil_div(whole.weight_elements, left);
    least.weight_received = 0;
    return is_beaten(least);
  }

  [[nodiscard]] bool is_beaten(const Load& load) const {
    const Cost cost = cost_of(viewed_, vertex_, target_, load);
    return frontier_.beats(cost.cycles.total(), cost.bytes.total());
  }

  const std::size_t way_;
  const ViewedProduct& viewed_;
  const Product& product_;
  const Vertex vertex_;
  const Target& target_;
  const Blocks blocks_;
  const std::vector<std::int64_t> batch_counts_;
  const std::vector<std::int64_t> row_counts_;
  const std::vector<std::int64_t> column_counts_;
  const std::vector<std::int64_t> kernel_counts_;
  const std::vector<std::int64_t> group_counts_;
  const std::int64_t inputs_read_;
  Frontier& frontier_;
};

}  // namespace

bool comes_first(const Candidate& a, const Candidate& b) {
  return std::tie(a.tiles, a.splits, a.way) < std::tie(b.tiles, b.splits, b.way);
}

bool Frontier::beats(Cycles cycles, Bytes bytes) const {
  // Among the points with at most this many cycles, the last has the fewest bytes.
  const auto after = std::ranges::upper_bound(points_, cycles, {}, &Candidate::cycles);
  if (after == points_.begin()) {
    return false;
  }
  const Candidate& point = *std::prev(after);
  return point.bytes < bytes || (point.bytes == bytes && point.cycles < cycles);
}

void Frontier::offer(const Candidate& candidate) {
  if (beats(candidate.cycles, candidate.bytes)) {
    return;
  }
  const auto first = std::ranges::lower_bound(points_, candidate.cycles, {}, &Candidate::cycles);
  if (first != points_.end() && first->cycles == candidate.cycles && first->bytes == candidate.bytes) {
    if (comes_first(candidate, *first)) {
      *first = candidate;
    }
    return;
  }
  const auto last = std::find_if(first, points_.end(),
                                 [&candidate](const Candidate& point) { return point.bytes < candidate.bytes; });
  points_.insert(points_.erase(first, last), candidate);
}

std::vector<std::int64_t> part_counts(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t parts = 1; parts <= std::min(size, most);) {
    counts.push_back(parts);
    const std::int64_t each = ceil_div(size, parts);
    if (each == 1) {
      break;
    }
    parts = ceil_div(size, each - 1);
  }
  return counts;
}

std::vector<Plan> find_plans(const Product& product, const Target& target) {
  const std::vector<ViewedProduct> views = views_of(product, target.block_inputs);
  const std::vector<Way> ways = ways_of(views, target, product.arithmetic);
  Frontier frontier;
  for (const Way& way : promising_first(ways, target)) {
    SplitSearch(way, target, frontier).run();
  }
  std::vector<Plan> plans;
  for (const Candidate& point : frontier.points()) {
    const Way& way = ways[point.way];
    plans.push_back(
        {.product = product,
         .viewed = *way.viewed,
         .vertex = way.vertex,
         .splits = point.splits,
         .cost = cost_of(*way.viewed, way.vertex, target, load_of(*way.viewed, way.vertex, target, point.splits))});
  }
  return plans;
}

}  // namespace poprun::planner
