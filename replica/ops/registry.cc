#include <algorithm>

#include "replica/ops/face/operator.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun {

#define POPRUN_FAMILY(family)        \
  namespace ops::family {            \
  std::vector<Operator> operators(); \
  }
#include "replica/ops/families.inc"
#undef POPRUN_FAMILY

namespace {

bool is_complete(const Operator& op) {
  return op.shape != nullptr && op.work != nullptr && op.numerics != nullptr &&
         (op.product != nullptr) == (op.contraction != nullptr) &&
         (op.product != nullptr) == (op.operand_axes != nullptr);
}

std::vector<Operator> collect() {
  std::vector<Operator> all;
  const auto take = [&all](std::vector<Operator> family) { std::ranges::move(family, std::back_inserter(all)); };
#define POPRUN_FAMILY(family) take(ops::family::operators());
#include "replica/ops/families.inc"
#undef POPRUN_FAMILY
  for (const Optimizer& optimizer : all_optimizers()) {
    all.push_back(optimizer.rule);
    if (optimizer.norms) {
      all.push_back(*optimizer.norms);
    }
    if (optimizer.moments) {
      all.push_back(*optimizer.moments);
    }
    if (optimizer.orthogonalised) {
      all.push_back(optimizer.orthogonalised->momentum);
      all.push_back(optimizer.orthogonalised->rule);
    }
  }
  POPRUN_CHECK(std::ranges::all_of(all, is_complete));
  std::ranges::sort(all, {}, &Operator::kind);
  return all;
}

}  // namespace

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> all = collect();
  return all;
}

const Operator* find_operator(std::string_view kind) {
  const auto& all = all_operators();
  const auto found = std::ranges::lower_bound(all, kind, {}, &Operator::kind);
  return found != all.end() && found->kind == kind ? &*found : nullptr;
}

}  // namespace poprun
