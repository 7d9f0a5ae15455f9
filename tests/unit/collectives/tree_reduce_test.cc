#include "collectives/local/tree_reduce.h"

#include <cstddef>
#include <vector>

#include "tests/contract/communicator_contract.h"

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

  static constexpr std::size_t kCount = 2'100;  // Two blocks and a bit.
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

INSTANTIATE_TEST_SUITE_P(Sources, TreeReduce,
                         ::testing::Values(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 13U, 16U, 17U, 24U,
                                           33U));

}  // namespace
}  // namespace poprun::collectives
