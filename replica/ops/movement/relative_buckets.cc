#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/ops/face/operator.h"

/// Buckets of the distance between a query and a key, as in T5 (Raffel et al., 2020) and Hugging Face's
/// _relative_position_bucket. A table with a bias for each bucket gives the relative position bias of attention.
///
///   T  queries    S  keys    n  buckets: all of them, or half of them for each direction
///
///   relative_buckets() queries=T keys=S buckets=. distance=. both_directions=0|1  ->  i32[T,S]
///
/// Query t and key s are r = t - s apart. With both_directions=1, later keys (r < 0) have the second half of the
/// buckets, and distances are |r|; otherwise, they are r, or 0 for later keys. Distances below n / 2 have a bucket of
/// their own. Larger ones share buckets that grow logarithmically up to `distance`; from there on, all have the last
/// bucket. The logarithm is computed in float32, as in PyTorch.
namespace poprun::ops::relative_buckets {
namespace {

constexpr const char* kKind = "relative_buckets";

struct Buckets {
  std::int64_t count;
  std::int64_t distance;
  bool both;

  explicit Buckets(const Attributes& a)
      : count(a.integer("buckets")), distance(a.integer("distance")), both(a.integer("both_directions") != 0) {}

  [[nodiscard]] std::int64_t each() const { return both ? count / 2 : count; }

  [[nodiscard]] std::int32_t of(std::int64_t r) const {
    const std::int64_t first = both && r < 0 ? each() : 0;
    const std::int64_t apart = both ? std::abs(r) : std::max<std::int64_t>(r, 0);
    const std::int64_t exact = each() / 2;
    if (apart < exact) {
      return static_cast<std::int32_t>(first + apart);
    }
    const float growth = std::log(static_cast<float>(apart) / static_cast<float>(exact)) /
                         static_cast<float>(std::log(static_cast<double>(distance) / static_cast<double>(exact)));
    const std::int64_t bucket = exact + static_cast<std::int64_t>(growth * static_cast<float>(each() - exact));
    return static_cast<std::int32_t>(first + std::min(bucket, each() - 1));
  }
};

bool is_positive(const Attributes& attributes, const std::string& name) {
  return attributes.has(name) && attributes.integer(name) >= 1;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const Attributes& a = s.attributes;
  if (!s.inputs.empty() || !is_positive(a, "queries") || !is_positive(a, "keys") || !is_positive(a, "buckets") ||
      !is_positive(a, "distance") || !a.has("both_directions") || Buckets(a).each() < 2 ||
      a.integer("distance") <= Buckets(a).each() / 2) {
    return shape_error(kKind, s,
                       "queries and keys >= 1, at least two buckets for each direction, distance > half of these, "
                       "both_directions=0|1, and takes no input");
  }
  return std::vector{TensorType{DataType::kI32, {a.integer("queries"), a.integer("keys")}, {}}};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const std::int64_t T = s.outputs[0].shape[0];
  const std::int64_t S = s.outputs[0].shape[1];
  std::vector<std::int32_t> bucket_of;  // bucket_of[r + S - 1] is the bucket of the distance r.
  for (std::int64_t r = 1 - S; r < T; ++r) {
    bucket_of.push_back(Buckets(s.attributes).of(r));
  }
  return make_kernel([T, S, bucket_of](const Operands& t) {
    auto* y = reinterpret_cast<std::int32_t*>(t.outputs[0]);  // NOLINT: i32 tensor.
    for (std::int64_t i = 0; i < T; ++i) {
      for (std::int64_t j = 0; j < S; ++j) {
        y[i * S + j] = bucket_of[static_cast<std::size_t>(i - j + S - 1)];
      }
    }
  });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 2 * s.outputs[0].elements();
  return work;
}

}  // namespace

std::vector<Operator> operators() {
  return {{kKind, shape, flat, work, numerics}};
}

}  // namespace poprun::ops::relative_buckets
