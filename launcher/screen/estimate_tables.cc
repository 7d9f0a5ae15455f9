#include "launcher/screen/estimate_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "launcher/screen/job_rows.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kGrowth = "per unit";

/// Formats bytes for a cell of a table; 0 becomes "-".
std::string bytes_or_dash(std::uint64_t bytes) {
  return bytes == 0 ? "-" : mebibytes_text(bytes);
}
template <std::integral Number>
std::string or_dash(Number number) {
  return number == 0 ? "-" : grouped(number);
}

const proto::NeedsEstimate& needs_of(const proto::JobEstimate& job) {
  return job.has_training() ? job.training() : job.inference();
}

std::uint64_t peaks_of(const proto::CompiledEstimate& compiled) {
  std::uint64_t sum = 0;
  for (const proto::IpuMemory& memory : compiled.memory()) {
    sum += memory.peak();
  }
  return sum;
}

std::string precision_text(const proto::JobEstimate& e) {
  return word_of(e.half() ? Precision::kHalf : Precision::kFloat);
}

void add_kind_row(std::string& text, const proto::KindEstimate& kind) {
  text += fmt::format("{:<13}{:>7}{:>14}{:>12}{:>13}{:>21}\n", kind.kind(), or_dash(kind.blocks()),
                      or_dash(kind.trained_weights()), or_dash(kind.trained_biases()),
                      or_dash(kind.moving() + kind.frozen()), or_dash(kind.activations()));
}

proto::KindEstimate total_of(const proto::JobEstimate& e) {
  proto::KindEstimate total;
  total.set_kind("all");
  for (const proto::KindEstimate& kind : e.kinds()) {
    total.set_blocks(total.blocks() + kind.blocks());
    total.set_trained_weights(total.trained_weights() + kind.trained_weights());
    total.set_trained_biases(total.trained_biases() + kind.trained_biases());
    total.set_frozen(total.frozen() + kind.frozen());
    total.set_moving(total.moving() + kind.moving());
    total.set_activations(total.activations() + kind.activations());
  }
  return total;
}

std::string parameters_text(const proto::JobEstimate& e) {
  std::string text = fmt::format("# {}, estimated without compiling\n{:<13}{:>7}{:>14}{:>12}{:>13}{:>21}\n", e.model(),
                                 "parameters", "blocks", "weights", "biases", "not trained", "activations/sample");
  for (const proto::KindEstimate& kind : e.kinds()) {
    add_kind_row(text, kind);
  }
  const proto::KindEstimate total = total_of(e);
  add_kind_row(text, total);
  text += fmt::format("{} parameters", grouped(e.parameters()));
  if (e.parameters() > e.trained()) {
    text += fmt::format(", of which {} are trained", grouped(e.trained()));
  }
  if (total.moving() > 0) {
    text += fmt::format(", and {} moving averages", grouped(total.moving()));
  }
  return text + "\n";
}

void add_guide_row(std::string& text, std::string_view name, const std::string& inference, const std::string& training,
                   const std::string& remark = "") {
  const std::string row = fmt::format("{:<19}{:>15}{:>16}", name, inference, training);
  text += remark.empty() ? row + "\n" : fmt::format("{}  {}\n", row, remark);
}

/// Returns the figures of section 3.4 of the guide, in the guide's order.
std::string guide_text(const proto::JobEstimate& e) {
  const proto::GuideEstimate& at_rest = e.guide_inference();
  const proto::GuideEstimate& in_training = e.guide_training();
  std::string text = "\n# as in section 3.4 of Graphcore's Memory and Performance Optimisation\n";
  const bool trains = e.has_guide_training();
  const auto row = [&](std::string_view name, std::uint64_t (proto::GuideEstimate::*number)() const,
                       const std::string& remark = "") {
    add_guide_row(text, name, grouped((at_rest.*number)()), trains ? grouped((in_training.*number)()) : "-", remark);
  };
  const auto training_row = [&](std::string_view name, std::integral auto number, const std::string& remark) {
    add_guide_row(text, name, "-", grouped(number), remark);
  };
  add_guide_row(text, "", "inference", "training");
  const bool folds = trains && std::ranges::any_of(e.kinds(), [](const proto::KindEstimate& kind) {
                       return kind.folds() && kind.blocks() > 0;
                     });
  row("N_weights", &proto::GuideEstimate::weights, folds ? "batch norm: +2n" : "");
  row("N_biases", &proto::GuideEstimate::biases);
  row("N_non_trainable", &proto::GuideEstimate::non_trainable);
  if (trains) {
    training_row("N_optimiser_states", in_training.optimiser_states(),
                 e.states() == 0 && in_training.optimiser_states() > 0
                     ? fmt::format("{}: less than 1 per parameter", e.optimizer())
                     : fmt::format("{}: {} per parameter", e.optimizer(), e.states()));
    training_row("N_activations", in_training.activations(), "per sample");
    training_row("N_gradients", in_training.gradients(),
                 fmt::format("N_activations x {}", grouped(in_training.compute_batch())));
    training_row("N_backprop_vars", in_training.backprop_vars(), "sum of the first four");
  }
  row("N_FP", &proto::GuideEstimate::bytes_per_number, fmt::format("bytes, {}", precision_text(e)));
  add_guide_row(text, "total", mebibytes_text(at_rest.total()), trains ? mebibytes_text(in_training.total()) : "-");
  if (in_training.optimiser_states() > 0) {
    add_guide_row(text, "states once", "", mebibytes_text(in_training.total_states_once()));
    text +=
        "The training total counts the optimiser states twice, on their own and in\n"
        "N_backprop_vars, as the guide does; \"states once\" counts them once.\n";
  }
  return text;
}

