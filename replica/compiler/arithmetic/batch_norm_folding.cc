#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/machine/machine.h"
#include "replica/ops/face/kinds.h"

/// In inference, folds each batch norm into the convolution before it: the norm's scale into the weights, and its shift
/// into the bias, once, at the end of "load". Results differ by rounding, so the pass comes before "precision".
///
///   load      ...                                   ...; w, shift = fold_batch_norm(w, shift, scale, mean, variance)
///   evaluate  y = conv2d(x, w)               ->     z = conv2d(x, w, shift)
///             z = batch_norm_inference(y, scale, shift, mean, variance)
///
/// A norm is not folded if anything else reads y, w or shift, or if an operand is not a variable that "load" sets up.
namespace poprun::passes::batch_norm_folding {
namespace {

constexpr std::string_view kName = "batch-norm-folding";

bool applies(const CompileOptions& options) {
  return options.fold_batch_norm;
}

/// The number of writes and reads of each tensor.
struct Uses {
  std::vector<int> writes;       ///< In all functions.
  std::vector<int> load_writes;  ///< In "load".
  std::vector<int> reads;        ///< In all functions.

  explicit Uses(const Graph& graph) : writes(graph.tensors().size()), load_writes(writes.size()), reads(writes.size()) {
    for (const Function& function : graph.functions) {
      for (const Region& region : function.regions) {
        for (const Operation& operation : region.operations) {
          for (const TensorId id : operation.inputs) {
            ++reads[index_of(id)];
          }
          for (const TensorId id : operation.outputs) {
            ++writes[index_of(id)];
            load_writes[index_of(id)] += &function == &graph.functions[graph.load().function] ? 1 : 0;
          }
        }
      }
    }
  }

  [[nodiscard]] bool is_variable(TensorId id) const {
    return writes[index_of(id)] == 1 && load_writes[index_of(id)] == 1;
  }
  [[nodiscard]] bool is_read_once(TensorId id) const { return reads[index_of(id)] == 1; }
};

bool can_fold(const Uses& uses, const Operation& convolution, const Operation& norm) {
  const TensorId w = convolution.inputs[1];
  const TensorId shift = norm.inputs[2];
  const bool variables =
      std::all_of(convolution.inputs.begin() + 1, convolution.inputs.end(),
                  [&](TensorId id) { return uses.is_variable(id); }) &&
      std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [&](TensorId id) { return uses.is_variable(id); });
  return variables && uses.is_read_once(convolution.outputs[0]) && uses.is_read_once(w) && uses.is_read_once(shift) &&
         w != shift;
}

Operation fold_of(const Operation& convolution, const Operation& norm) {
  const TensorId w = convolution.inputs[1];
  Operation fold{.kind = kinds::kFoldBatchNorm,
                 .inputs = {w, norm.inputs[2], norm.inputs[1], norm.inputs[3], norm.inputs[4]},
                 .outputs = {w, norm.inputs[2]},
                 .attributes = {{"eps", norm.attributes.real("eps")}}};
  if (convolution.inputs.size() == 3) {
    fold.inputs.push_back(convolution.inputs[2]);
  }
  return fold;
}

Status run(const CompileOptions& options, Job& job) {
  if (!options.inference || !job.evaluation) {
    return fail(ErrorCode::kUsage,
                "model.fold-batch-norm = true needs model.mode = inference, but the mode is training, in which batch "
                "norms use statistics of the batch; change one of these settings");
  }
  Graph& graph = job.graph;
  const Uses uses(graph);
  std::vector<Operation> kept;
  std::map<TensorId, std::size_t> made_by;  ///< Index in `kept` of each convolution, by output.
  std::size_t norms = 0;
  std::size_t folded = 0;
  for (Operation& operation : graph.at(*job.evaluation).operations) {
    norms += operation.kind == kinds::kBatchNormInference ? 1U : 0U;
    const auto made = operation.kind == kinds::kBatchNormInference ? made_by.find(operation.inputs[0]) : made_by.end();
    if (made != made_by.end() && can_fold(uses, kept[made->second], operation)) {
      Operation& convolution = kept[made->second];
      graph.at(graph.load()).operations.push_back(fold_of(convolution, operation));
      convolution.inputs.resize(2);
      convolution.inputs.push_back(operation.inputs[2]);
      convolution.outputs = operation.outputs;
      ++folded;
      continue;
    }
    if (operation.kind == kinds::kConv2d) {
      made_by[operation.outputs[0]] = kept.size();
    }
    kept.push_back(std::move(operation));
  }
  graph.at(*job.evaluation).operations = std::move(kept);
  job.notes.push_back(
      {"batch-norm.folded",
       fmt::format(
           "model.fold-batch-norm: {} of {} folded into the convolutions before them{}", folded,
           counted(norms, "batch norm"),
           folded == norms ? "" : "; the others do not follow a convolution, or share tensors with other operations"),
       {{"folded", folded}, {"batch-norms", norms}}});
  return {};
}

const Operation* writer(const std::vector<Operation>& operations, TensorId id) {
  const auto found = std::ranges::find_if(operations, [id](const Operation& operation) {
    return std::ranges::find(operation.outputs, id) != operation.outputs.end();
  });
  return found == operations.end() ? nullptr : &*found;
}

int readers(const Graph& graph, TensorId id) {
  int count = 0;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        count += static_cast<int>(std::ranges::count(operation.inputs, id));
      }
    }
  }
  return count;
}

