#include "replica/compiler/arithmetic/orthogonalisation.h"

#include <fmt/format.h>

#include "replica/ops/face/kinds.h"

namespace poprun {

TensorId orthogonalised(Builder& builder, const std::string& name, TensorId u) {
  constexpr int kIterations = 5;
  constexpr double kA = 3.4445;
  constexpr double kB = -4.7750;
  constexpr double kC = 2.0315;
  if (!builder.status()) {
    return u;
  }
  const Shape shape = builder.type(u).shape;
  const bool wide = shape[0] <= shape[1];
  const auto constant = [&](double value, const std::string& suffix) {
    return builder.add_one(kinds::kFill, {}, {{"shape", Shape{}}, {"value", value}}, name + suffix);
  };
  const TensorId a = constant(kA, ".a");
  const TensorId b = constant(kB, ".b");
  for (int k = 1; k <= kIterations; ++k) {
    const auto part = [&](const char* what) { return fmt::format("{}.{}.{}", name, k, what); };
    // The products of the smaller side: A = u u^T, or u^T u.
    const TensorId A =
        builder.add_one(kinds::kMatmul, {u, u}, {{wide ? kTransposeB : kTransposeA, std::int64_t{1}}}, part("gram"));
    const TensorId square = builder.add_one(kinds::kMatmul, {A, A}, {{kScale, kC}}, part("square"));
    const TensorId linear = builder.add_one(kinds::kMul, {A, b}, {}, part("linear"));
    const TensorId both = builder.add_one(kinds::kAdd, {linear, square}, {}, part("polynomial"));
    const TensorId turned =
        builder.add_one(kinds::kMatmul, wide ? std::vector{both, u} : std::vector{u, both}, {}, part("turned"));
    const TensorId kept = builder.add_one(kinds::kMul, {u, a}, {}, part("kept"));
    u = builder.add_one(kinds::kAdd, {kept, turned}, {}, part("u"));
  }
  return u;
}

}  // namespace poprun
