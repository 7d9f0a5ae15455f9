#include "replica/estimate/tables.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/choices/choices.h"
#include "replica/compiler/addresses/tile_plan.h"
#include "replica/report/tile_contents.h"
#include "replica/tables/ipu_table.h"

namespace poprun {
namespace {

constexpr std::string_view kGrowth = "per unit";

std::string text_of(Bytes bytes) {
  return mebibytes_text(static_cast<std::uint64_t>(bytes.count()));
}

/// Formats the bytes of one tile.
std::string tile_bytes_text(Bytes bytes) {
  return grouped(bytes.count()) + " B";
}

/// Formats a cell, which is "-" for 0.
std::string or_dash(Bytes bytes) {
  return bytes.count() == 0 ? "-" : text_of(bytes);
}
std::string or_dash(std::int64_t number) {
  return number == 0 ? "-" : grouped(number);
}

std::string precision_text(const Estimate& e) {
  return word_of(e.half ? Precision::kHalf : Precision::kFloat);
}

void add_kind_row(std::string& text, std::string_view name, const KindSum& sum) {
  text += fmt::format("{:<13}{:>7}{:>14}{:>12}{:>13}{:>21}\n", name, or_dash(sum.blocks),
                      or_dash(sum.weights - sum.frozen_weights), or_dash(sum.biases - sum.frozen_biases),
                      or_dash(sum.moving + sum.frozen_weights + sum.frozen_biases), or_dash(sum.activations));
}

KindSum total_of(const std::vector<KindSum>& kinds) {
  KindSum total;
  for (const KindSum& sum : kinds) {
    total.blocks += sum.blocks;
    total.weights += sum.weights;
    total.biases += sum.biases;
    total.moving += sum.moving;
    total.frozen_weights += sum.frozen_weights;
    total.frozen_biases += sum.frozen_biases;
    total.activations += sum.activations;
  }
  return total;
}

std::string parameters_text(const Estimate& e) {
  std::string text = fmt::format("# {}, estimated without compiling\n{:<13}{:>7}{:>14}{:>12}{:>13}{:>21}\n", e.model,
                                 "parameters", "blocks", "weights", "biases", "not trained", "activations/sample");
  for (const KindSum& sum : e.kinds) {
    add_kind_row(text, name_of(sum.kind), sum);
  }
  const KindSum total = total_of(e.kinds);
  add_kind_row(text, "all", total);
  text += fmt::format("{} parameters", grouped(e.parameters));
  if (e.parameters > e.trained) {
    text += fmt::format(", of which {} are trained", grouped(e.trained));
  }
  if (total.moving > 0) {
    text += fmt::format(", and {} moving averages", grouped(total.moving));
  }
  return text + "\n";
}

void add_guide_row(std::string& text, std::string_view name, const std::string& inference, const std::string& training,
                   const std::string& remark = "") {
  const std::string row = fmt::format("{:<19}{:>15}{:>16}", name, inference, training);
  text += remark.empty() ? row + "\n" : fmt::format("{}  {}\n", row, remark);
}

/// Returns section 3.4 of the guide, number by number.
std::string guide_text(const Estimate& e) {
  const guide::Counts& at_rest = e.guide_inference;
  std::string text = "\n# by Graphcore's Memory and Performance Optimisation, section 3.4, as printed\n";
  const bool trains = e.guide_training.has_value();
  const guide::Counts in_training = e.guide_training.value_or(guide::Counts{});
  const auto row = [&](std::string_view name, std::int64_t inference, std::int64_t training,
                       const std::string& remark = "") {
    add_guide_row(text, name, inference < 0 ? "-" : grouped(inference), trains ? grouped(training) : "-", remark);
  };
  add_guide_row(text, "", "inference", "training");
  const bool folds = trains && std::ranges::any_of(e.kinds, [](const KindSum& sum) {
                       return sum.kind == BlockKind::kBatchNorm && sum.blocks > 0;
                     });
  row("N_weights", at_rest.weights, in_training.weights, folds ? "batch norm: +2n" : "");
  row("N_biases", at_rest.biases, in_training.biases);
  row("N_non_trainable", at_rest.non_trainable, in_training.non_trainable);
  if (trains) {
    row("N_optimiser_states", -1, in_training.optimiser_states,
        fmt::format("{}: {} per parameter", e.optimizer, e.states));
    row("N_activations", -1, in_training.activations, "per sample");
    row("N_gradients", -1, in_training.gradients(),
        fmt::format("N_activations x {}", grouped(in_training.compute_batch)));
    row("N_backprop_vars", -1, in_training.backprop_vars(), "sum of the first four");
  }
  row("N_FP", at_rest.bytes_per_number, in_training.bytes_per_number, fmt::format("bytes, {}", precision_text(e)));
  add_guide_row(text, "total", text_of(at_rest.inference_total()),
                trains ? text_of(in_training.training_total()) : "-");
  if (trains && in_training.optimiser_states > 0) {
    add_guide_row(text, "states once", "", text_of(in_training.training_total_states_once()));
    text +=
        "The training total counts the optimiser states twice, on their own and in\n"
        "N_backprop_vars, as printed there; \"states once\" counts them once.\n";
  }
  return text;
}

std::string job_title(const Estimate& e) {
  std::string text = fmt::format("\n# with the types of this job: {}", precision_text(e));
  if (e.training) {
    text +=
        fmt::format(", {}{}, {}", e.optimizer, e.master_weights ? " with master weights" : "",
                    e.gradient_accumulation == 1 ? "no gradient accumulation"
                                                 : fmt::format("gradient accumulation {}", e.gradient_accumulation));
  }
  return text + "\n";
}

std::string job_text(const Estimate& e) {
  std::string text = job_title(e);
  const bool trains = e.training.has_value();
  const auto line = [&](std::string_view name, const std::string& inference, const std::string& kept,
                        const std::string& training) {
    text += trains ? fmt::format("{:<24}{:>15}{:>17}{:>17}\n", name, inference, kept, training)
                   : fmt::format("{:<24}{:>15}\n", name, inference);
  };
  const auto row = [&](std::string_view name, Bytes Needs::*part) {
    line(name, or_dash(e.inference.*part), trains ? or_dash((*e.kept).*part) : "",
         trains ? or_dash((*e.training).*part) : "");
  };
  line("", "inference", "training, kept", "training, peak");
  row("weights", &Needs::weights);
  row("moving averages", &Needs::moving);
  row("constants", &Needs::constants);
  if (trains) {
    row("optimiser state", &Needs::optimizer_state);
    row(e.gradient_accumulation > 1 ? "gradient accumulators" : "gradients of weights", &Needs::gradients);
  }
  row("activations and input", &Needs::activations);
  row("short-lived", &Needs::passing);
  line("total", text_of(e.inference.total()), trains ? text_of(e.kept->total()) : "",
       trains ? text_of(e.training->total()) : "");
  const auto ipus = [&](const Needs& needs) { return grouped(ipus_for(needs.total(), e.capacity)); };
  line("IPUs suggested", ipus(e.inference), trains ? ipus(*e.kept) : "", trains ? ipus(*e.training) : "");
  text += fmt::format(
      "IPUs: total / {}, {} % of the {} of {}. The rest is for what is\n"
      "left out: code, exchange, temporaries of operators, gaps and imbalance.\n",
      text_of(Bytes{e.capacity.count() * kTensorsPercent / 100}), kTensorsPercent, text_of(e.capacity), e.device);
  if (trains) {
    text +=
        "kept: everything that the backward pass reads, plus all gradients of weights.\n"
        "peak: what is live at the fullest step. short-lived: gradients of activations,\n"
        "scalars and the like. Without recomputation, a pipeline of several IPUs keeps\n"
        "the activations of several micro-batches and needs more.\n";
  }
  if (!e.not_counted.empty()) {
    text +=
        "Not counted, although they reduce what the job needs, so fewer IPUs may suffice\n(--compile counts "
        "them):\n";
    for (const std::string& key : e.not_counted) {
      text += fmt::format("  {}\n", key);
    }
  }
  return text;
}

std::string varied_line(const std::string& name, std::size_t width, const std::string& parameters,
                        const std::string& estimated, const std::string& ipus, const std::string& compiled,
                        const std::string& fullest) {
  const std::string line =
      fmt::format("{:<{}}{:>14}{:>12}{:>5}{:>12}{:>13}", name, width, parameters, estimated, ipus, compiled, fullest);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  return whole ? std::optional{value} : std::nullopt;
}

/// Returns the last value minus the first, if all values are whole numbers and these two differ.
std::optional<std::int64_t> distance(const std::vector<VariedRow>& rows) {
  if (!std::ranges::all_of(rows, [](const VariedRow& row) { return number_of(row.value).has_value(); })) {
    return std::nullopt;
  }
  const std::int64_t steps = *number_of(rows.back().value) - *number_of(rows.front().value);
  return steps == 0 ? std::nullopt : std::optional{steps};
}

/// Returns the mean growth per unit from a to b, which are `steps` units apart.
std::string each_more(Bytes a, Bytes b, std::int64_t steps) {
  const std::int64_t bytes = (b - a).count() / steps;
  return (bytes < 0 ? "-" : "") + text_of(Bytes{std::abs(bytes)});
}

/// Returns the mean growth per unit from the first row to the last; "" if the values are not whole numbers.
std::string growth_line(const std::vector<VariedRow>& rows, std::size_t width) {
  const std::optional<std::int64_t> steps = distance(rows);
  if (!steps) {
    return "";
  }
  const VariedRow& first = rows.front();
  const VariedRow& last = rows.back();
  const bool compiled = first.compiled.has_value();
  return varied_line(
             std::string{kGrowth}, width, grouped((last.parameters - first.parameters) / *steps),
             each_more(first.estimated, last.estimated, *steps), "",
             compiled ? each_more(first.compiled->peaks, last.compiled->peaks, *steps) : "",
             compiled
                 ? tile_bytes_text(Bytes{(last.compiled->fullest_tile - first.compiled->fullest_tile).count() / *steps})
                 : "") +
         "\n";
}

/// Names of shares, in the order of tables.
struct NamedShare {
  std::string_view name;
  Bytes Shares::*bytes;
};
constexpr std::array<NamedShare, 4> kShares = {{{"vertices", &Shares::vertex},
                                                {"control", &Shares::control},
                                                {"exchange", &Shares::exchange},
                                                {"data", &Shares::data}}};

/// Returns "12.3 MiB 8 %".
std::string share_text(const Shares& shares, const NamedShare& share) {
  const std::int64_t all = std::max<std::int64_t>(1, shares.total().count());
  const Bytes bytes = shares.*share.bytes;
  return fmt::format("{} {:>3} %", text_of(bytes), (100 * bytes.count() + all / 2) / all);
}

/// Returns a row per value with the IPUs' memory, by purpose, at their fullest steps. Requires: all rows were compiled.
std::string shares_text(const std::string& key, const std::vector<VariedRow>& rows, std::size_t width) {
  std::string text = fmt::format("\n{:<{}}", key, width);
  for (const NamedShare& share : kShares) {
    text += fmt::format("{:>16}", share.name);
  }
  for (const VariedRow& row : rows) {
    text += fmt::format("\n{:<{}}", row.value, width);
    for (const NamedShare& share : kShares) {
      text += fmt::format("{:>16}", share_text(row.compiled->shares, share));
    }
  }
  if (const std::optional<std::int64_t> steps = distance(rows)) {
    text += fmt::format("\n{:<{}}", kGrowth, width);
    for (const NamedShare& share : kShares) {
      text += fmt::format(
          "{:>10}{:6}",
          each_more(rows.front().compiled->shares.*share.bytes, rows.back().compiled->shares.*share.bytes, *steps), "");
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text + "\nbytes on all IPUs, each at its fullest step; everything but data is code\n";
}

/// Returns the memory, by purpose, that an IPU uses at its fullest step.
Shares shares_of(const proto::IpuMemory& memory) {
  Shares shares;
  for (const HeldBytes& held : held_on_ipu(memory, memory.worst_step())) {
    const auto is = [&held](Category category) { return held.category == to_text(category); };
    const bool exchanges = is(Category::kExchangeCode) || is(Category::kLinkBuffer) || is(Category::kHostBuffer);
    if (is(Category::kVertexCode) || is(Category::kVertexState)) {
      shares.vertex += held.bytes;
    } else if (is(Category::kControlCode)) {
      shares.control += held.bytes;
    } else if (exchanges && held.always_live) {
      shares.exchange += held.bytes;
    } else {
      shares.data += held.bytes;
    }
  }
  return shares;
}

}  // namespace

CompiledNeed compiled_need(const Program& program) {
  CompiledNeed need;
  for (const proto::IpuMemory& memory : program.memory()) {
    ++need.ipus;
    need.peaks += Bytes{static_cast<std::int64_t>(memory.peak())};
    need.fullest_tile = std::max(need.fullest_tile, Bytes{static_cast<std::int64_t>(memory.fullest_tile_peak())});
    need.fits = need.fits && fits(memory);
    const Shares shares = shares_of(memory);
    for (const NamedShare& share : kShares) {
      need.shares.*share.bytes += shares.*share.bytes;
    }
  }
  return need;
}

std::string estimate_text(const Estimate& estimate) {
  return parameters_text(estimate) + guide_text(estimate) + job_text(estimate);
}

std::string layers_text(const Estimate& e, bool blocks) {
  constexpr std::size_t kNames = 26;
  std::size_t names = kNames;
  std::string text = fmt::format("\n# by layer\n{:<{}}{:>13}{:>13}", "layer", names, "parameters", "activations");
  text += e.training ? fmt::format("{:>14}{:>14}\n", "held", "kept") : "\n";
  for (std::size_t i = 0; i < e.layers.size(); ++i) {
    const LayerSum& layer = e.layers[i];
    text += fmt::format("{:<{}}{:>13}{:>13}", shortened(layer.name, names - 1), names, or_dash(layer.parameters),
                        or_dash(layer.activations));
    text += e.training ? fmt::format("{:>14}{:>14}\n", or_dash(layer.held), or_dash(layer.kept)) : "\n";
    for (const Block& block : e.blocks) {
      if (blocks && block.layer == static_cast<std::int32_t>(i)) {
        text += fmt::format("  {:<{}}{:>13}  {}: {}\n", shortened(block.name, names - 3), names - 2,
                            grouped(block.parameters()), name_of(block.kind), block.formula);
      }
    }
  }
  text += "activations: per sample, of operations that compute\n";
  if (e.training) {
    text +=
        "held: weights with their gradients and optimiser state; kept: what the backward\n"
        "pass reads from the forward pass of a micro-batch\n";
  }
  return text;
}

std::string compiled_text(const Estimate& e, const Program& program, bool all_ipus) {
  std::string text = "\n# compiled\n";
  const auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14} {}\n", name, value);
  };
  const std::vector<ListedRow> listed = all_ipus ? all_rows(static_cast<std::size_t>(program.memory_size()))
                                                 : listed_by(program.memory(), &proto::IpuMemory::fullest_tile_peak);
  for (const ListedRow& ipu : listed) {
    if (ipu.left_out > 0) {
      row("..", fmt::format("{}, which -v lists", counted(ipu.left_out, "IPU")));
    }
    const proto::IpuMemory& memory = program.memory(static_cast<int>(ipu.index));
    row(fmt::format("IPU {} memory", ipu.index),
        memory_text(memory.peak(), memory.capacity(), memory.always_live()) + (ipu.stands_out ? kHasFullestTile : ""));
    row("  tiles",
        tiles_text(memory.fullest_tile(), memory.fullest_tile_peak(), memory.bytes_per_tile(), memory.tile_classes()));
  }
  const CompiledNeed need = compiled_need(program);
  const Bytes estimated = e.needs().total();
  const double ratio =
      static_cast<double>(need.peaks.count()) / static_cast<double>(std::max<std::int64_t>(1, estimated.count()));
  if (need.ipus > 1) {
    row("all IPUs", text_of(need.peaks) + " at their peaks");
  }
  row("estimated", fmt::format("{}; the compiler needs {:.1f} % {}", text_of(estimated), std::abs(100 * (ratio - 1)),
                               ratio < 1 ? "less" : "more"));
  for (const NamedShare& share : kShares) {
    row(fmt::format("  {}", share.name), share_text(need.shares, share));
  }
  for (const proto::Note& note : program.notes()) {
    row("note", note.text());
  }
  return text;
}

VariedRow varied_row(const std::string& value, const Estimate& estimate, const std::optional<CompiledNeed>& compiled) {
  const Bytes total = estimate.needs().total();
  return {value, estimate.parameters, total, ipus_for(total, estimate.capacity), compiled};
}

std::string varied_text(const std::string& key, const std::vector<VariedRow>& rows) {
  if (rows.empty()) {
    return "";
  }
  std::size_t width = std::max(key.size(), kGrowth.size());
  for (const VariedRow& row : rows) {
    width = std::max(width, row.value.size());
  }
  const bool compiled = rows[0].compiled.has_value();
  std::string text = varied_line(key, width, "parameters", "estimated", "IPUs", compiled ? "compiled" : "",
                                 compiled ? "fullest tile" : "") +
                     "\n";
  for (const VariedRow& row : rows) {
    const std::optional<CompiledNeed>& need = row.compiled;
    text += varied_line(row.value, width, grouped(row.parameters), text_of(row.estimated), grouped(row.ipus),
                        need ? text_of(need->peaks) : "", need ? tile_bytes_text(need->fullest_tile) : "");
    text += need && !need->fits ? "  does not fit\n" : "\n";
  }
  text += growth_line(rows, width);
  return compiled ? text + shares_text(key, rows, width) : text;
}

}  // namespace poprun
