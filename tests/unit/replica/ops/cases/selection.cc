#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tests/unit/replica/ops/case.h"

/// Operators that select elements by their values.
namespace poprun::testing {
namespace {

/// Computes top_k along axis 1 of [2,A,3] by sorting all elements.
Arrays top_k(const Arrays& in, const Attributes& a) {
  const std::int64_t k = a.integer("k");
  const double sign = a.integer("largest") != 0 ? -1 : 1;
  Arrays out = {Array({2, k, 3}), Array({2, k, 3})};
  for_each_index({2, 3}, [&](const Shape& at) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(in[0].shape[1]));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return sign * in[0]({at[0], i, at[1]}); });
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t from = order[static_cast<std::size_t>(i)];
      out[0]({at[0], i, at[1]}) = in[0]({at[0], from, at[1]});
      out[1]({at[0], i, at[1]}) = static_cast<double>(from);
    }
  });
  return out;
}

/// Numbers the choices of each expert by counting the equal ones before them.
Arrays expert_slots(const Arrays& in, const Attributes& a) {
  const std::int64_t E = a.integer("experts");
  const std::int64_t C = a.integer("capacity");
  const std::int64_t K = in[0].shape[1];
  Arrays out = {Array(in[0].shape), Array({E * C}, static_cast<double>(in[0].shape[0]))};
  for (std::size_t i = 0; i < in[0].values.size(); ++i) {
    const double e = in[0].values[i];
    const auto before = std::count(in[0].values.begin(), in[0].values.begin() + static_cast<std::ptrdiff_t>(i), e);
    const bool fits = before < C;
    const auto slot = static_cast<std::int64_t>(e) * C + before;
    out[0].values[i] = static_cast<double>(fits ? slot : E * C);
    if (fits) {
      out[1]({slot}) = static_cast<double>(static_cast<std::int64_t>(i) / K);
    }
  }
  return out;
}

/// Hugging Face's _relative_position_bucket, with a key s and a query t.
Arrays relative_buckets(const Arrays&, const Attributes& a) {
  Array y({a.integer("queries"), a.integer("keys")});
  for_each_index(y.shape, [&](const Shape& i) {
    std::int64_t n = a.integer("buckets");
    std::int64_t position = i[1] - i[0];
    if (a.integer("both_directions") != 0) {
      n /= 2;
      y(i) += position > 0 ? static_cast<double>(n) : 0;
      position = std::abs(position);
    } else {
      position = -std::min<std::int64_t>(position, 0);
    }
    const std::int64_t exact = n / 2;
    const double share = std::log(static_cast<double>(position) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(a.integer("distance")) / static_cast<double>(exact));
    const double large = std::floor(1e-6 + static_cast<double>(exact) + share * static_cast<double>(n - exact));
    y(i) += position < exact ? static_cast<double>(position) : std::min(large, static_cast<double>(n - 1));
  });
  return {y};
}

}  // namespace

std::vector<Case> selection_cases() {
  std::vector<Case> all;
  for (const std::int64_t largest : {0, 1}) {
    all.push_back({"top_k",
                   {half({2, 7, 3})},
                   {{"axis", std::int64_t{1}}, {"k", std::int64_t{3}}, {"largest", largest}},
                   top_k,
                   kExact,
                   kAll});
  }
  Case ties{"top_k",
            {given(half({2, 2, 3}), {1, 2, 3, 1, 2, 4, 0.5, -1, 7, 0.5, -1, 7})},
            {{"axis", std::int64_t{1}}, {"k", std::int64_t{2}}, {"largest", std::int64_t{1}}},
            top_k,
            kExact};
  ties.differentiable = false;
  all.push_back(ties);
  for (const std::int64_t capacity : {2, 9}) {
    all.push_back({"expert_slots",
                   {indices({4, 2}, {2, 0, 2, 1, 0, 2, 3, 2})},
                   {{"experts", std::int64_t{5}}, {"capacity", capacity}},
                   expert_slots,
                   kExact});
  }
  for (const std::int64_t both : {0, 1}) {
    all.push_back({"relative_buckets",
                   {},
                   {{"queries", std::int64_t{200}},
                    {"keys", std::int64_t{150}},
                    {"buckets", std::int64_t{32}},
                    {"distance", std::int64_t{128}},
                    {"both_directions", both}},
                   relative_buckets,
                   kExact});
  }
  return all;
}

}  // namespace poprun::testing