std::string job_title(const proto::JobEstimate& e) {
  std::string text = fmt::format("\n# with the types of this job: {}", precision_text(e));
  if (e.has_training()) {
    text += fmt::format(", {}{}, {}", e.optimizer(), e.master_weights() ? " with master weights" : "",
                        e.gradient_accumulation() == 1
                            ? "no gradient accumulation"
                            : fmt::format("gradient accumulation {}", e.gradient_accumulation()));
  }
  return text + "\n";
}

std::string job_text(const proto::JobEstimate& e) {
  std::string text = job_title(e);
  const bool trains = e.has_training();
  const auto line = [&](std::string_view name, const std::string& inference, const std::string& kept,
                        const std::string& training) {
    text += trains ? fmt::format("{:<24}{:>15}{:>17}{:>17}\n", name, inference, kept, training)
                   : fmt::format("{:<24}{:>15}\n", name, inference);
  };
  const auto row = [&](std::string_view name, std::uint64_t (proto::NeedsEstimate::*part)() const, const auto& format) {
    line(name, format((e.inference().*part)()), format((e.kept().*part)()), format((e.training().*part)()));
  };
  line("", "inference", "training, kept", "training, peak");
  row("weights", &proto::NeedsEstimate::weights, bytes_or_dash);
  row("moving averages", &proto::NeedsEstimate::moving, bytes_or_dash);
  row("constants", &proto::NeedsEstimate::constants, bytes_or_dash);
  if (trains) {
    row("optimiser state", &proto::NeedsEstimate::optimizer_state, bytes_or_dash);
    row(e.gradient_accumulation() > 1 ? "gradient accumulators" : "gradients of weights",
        &proto::NeedsEstimate::gradients, bytes_or_dash);
  }
  row("activations and input", &proto::NeedsEstimate::activations, bytes_or_dash);
  row("short-lived", &proto::NeedsEstimate::passing, bytes_or_dash);
  row("total", &proto::NeedsEstimate::total, mebibytes_text);
  row("IPUs suggested", &proto::NeedsEstimate::ipus, grouped<std::uint64_t>);
  text += fmt::format(
      "IPUs: total / {}, which is {} % of the {} of {}. The rest is\nfor what the estimate leaves out: code, exchange, "
      "temporaries of operators,\ngaps and imbalance.\n",
      mebibytes_text(e.capacity() * e.tensors_percent() / 100), e.tensors_percent(), mebibytes_text(e.capacity()),
      e.device());
  if (trains) {
    text +=
        "kept: everything that the backward pass reads, plus all gradients of weights.\n"
        "peak: everything that is live at the fullest step. short-lived: gradients of\n"
        "activations, scalars and similar values. Without recomputation, a pipeline of\n"
        "several IPUs keeps the activations of several micro-batches and needs more.\n";
  }
  if (!e.not_counted().empty()) {
    text +=
        "Not counted, although they reduce the need for memory, so fewer IPUs may suffice\n(--compile counts them):\n";
    for (const std::string& key : e.not_counted()) {
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

struct VariedRow {
  std::string value;
  const proto::JobEstimate& job;

  [[nodiscard]] const proto::NeedsEstimate& needs() const { return needs_of(job); }
  [[nodiscard]] std::uint64_t peaks() const { return peaks_of(job.compiled()); }

  [[nodiscard]] std::uint64_t fullest_tile() const {
    std::uint64_t most = 0;
    for (const proto::IpuMemory& memory : job.compiled().memory()) {
      most = std::max(most, memory.fullest_tile_peak());
    }
    return most;
  }
};

/// The first and the last row, with the difference between their values.
struct Growth {
  const VariedRow& first;
  const VariedRow& last;
  std::int64_t steps;

  /// Returns the mean growth per unit of a figure.
  template <typename Figure>
  [[nodiscard]] std::int64_t of(Figure figure) const {
    return (static_cast<std::int64_t>(figure(last)) - static_cast<std::int64_t>(figure(first))) / steps;
  }
};

/// Returns the growth if all values are whole numbers and the first differs from the last. Otherwise, returns nothing.
std::optional<Growth> growth_of(const std::vector<VariedRow>& rows) {
  if (!std::ranges::all_of(rows,
                           [](const VariedRow& row) { return parse_number<std::int64_t>(row.value).has_value(); })) {
    return std::nullopt;
  }
  const std::int64_t steps =
      *parse_number<std::int64_t>(rows.back().value) - *parse_number<std::int64_t>(rows.front().value);
  return steps == 0 ? std::nullopt : std::optional(Growth{rows.front(), rows.back(), steps});
}

std::string growth_text(std::int64_t bytes) {
  return (bytes < 0 ? "-" : "") + mebibytes_text(static_cast<std::uint64_t>(std::abs(bytes)));
}

/// Returns a row with the mean growth per unit from the first row to the last, or "" if growth_of returns nothing.
std::string growth_line(const std::vector<VariedRow>& rows, std::size_t width, bool compiled) {
  const std::optional<Growth> growth = growth_of(rows);
  if (!growth) {
    return "";
  }
  const auto parameters = [](const VariedRow& row) { return row.job.parameters(); };
  const auto total = [](const VariedRow& row) { return row.needs().total(); };
  return varied_line(std::string{kGrowth}, width, grouped(growth->of(parameters)), growth_text(growth->of(total)), "",
                     compiled ? growth_text(growth->of(std::mem_fn(&VariedRow::peaks))) : "",
                     compiled ? grouped(growth->of(std::mem_fn(&VariedRow::fullest_tile))) + " B" : "") +
         "\n";
}

/// A purpose for which memory is used. Tables list the purposes in the order of kPurposes.
struct Purpose {
  std::string_view name;
  std::uint64_t (proto::CompiledEstimate::*bytes)() const;
};
constexpr std::array<Purpose, 4> kPurposes = {{{"vertices", &proto::CompiledEstimate::vertices},
                                               {"control", &proto::CompiledEstimate::control},
                                               {"exchange", &proto::CompiledEstimate::exchange},
                                               {"data", &proto::CompiledEstimate::data}}};

/// Returns "12.3 MiB 8 %": the bytes of a purpose and their share of the total.
std::string share_text(const proto::CompiledEstimate& compiled, const Purpose& purpose) {
  std::uint64_t all = 0;
  for (const Purpose& one : kPurposes) {
    all += (compiled.*one.bytes)();
  }
  all = std::max<std::uint64_t>(1, all);
  const std::uint64_t bytes = (compiled.*purpose.bytes)();
  return fmt::format("{} {:>3} %", mebibytes_text(bytes), (100 * bytes + all / 2) / all);
}

/// Returns a row per value, with the bytes of each purpose on the IPUs at peak. Requires: all jobs were compiled.
std::string purposes_text(const std::string& key, const std::vector<VariedRow>& rows, std::size_t width) {
  std::string text = fmt::format("\n{:<{}}", key, width);
  for (const Purpose& purpose : kPurposes) {
    text += fmt::format("{:>16}", purpose.name);
  }
  for (const VariedRow& row : rows) {
    text += fmt::format("\n{:<{}}", row.value, width);
    for (const Purpose& purpose : kPurposes) {
      text += fmt::format("{:>16}", share_text(row.job.compiled(), purpose));
    }
  }
  if (const std::optional<Growth> growth = growth_of(rows)) {
    text += fmt::format("\n{:<{}}", kGrowth, width);
    for (const Purpose& purpose : kPurposes) {
      const auto bytes = [&](const VariedRow& row) { return (row.job.compiled().*purpose.bytes)(); };
      text += fmt::format("{:>10}{:6}", growth_text(growth->of(bytes)), "");
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text + "\nbytes on all IPUs, each at its fullest step; all columns except data count code\n";
}

/// Returns a row per layer and, if `blocks` is true, a row below it for each of its blocks, with the formula. Shortens
/// names that are too long, unless `whole_names` is true.
std::string layers_text(const proto::JobEstimate& e, bool blocks, bool whole_names) {
  std::size_t names = 26;
  for (const proto::LayerEstimate& layer : e.layers()) {
    names = whole_names ? std::max(names, layer.name().size() + 1) : names;
    for (int k = 0; k < (blocks && whole_names ? layer.blocks_size() : 0); ++k) {
      names = std::max(names, layer.blocks(k).name().size() + 3);
    }
  }
  std::string text = fmt::format("\n# by layer\n{:<{}}{:>13}{:>13}", "layer", names, "parameters", "activations");
  text += e.has_training() ? fmt::format("{:>14}{:>14}\n", "held", "kept") : "\n";
  for (const proto::LayerEstimate& layer : e.layers()) {
    text += fmt::format("{:<{}}{:>13}{:>13}", poprun::shortened(layer.name(), names - 1), names,
                        or_dash(layer.parameters()), or_dash(layer.activations()));
    text += e.has_training() ? fmt::format("{:>14}{:>14}\n", bytes_or_dash(layer.held()), bytes_or_dash(layer.kept()))
                             : "\n";
    for (int k = 0; k < (blocks ? layer.blocks_size() : 0); ++k) {
      const proto::BlockEstimate& block = layer.blocks(k);
      text += fmt::format("  {:<{}}{:>13}  {}: {}\n", poprun::shortened(block.name(), names - 3), names - 2,
                          grouped(block.parameters()), block.kind(), block.formula());
    }
  }
  text += "activations: outputs per sample, counting only operations that compute\n";
  if (e.has_training()) {
    text +=
        "held: weights with their gradients and optimiser state; kept: what the backward\n"
        "pass reads from the forward pass of a micro-batch\n";
  }
  return text;
}

/// Returns rows for the IPUs of the compiled job, and compares their sum with the estimate.
std::string compiled_text(const proto::JobEstimate& e, bool all_ipus) {
  const proto::CompiledEstimate& compiled = e.compiled();
  JobRows rows;
  add_ipus(rows, compiled.memory(), &proto::IpuMemory::fullest_tile_peak, {all_ipus, "which -v lists"},
           [&](int ipu, bool fullest) {
             rows.emplace_back(fmt::format("IPU {} memory", ipu), memory_text(compiled.memory(ipu), fullest));
             rows.emplace_back("  tiles", tiles_text(compiled.memory(ipu)));
           });
  const std::uint64_t peaks = peaks_of(compiled);
  const std::uint64_t estimated = needs_of(e).total();
  const double ratio = static_cast<double>(peaks) / static_cast<double>(std::max<std::uint64_t>(1, estimated));
  if (compiled.memory_size() > 1) {
    rows.emplace_back("all IPUs", mebibytes_text(peaks) + " at their peaks");
  }
  rows.emplace_back("estimated", fmt::format("{}; the compiler needs {:.1f} % {}", mebibytes_text(estimated),
                                             std::abs(100 * (ratio - 1)), ratio < 1 ? "less" : "more"));
  for (const Purpose& purpose : kPurposes) {
    rows.emplace_back(fmt::format("  {}", purpose.name), share_text(compiled, purpose));
  }
  for (const proto::Note& note : compiled.notes()) {
    rows.emplace_back("note", note.text());
  }
  return "\n# compiled\n" + to_text(rows);
}

}  // namespace

std::string estimate_tables(const proto::JobEstimate& job, const EstimateFrame& frame) {
  return parameters_text(job) + guide_text(job) + job_text(job) +
         (frame.by_layer ? layers_text(job, frame.everything, frame.whole_names) : "") +
         (job.has_compiled() ? compiled_text(job, frame.everything) : "");
}

std::string varied_table(const std::string& key, const std::vector<std::string>& values,
                         const proto::EstimateAnswer& answer) {
  std::vector<VariedRow> rows;
  std::size_t width = std::max(key.size(), kGrowth.size());
  for (int k = 0; k < answer.jobs_size(); ++k) {
    rows.push_back({values.at(static_cast<std::size_t>(k)), answer.jobs(k)});
    width = std::max(width, rows.back().value.size());
  }
  if (rows.empty()) {
    return "";
  }
  const bool compiled = answer.jobs(0).has_compiled();
  std::string text = varied_line(key, width, "parameters", "estimated", "IPUs", compiled ? "compiled" : "",
                                 compiled ? "fullest tile" : "") +
                     "\n";
  for (const VariedRow& row : rows) {
    text += varied_line(row.value, width, grouped(row.job.parameters()), mebibytes_text(row.needs().total()),
                        grouped(row.needs().ipus()), compiled ? mebibytes_text(row.peaks()) : "",
                        compiled ? grouped(row.fullest_tile()) + " B" : "");
    text += compiled && !row.job.compiled().fits() ? "  does not fit\n" : "\n";
  }
  text += growth_line(rows, width, compiled);
  return compiled ? text + purposes_text(key, rows, width) : text;
}

}  // namespace poprun::launcher
