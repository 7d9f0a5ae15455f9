#include "replica/compiler/passes.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/proofs/equivalence.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {

namespace passes::forward {
Pass pass();
}
namespace passes::stages {
Pass pass();
}
namespace passes::products {
Pass pass();
}
namespace passes::sequence_slices {
Pass pass();
}
namespace passes::serialisation {
Pass pass();
}
namespace passes::differentiation {
Pass pass();
}
namespace passes::norm_span {
Pass pass();
}
namespace passes::slices {
Pass pass();
}
namespace passes::accumulation {
Pass pass();
}
namespace passes::exchange {
Pass pass();
}
namespace passes::update {
Pass pass();
}
namespace passes::initial_weights {
Pass pass();
}
namespace passes::batch_norm_folding {
Pass pass();
}
namespace passes::precision {
Pass pass();
}
namespace passes::background_exchange {
Pass pass();
}
namespace passes::recomputation {
Pass pass();
}
namespace passes::pipeline {
Pass pass();
}
namespace passes::sharding {
Pass pass();
}
namespace passes::locations {
Pass pass();
}
namespace passes::outlining {
Pass pass();
}

namespace {

/// Returns the type that operators see, which is float32 for a tensor stored in float16.
TensorType widened(TensorType type) {
  type.data = type.data == DataType::kF16 ? DataType::kF32 : type.data;
  return type;
}

/// Checks that only copies, stashes and restores access Streaming Memory.
Status verify_memories(const Graph& graph, const Operation& operation) {
  if (Copy::is(operation) || Stash::is(operation) || Restore::is(operation)) {
    return {};
  }
  for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
    for (const TensorId id : *tensors) {
      if (graph.tensor(id).is_remote()) {
        return fail(ErrorCode::kBug,
                    fmt::format("uses '{}' in Streaming Memory, which only copies, stashes and restores may access",
                                graph.tensor(id).name));
      }
    }
  }
  return {};
}

Status verify_operation(const Graph& graph, const Operation& operation) {
  POPRUN_TRY(verify_memories(graph, operation));
  if (const auto* machine = find_machine_operation(operation.kind); machine != nullptr) {
    return machine->verify(graph, operation);
  }
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr) {
    return fail(ErrorCode::kBug, "unknown operation");
  }
  Signature signature{{}, {}, operation.attributes};
  for (const TensorId id : operation.inputs) {
    signature.inputs.push_back(widened(graph.tensor(id).type));
  }
  POPRUN_ASSIGN(const std::vector<TensorType> types, op->shape(signature));
  if (types.size() != operation.outputs.size()) {
    return fail(ErrorCode::kBug, fmt::format("the shape rule returns {} for {}", counted(types.size(), "tensor"),
                                             counted(operation.outputs.size(), "output")));
  }
  for (std::size_t k = 0; k < types.size(); ++k) {
    const Tensor& output = graph.tensor(operation.outputs[k]);
    if (widened(output.type) != types[k]) {
      return fail(ErrorCode::kBug, fmt::format("'{}' is {}, but the operation produces {}", output.name,
                                               to_text(output.type), to_text(types[k])));
    }
  }
  return {};
}

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> kAll = {passes::forward::pass(),
                                         passes::stages::pass(),
                                         passes::products::pass(),
                                         passes::sequence_slices::pass(),
                                         passes::serialisation::pass(),
                                         passes::differentiation::pass(),
                                         passes::norm_span::pass(),
                                         passes::slices::pass(),
                                         passes::accumulation::pass(),
                                         passes::exchange::pass(),
                                         passes::update::pass(),
                                         passes::initial_weights::pass(),
                                         passes::batch_norm_folding::pass(),
                                         passes::precision::pass(),
                                         passes::background_exchange::pass(),
                                         passes::recomputation::pass(),
                                         passes::pipeline::pass(),
                                         passes::sharding::pass(),
                                         passes::locations::pass(),
                                         passes::outlining::pass()};
  return kAll;
}

Status verify_operations(const Graph& graph) {
  POPRUN_TRY(verify_graph(graph));
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (const Status status = verify_operation(graph, operation); !status) {
          return fail(ErrorCode::kBug,
                      fmt::format("function {}: {}: {}", function.name, operation.kind, status.error().message));
        }
      }
    }
  }
  return {};
}

Status run_pass(const Pass& pass, const CompileOptions& options, const CompileObserver& observer, const Graph* plain,
                Job& job) {
  const Job before = job;
  POPRUN_TRY(pass.run(options, job));
  if (observer.after_pass) {
    POPRUN_TRY(observer.after_pass(pass.name, job));
  }
  if (const Status status = verify_operations(job.graph); !status) {
    return fail(ErrorCode::kBug, fmt::format("pass {}: {}", pass.name, status.error().message));
  }
  POPRUN_TRY(pass.verify(options, before, job));
  if (plain != nullptr) {
    if (const Status status = verify_equivalence(*plain, job.graph); !status) {
      return fail(ErrorCode::kBug, fmt::format("pass {}: {}", pass.name, status.error().message));
    }
  }
  return {};
}

Result<Job> run_passes(const CompileOptions& options, std::string_view last, const CompileObserver& observer) {
  Job job;
  std::optional<Graph> plain;  // The graph after the pass "precision".
  bool settled = false;
  bool over = false;
  for (const Pass& pass : all_passes()) {
    if (std::exchange(over, pass.name == last)) {
      break;
    }
    if (settled && !plain) {
      plain = job.graph;
    }
    settled = settled || pass.name == kLastOfArithmetic;
    if (!pass.applies(options)) {
      continue;
    }
    const bool can_be_left_out = pass.is_optional && options.leaves_out_unproven;
    std::optional<Job> before = can_be_left_out ? std::optional(job) : std::nullopt;
    const Status status = run_pass(pass, options, observer, plain ? &*plain : nullptr, job);
    if (status) {
      continue;
    }
    if (can_be_left_out && status.error().code == ErrorCode::kBug) {
      job = std::move(*before);
      job.notes.push_back({"pass.left-out",
                           fmt::format("{} {}: {}; results do not change, but memory use and device time may; please "
                                       "report this bug",
                                       pass.name, kLeftOut, status.error().message),
                           {{"pass", std::string{pass.name}}}});
    } else {
      return tl::unexpected<Error>{status.error()};
    }
  }
  return job;
}

}  // namespace poprun