bool same(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.inputs == b.inputs && a.outputs == b.outputs &&
         to_text(a.attributes) == to_text(b.attributes);
}

/// Checks that the graph before the pass had the unfolded form: the convolution and the norm, with these operands.
Status verify_fold(const Job& before, const Job& after, const Operation& fold) {
  const auto& then = before.graph.at(*before.evaluation).operations;
  const auto& now = after.graph.at(*after.evaluation).operations;
  const TensorId w = fold.inputs[0];
  const TensorId shift = fold.inputs[1];
  if (fold.outputs != std::vector{w, shift} || readers(before.graph, w) != 1 || readers(before.graph, shift) != 1) {
    return pass_bug(kName, after.graph, w, "is folded, but is used by more than one convolution and norm");
  }
  const auto convolution = std::ranges::find_if(now, [&](const Operation& operation) {
    return operation.kind == kinds::kConv2d && operation.inputs.size() == 3 && operation.inputs[1] == w &&
           operation.inputs[2] == shift;
  });
  const Operation* norm = convolution == now.end() ? nullptr : writer(then, convolution->outputs[0]);
  const Operation* plain = norm == nullptr ? nullptr : writer(then, norm->inputs[0]);
  if (plain == nullptr || readers(before.graph, norm->inputs[0]) != 1) {
    return pass_bug(kName, after.graph, w, "is folded, but its norm did not follow its convolution");
  }
  Operation wanted = *convolution;
  wanted.inputs.resize(2);
  if (fold.inputs.size() == 6) {
    wanted.inputs.push_back(fold.inputs[5]);
  }
  wanted.outputs = plain->outputs;
  const std::vector<TensorId> operands = {plain->outputs[0], fold.inputs[2], shift, fold.inputs[3], fold.inputs[4]};
  const bool same_norm = norm->kind == kinds::kBatchNormInference && norm->inputs == operands &&
                         norm->outputs == convolution->outputs &&
                         norm->attributes.real("eps") == fold.attributes.real("eps");
  return same_norm && same(wanted, *plain)
             ? Status{}
             : pass_bug(kName, after.graph, w, "is folded with the operands of another norm");
}

/// Checks that every fold replaces one norm, and that nothing else has changed.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  const auto& load = after.graph.at(after.graph.load()).operations;
  const auto& setup = before.graph.at(before.graph.load()).operations;
  const auto& then = before.graph.at(*before.evaluation).operations;
  const auto& now = after.graph.at(*after.evaluation).operations;
  POPRUN_CHECK(load.size() >= setup.size());
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (i < setup.size() ? !same(load[i], setup[i]) : load[i].kind != kinds::kFoldBatchNorm) {
      return pass_bug(kName, after.graph, load[i].outputs[0], "is no longer set up as before");
    }
    if (i >= setup.size()) {
      POPRUN_TRY(verify_fold(before, after, load[i]));
    }
  }
  const std::size_t folds = load.size() - setup.size();
  if (now.size() + folds != then.size()) {
    return fail(ErrorCode::kBug, fmt::format("pass {}: adds {}, but removes {}", kName, counted(folds, "fold"),
                                             counted(then.size() - now.size(), "operation")));
  }
  // The remaining operations are the same as before, in the same order, except for the folded convolutions.
  std::size_t changed = 0;
  std::size_t next = 0;
  for (const Operation& operation : now) {
    while (next < then.size() && then[next].kind == kinds::kBatchNormInference && !same(then[next], operation)) {
      ++next;
    }
    if (next == then.size()) {
      return pass_bug(kName, after.graph, operation.outputs[0], "is no longer computed in the same order");
    }
    changed += same(then[next], operation) ? 0U : 1U;
    ++next;
  }
  return changed == folds ? Status{}
                          : fail(ErrorCode::kBug, fmt::format("pass {}: adds {}, but changes {}", kName,
                                                              counted(folds, "fold"), counted(changed, "operation")));
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::batch_norm_folding
