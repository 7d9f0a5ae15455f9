#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/arithmetic/slices.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// Marks dense layers and embeddings to be computed in slices. The pass "slices" divides them and their gradients.
///
///   model.embedding-serialisation-factor   the embedding with the most rows: gathers from its
///                                          table, and layers with one channel per row
///   model.serialised-matmuls               dense layers, selected by output name
namespace poprun::passes::serialisation {
namespace {

constexpr std::string_view kName = "serialisation";
constexpr std::string_view kFactorKey = "model.embedding-serialisation-factor";
constexpr std::string_view kMatmulsKey = "model.serialised-matmuls";

std::int64_t channels_of(const Graph& graph, const Operation& operation) {
  return graph.tensor(operation.outputs[0]).type.shape.back();
}

bool reads_table(const Graph& graph, const Operation& operation) {
  return operation.kind == kinds::kGather && operation.attributes.integer("axis") == 0 &&
         graph.tensor(operation.inputs[0]).role == Role::kParameter &&
         !operation.attributes.has("begin");  // A part of a table is a slice already.
}

/// Returns the table with the most rows (the first if several tie), or nothing if the model has no table.
std::optional<TensorId> largest_table(const Job& job) {
  const Graph& graph = job.graph;
  const auto rows = [&graph](TensorId id) { return graph.tensor(id).type.shape[0]; };
  std::optional<TensorId> largest;
  for (const Operation& operation : graph.at(forward_places(job)[0]).operations) {
    if (reads_table(graph, operation) && (!largest || rows(operation.inputs[0]) > rows(*largest))) {
      largest = operation.inputs[0];
    }
  }
  return largest;
}

Status mark_embedding(std::int64_t slices, const std::string& model, Job& job) {
  const Graph& graph = job.graph;
  const std::optional<TensorId> table = largest_table(job);
  if (!table) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} = {}: {} has no embedding table; leave the option out", kFactorKey, slices, model));
  }
  const std::int64_t rows = graph.tensor(*table).type.shape[0];
  if (slices > rows) {
    return fail(ErrorCode::kUsage, fmt::format("{} = {}: the embedding table '{}' has {}; use at most that many "
                                               "slices",
                                               kFactorKey, slices, graph.tensor(*table).name,
                                               counted(static_cast<std::uint64_t>(rows), "row")));
  }
  for (const Place place : forward_places(job)) {
    for (Operation& operation : job.graph.at(place).operations) {
      if (reads_table(graph, operation) && operation.inputs[0] == *table) {
        operation.attributes.set(kSlices, slices);
      } else if (auto layer = as_linear(graph, operation); layer && channels_of(graph, *layer) == rows) {
        operation = *std::move(layer);
        operation.attributes.set(kSlices, slices);
      }
    }
  }
  return {};
}

Status mark_matmuls(const SerialisationOptions::Layers& asked, Job& job) {
  POPRUN_ASSIGN(const std::vector<NamedLayer> layers, layers_named(kMatmulsKey, asked, job));
  for (const NamedLayer& found : layers) {
    Operation& operation = job.graph.at(found.place).operations[found.index];
    if (asked.slices > channels_of(job.graph, operation)) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("{}: {}: '{}' has {}; use at most that many slices", kMatmulsKey, asked.text, found.name,
                      counted(static_cast<std::uint64_t>(channels_of(job.graph, operation)), "output channel")));
    }
    if (asked.slices > 1 || operation.attributes.has(kSlices)) {
      operation = found.layer;
      operation.attributes.set(kSlices, asked.slices);
    }
  }
  return {};
}

Status run(const CompileOptions& options, Job& job) {
  const SerialisationOptions& asked = options.serialisation;
  if (asked.embedding > 1) {
    POPRUN_TRY(mark_embedding(asked.embedding, options.model, job));
  }
  for (const SerialisationOptions::Layers& layers : asked.matmuls) {
    POPRUN_TRY(mark_matmuls(layers, job));
  }
  return {};
}

/// Checks that operations keep their inputs and outputs, and that marks are valid numbers of slices.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  for (std::size_t f = 0; f < before.graph.functions.size(); ++f) {
    for (std::size_t r = 0; r < before.graph.functions[f].regions.size(); ++r) {
      const std::vector<Operation>& was = before.graph.at({f, r}).operations;
      const std::vector<Operation>& is = after.graph.at({f, r}).operations;
      for (std::size_t k = 0; k < std::max(was.size(), is.size()); ++k) {
        if (was.size() != is.size() || was[k].inputs != is[k].inputs || was[k].outputs != is[k].outputs ||
            was[k].origin != is[k].origin) {
          return fail(ErrorCode::kBug, fmt::format("pass {}: changes more than the marks of operations", kName));
        }
        if (is[k].attributes.has(kSlices) && is[k].attributes.integer(kSlices) < 1) {
          return pass_bug(kName, after.graph, is[k].outputs.at(0), "has a number of slices below 1");
        }
      }
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, is_serialised, run, verify};
}

}  // namespace poprun::passes::serialisation
