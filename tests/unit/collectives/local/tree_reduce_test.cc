#include "collectives/local/tree_reduce.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "collectives/patterns/canonical_tree.h"
#include "tests/contract/values.h"

namespace poprun::collectives {
namespace {

/// The parameter is the number of sources.
class TreeReduce : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    for (std::size_t r = 0; r < GetParam(); ++r) {
      data_.emplace_back(kCount);
      contract::fill_rough(r, data_.back());
      targets_.push_back(std::as_writable_bytes(std::span(data_.back())).data());
      sources_.push_back(targets_.back());
    }
  }

  static constexpr std::size_t kCount = 2'100;  // Slightly more than two blocks.
  std::vector<std::vector<float>> data_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> targets_;
};

TEST_P(TreeReduce, WritesTheCanonicalSumOverItsSources) {
  tree_reduce(Reduction::kSum, ElementType::kF32, sources_, targets_, kCount);

  for (const std::vector<float>& target : data_) {
    contract::expect_rough_result(Reduction::kSum, GetParam(), target);
  }
}

TEST_P(TreeReduce, WritesElsewhereAndKeepsItsSources) {
  const std::vector<std::vector<float>> before = data_;
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
    std::vector<float> target(kCount + 1, 7.0F);
    std::byte* const pointer = std::as_writable_bytes(std::span(target)).data();

    tree_reduce(reduction, ElementType::kF32, sources_, std::span(&pointer, 1), kCount);

    contract::expect_rough_result(reduction, GetParam(), std::span(target).first(kCount));
    EXPECT_EQ(target[kCount], 7.0F);
  }
  EXPECT_EQ(data_, before);
}

TEST_P(TreeReduce, TakesEveryTypeInPlaceAndElsewhere) {
  for (const contract::TypedValues& values : contract::kTypedValues) {
    const std::size_t bytes = kCount * size_of(values.type);
    for (const Reduction reduction : contract::reductions_of(values.type)) {
      std::vector<std::byte> target(bytes);
      targets_.back() = target.data();
      for (std::size_t r = 0; r < GetParam(); ++r) {
        contract::fill_typed(values, r, std::as_writable_bytes(std::span(data_[r])).first(bytes));
      }

      tree_reduce(reduction, values.type, sources_, targets_, kCount);

      for (const std::byte* result : targets_) {
        contract::expect_typed_result(values, reduction, GetParam(), {result, bytes});
      }
    }
  }
}

// The replicas are distributed to three hosts in pairs, so that most subtrees contain one or two replicas.
TEST_P(TreeReduce, GivesTheSameBitsInTwoSteps) {
  constexpr std::size_t kHosts = 3;
  std::vector<Subtree> subtrees;
  for (std::size_t host = 0; host < kHosts; ++host) {
    std::vector<std::size_t> replicas;
    for (std::size_t r = 0; r < GetParam(); ++r) {
      if (r / 2 % kHosts == host) {
        replicas.push_back(r);
      }
    }
    std::ranges::copy(subtrees_of(replicas, GetParam()), std::back_inserter(subtrees));
  }
  std::ranges::sort(subtrees, {}, &Subtree::first);
  for (const contract::TypedValues& values : contract::kTypedValues) {
    const std::size_t bytes = kCount * size_of(values.type);
    for (std::size_t r = 0; r < GetParam(); ++r) {
      contract::fill_typed(values, r, std::as_writable_bytes(std::span(data_[r])).first(bytes));
    }
    for (const Reduction reduction : contract::reductions_of(values.type)) {
      std::vector<std::vector<std::byte>> sums;
      std::vector<const std::byte*> places;
      std::vector<std::size_t> counts;
      for (const Subtree& subtree : subtrees) {
        sums.emplace_back(kCount * kSumBytes);
        reduce_subtree(reduction, values.type, std::span(sources_).subspan(subtree.first, subtree.count),
                       sums.back().data(), kCount);
        places.push_back(sums.back().data());
        counts.push_back(subtree.count);
      }
      std::vector<std::byte> target(bytes);

      combine_subtrees(reduction, values.type, places, counts, target.data(), kCount);

      contract::expect_typed_result(values, reduction, GetParam(), target);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, TreeReduce,
                         ::testing::Values(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 13U, 16U, 17U, 24U, 33U));

struct Vector {
  ElementType type;
  Reduction reduction;
  std::vector<std::uint32_t> values;  ///< Bits, one per replica.
  std::uint32_t result;
};

TEST(TreeReduceVectors, AgreeWithAnIndependentProgram) {
  const std::vector<Vector> vectors = {
#include "tests/contract/canonical_tree_vectors.inc"
  };
  ASSERT_EQ(vectors.size(), 52U);
  for (const Vector& vector : vectors) {
    std::vector<const std::byte*> sources;
    for (const std::uint32_t& value : vector.values) {  // Little-endian: a half is its first bytes.
      sources.push_back(std::as_bytes(std::span(&value, 1)).data());
    }
    std::uint32_t result = 0;
    std::byte* const target = std::as_writable_bytes(std::span(&result, 1)).data();

    tree_reduce(vector.reduction, vector.type, sources, std::span(&target, 1), 1);

    EXPECT_EQ(result, vector.result) << vector.values.size() << " replicas";
  }
}

}  // namespace
}  // namespace poprun::collectives
