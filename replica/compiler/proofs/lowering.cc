#include "replica/compiler/proofs/lowering.h"

#include <cstdint>

#include <fmt/format.h>

namespace poprun {
namespace {

template <typename Wanted, typename Found>
Status agree(std::string_view where, std::string_view what, const Wanted& wanted, const Found& found) {
  return wanted == found
             ? Status{}
             : fail(ErrorCode::kBug, fmt::format("lowering: {} has {} {} in the Program, but {} in the graph", where,
                                                 found, what, wanted));
}

Status verify_function(const Function& function, const proto::Function& lowered) {
  int at = 0;
  for (const Region& region : function.regions) {
    if (region.repeat == 1) {
      at += static_cast<int>(region.operations.size());
      continue;
    }
    const bool is_there = at < lowered.steps_size() && lowered.steps(at).has_repeat();
    const proto::Repeat& repeat = is_there ? lowered.steps(at).repeat() : proto::Repeat::default_instance();
    POPRUN_TRY(agree(function.name, "rounds of a region", static_cast<std::uint64_t>(region.repeat),
                     std::uint64_t{repeat.count()}));
    POPRUN_TRY(agree(function.name, "repeated steps", region.operations.size(),
                     static_cast<std::size_t>(repeat.steps_size())));
    ++at;
  }
  return agree(function.name, "steps", at, lowered.steps_size());
}

}  // namespace

Status verify_lowering(const Graph& graph, const Program& program) {
  POPRUN_TRY(agree("the job", "functions", graph.functions.size(), static_cast<std::size_t>(program.functions_size())));
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    const proto::Function& lowered = program.functions(static_cast<int>(f));
    POPRUN_TRY(agree("a function", "as its name", graph.functions[f].name, lowered.name()));
    POPRUN_TRY(verify_function(graph.functions[f], lowered));
  }
  POPRUN_TRY(agree("the job", "tensors", graph.tensors().size(), static_cast<std::size_t>(program.tensors_size())));
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    const proto::Tensor& lowered = program.tensors(static_cast<int>(t));
    POPRUN_TRY(agree(tensor.name, "as its name", tensor.name, lowered.name()));
    POPRUN_TRY(agree(tensor.name, "bytes", static_cast<std::uint64_t>(tensor.type.bytes().count()), lowered.bytes()));
  }
  return {};
}

}  // namespace poprun
