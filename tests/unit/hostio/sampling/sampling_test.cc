#include "hostio/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::hostio::sampling_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Items = std::vector<std::uint64_t>;

struct Job {
  std::uint64_t items;
  std::uint32_t replicas;
  std::uint32_t micro_batch;
  std::uint32_t accumulation;
  std::uint64_t seed = 42;
};

proto::Selection selection(const Job& job, proto::Split split, std::uint32_t replica = 0) {
  proto::Selection selection;
  selection.set_source("any");
  selection.set_split(split);
  selection.set_seed(job.seed);
  selection.set_replica(replica);
  selection.set_replica_count(job.replicas);
  selection.set_micro_batch_size(job.micro_batch);
  selection.set_micro_batches_per_step(job.accumulation);
  return selection;
}

/// Returns the items of a batch without padding.
Items batch(const Job& job, proto::Split split, std::uint32_t replica, std::uint64_t sequence) {
  const Result<Sampler> sampler = Sampler::make(selection(job, split, replica), job.items);
  EXPECT_TRUE(sampler) << sampler.error().message;
  Items items(job.micro_batch);
  items.resize(sampler->items_of(sequence, items));
  return items;
}

/// Returns all items of one training step, in the order of the picture in sampling.h.
Items global_batch(const Job& job, std::uint64_t step) {
  Items all;
  for (std::uint64_t m = 0; m < job.accumulation; ++m) {
    for (std::uint32_t replica = 0; replica < job.replicas; ++replica) {
      const Items items = batch(job, proto::SPLIT_TRAIN, replica, step * job.accumulation + m);
      all.insert(all.end(), items.begin(), items.end());
    }
  }
  return all;
}

std::string complaint(const proto::Selection& selection, std::uint64_t items) {
  const Result<Sampler> sampler = Sampler::make(selection, items);
  if (sampler) {
    return "no error";
  }
  EXPECT_EQ(sampler.error().code, ErrorCode::kUsage);
  return sampler.error().message;
}

TEST(Sampling, EvaluationDealsItemsInOrderAndPadsTheLastBatches) {
  // 7 items, 2 replicas, micro-batches of 2:   | 0 1 | 2 3 | 4 5 | 6 - |
  const Job job = {.items = 7, .replicas = 2, .micro_batch = 2, .accumulation = 1};
  EXPECT_EQ(evaluation_batches(7, selection(job, proto::SPLIT_TEST)), 2U);
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 1, 0), ElementsAre(2, 3));
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 0, 1), ElementsAre(4, 5));
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 1, 1), ElementsAre(6));
  // Training items that are used once are distributed in the same way.
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN_ONCE, 1, 0), ElementsAre(2, 3));
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN_ONCE, 1, 1), ElementsAre(6));
}

TEST(Sampling, EvaluationGivesEveryReplicaAsManyBatches) {
  // Three replicas share one item, so two of them get only padding.
  const Job job = {.items = 1, .replicas = 3, .micro_batch = 2, .accumulation = 1};
  EXPECT_EQ(evaluation_batches(1, selection(job, proto::SPLIT_TEST)), 1U);
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 0, 0), ElementsAre(0));
  EXPECT_THAT(batch(job, proto::SPLIT_TEST, 2, 0), IsEmpty());
}

TEST(Sampling, PaddingIsItemsFromTheFirstOneOn) {
  // 3 items, 2 replicas, micro-batches of 4:   | 0 1 2 + 0 | + 1 2 0 1 |
  const Job job = {.items = 3, .replicas = 2, .micro_batch = 4, .accumulation = 1};
  Items items(4);
  EXPECT_EQ(Sampler::make(selection(job, proto::SPLIT_TEST, 0), 3)->items_of(0, items), 3U);
  EXPECT_THAT(items, ElementsAre(0, 1, 2, 0));
  EXPECT_EQ(Sampler::make(selection(job, proto::SPLIT_TEST, 1), 3)->items_of(0, items), 0U);
  EXPECT_THAT(items, ElementsAre(1, 2, 0, 1));
}

TEST(Sampling, TrainingCutsTheEpochAsDrawn) {
  // 10 items in global batches of 2 x 1 x 2 make two steps per epoch; the last two positions are left out.
  const Job job = {.items = 10, .replicas = 2, .micro_batch = 1, .accumulation = 2};
  EXPECT_EQ(steps_per_epoch(10, selection(job, proto::SPLIT_TRAIN)), 2U);
  Items second_epoch = global_batch(job, 2);
  const Items rest = global_batch(job, 3);
  second_epoch.insert(second_epoch.end(), rest.begin(), rest.end());

  // Micro-batch 5 is the second micro-batch of step 2, which is the first step of epoch 1.
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN, 0, 5), ElementsAre(second_epoch[2]));
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN, 1, 5), ElementsAre(second_epoch[3]));
}

TEST(Sampling, SequentialTrainingTakesItemsAsTheDataHasThem) {
  // 2 replicas, 2 micro-batches and 2 items per micro-batch make 8 items per step; the last of 17 items is left out.
  proto::Selection wanted =
      selection({.items = 17, .replicas = 2, .micro_batch = 2, .accumulation = 2}, proto::SPLIT_TRAIN, 1);
  wanted.set_sequential(true);
  const Result<Sampler> sampler = Sampler::make(wanted, 17);
  ASSERT_TRUE(sampler);
  Items items(2);
  const auto expect = [&](std::uint64_t sequence, std::uint64_t first) {
    sampler->items_of(sequence, items);
    EXPECT_THAT(items, ElementsAre(first, first + 1)) << "batch " << sequence;
  };
  expect(0, 2);
  expect(1, 6);
  expect(2, 10);
  expect(3, 14);
  expect(4, 2);  // The second epoch has the same order as the first.
}

TEST(Sampling, StaysTheSameForEver) {
  // These literal numbers must never change: the results of all earlier jobs depend on them.
  const Job job = {.items = 10, .replicas = 1, .micro_batch = 10, .accumulation = 1};
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN, 0, 0), ElementsAre(4, 9, 7, 5, 0, 3, 2, 1, 8, 6));
  EXPECT_THAT(batch(job, proto::SPLIT_TRAIN, 0, 1), ElementsAre(4, 2, 0, 6, 7, 8, 5, 3, 1, 9));
}

TEST(Sampling, DiffersByEpochAndBySeed) {
  const Job job = {.items = 100, .replicas = 1, .micro_batch = 100, .accumulation = 1};
  Job other = job;
  other.seed = 43;
  EXPECT_NE(batch(job, proto::SPLIT_TRAIN, 0, 0), batch(job, proto::SPLIT_TRAIN, 0, 1));
  EXPECT_NE(batch(job, proto::SPLIT_TRAIN, 0, 0), batch(other, proto::SPLIT_TRAIN, 0, 0));
}

TEST(Sampling, EveryNumberOfItemsIsPermuted) {
  std::vector<std::uint64_t> numbers(70);
  std::iota(numbers.begin(), numbers.end(), 1U);
  numbers.insert(numbers.end(), {kShuffledMax, kShuffledMax + 1, 4096, 5000});
  for (const std::uint64_t items : numbers) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t position = 0; position < items; ++position) {
      seen.insert(permuted(/*key=*/9, /*epoch=*/items, items, position));
    }
    EXPECT_EQ(seen.size(), items);
    EXPECT_EQ(*seen.rbegin(), items - 1);
  }
}

TEST(Sampling, SpreadsItemsOverPositionsEvenly) {
  // In 6,000 epochs of 6 items, each item is at each position 1,000 times, within five standard deviations of 29.
  std::vector<std::vector<int>> counts(6, std::vector<int>(6));
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    for (std::uint64_t position = 0; position < 6; ++position) {
      ++counts[position][permuted(/*key=*/1, epoch, 6, position)];
    }
  }
  for (const auto& row : counts) {
    for (const int count : row) {
      EXPECT_NEAR(count, 1000, 145);
    }
  }
}

TEST(Sampling, TheItemsOfAStepDoNotDependOnTheNumberOfReplicas) {
  const Job few = {.items = 1000, .replicas = 2, .micro_batch = 16, .accumulation = 2};
  const Job many = {.items = 1000, .replicas = 16, .micro_batch = 2, .accumulation = 2};
  for (std::uint64_t step = 0; step < 40; ++step) {
    Items a = global_batch(few, step);
    Items b = global_batch(many, step);
    std::ranges::sort(a);
    std::ranges::sort(b);
    EXPECT_EQ(a, b) << step;
  }
}

/// Properties of every job.
class SamplingProperty : public ::testing::TestWithParam<Job> {
 protected:
  Job job_ = GetParam();
};

TEST_P(SamplingProperty, NoItemComesTwiceInAnEpoch) {
  const Result<std::uint64_t> steps = steps_per_epoch(job_.items, selection(job_, proto::SPLIT_TRAIN));
  ASSERT_TRUE(steps);
  for (const std::uint64_t epoch : {0U, 1U, 5U}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t step = 0; step < *steps; ++step) {
      for (const std::uint64_t item : global_batch(job_, epoch * *steps + step)) {
        EXPECT_LT(item, job_.items);
        EXPECT_TRUE(seen.insert(item).second) << item;
      }
    }
    const std::uint64_t global = job_.replicas * job_.micro_batch * job_.accumulation;
    EXPECT_EQ(seen.size(), *steps * global);
    EXPECT_LT(job_.items - seen.size(), global);
  }
}

TEST_P(SamplingProperty, EvaluationCoversEachItemOnce) {
  const Result<std::uint64_t> batches = evaluation_batches(job_.items, selection(job_, proto::SPLIT_TEST));
  ASSERT_TRUE(batches);
  Items seen;
  for (std::uint32_t replica = 0; replica < job_.replicas; ++replica) {
    for (std::uint64_t sequence = 0; sequence < *batches; ++sequence) {
      std::ranges::copy(batch(job_, proto::SPLIT_TEST, replica, sequence), std::back_inserter(seen));
    }
  }
  std::ranges::sort(seen);
  Items all(job_.items);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_LT(*batches * job_.replicas * job_.micro_batch - job_.items, job_.replicas * job_.micro_batch);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SamplingProperty,
    ::testing::Values(Job{.items = 1, .replicas = 1, .micro_batch = 1, .accumulation = 1},
                      Job{.items = 7, .replicas = 3, .micro_batch = 2, .accumulation = 1},
                      Job{.items = 64, .replicas = 4, .micro_batch = 4, .accumulation = 4},
                      Job{.items = 100, .replicas = 7, .micro_batch = 3, .accumulation = 2},
                      Job{.items = 257, .replicas = 16, .micro_batch = 1, .accumulation = 3, .seed = 0}),
    [](const auto& parameter) { return std::to_string(parameter.param.items) + "Items"; });

TEST(Sampling, SaysThatADatasetIsSmallerThanOneGlobalBatch) {
  const Job job = {.items = 500, .replicas = 16, .micro_batch = 16, .accumulation = 4};
  EXPECT_THAT(complaint(selection(job, proto::SPLIT_TRAIN), 500),
              AllOf(HasSubstr("500 training items"), HasSubstr("replicas x samples x micro-batches = 16 x 16 x 4")));
  EXPECT_EQ(complaint(selection(job, proto::SPLIT_TRAIN), 1024), "no error");
}

TEST(Sampling, RefusesAGlobalBatchThatOverflows) {
  constexpr std::uint32_t kMost = 0xFFFFFFFF;
  const Job job = {.items = 60'000, .replicas = kMost, .micro_batch = kMost, .accumulation = kMost};
  EXPECT_THAT(complaint(selection(job, proto::SPLIT_TRAIN), 60'000), HasSubstr("global batch"));
}

TEST(Sampling, NamesTheFieldThatCanNeverWork) {
  const Job good = {.items = 8, .replicas = 2, .micro_batch = 2, .accumulation = 1};
  proto::Selection bad = selection(good, proto::SPLIT_TRAIN);
  bad.set_replica(2);
  EXPECT_THAT(complaint(bad, 8), HasSubstr("replica must be < 2, but it is 2"));
  bad = selection(good, proto::SPLIT_TRAIN);
  bad.set_replica_count(0);
  EXPECT_THAT(complaint(bad, 8), HasSubstr("replica_count must be > 0"));
  bad = selection(good, proto::SPLIT_TRAIN);
  bad.set_micro_batch_size(0);
  EXPECT_THAT(complaint(bad, 8), HasSubstr("micro_batch_size must be > 0"));
  bad = selection(good, proto::SPLIT_TEST);
  bad.set_micro_batches_per_step(0);
  EXPECT_THAT(complaint(bad, 8), HasSubstr("micro_batches_per_step must be > 0"));
  bad = selection(good, proto::SPLIT_UNSPECIFIED);
  EXPECT_THAT(complaint(bad, 8), HasSubstr("split"));
}

TEST(Permutation, EveryOrderOfFewItemsIsEquallyLikely) {
  for (std::uint64_t items = 3; items <= 7; ++items) {
    std::uint64_t orders = 1;
    for (std::uint64_t i = 2; i <= items; ++i) {
      orders *= i;
    }
    constexpr std::uint64_t kTimes = 20;
    std::map<Items, double> seen;
    for (std::uint64_t epoch = 0; epoch < orders * kTimes; ++epoch) {
      seen[shuffled(7, epoch, items)] += 1;
    }
    double chi_squared = static_cast<double>(orders - seen.size()) * kTimes;
    for (const auto& [order, times] : seen) {
      chi_squared += (times - kTimes) * (times - kTimes) / kTimes;
    }
    const auto freedom = static_cast<double>(orders - 1);
    EXPECT_LT(chi_squared, freedom + 4 * std::sqrt(2 * freedom) + 8) << items;
  }
}

TEST(Permutation, HasBothParities) {
  for (const std::uint64_t items : {std::uint64_t{16}, std::uint64_t{63}, std::uint64_t{64}, std::uint64_t{256},
                                    std::uint64_t{1023}, kShuffledMax}) {
    int odd = 0;
    for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
      Items order = shuffled(42, epoch, items);
      bool is_odd = false;
      for (std::uint64_t i = 0; i < items; ++i) {
        while (order[i] != i) {
          std::swap(order[i], order[order[i]]);
          is_odd = !is_odd;
        }
      }
      odd += is_odd ? 1 : 0;
    }
    EXPECT_NEAR(odd, 50, 20) << items;
  }
}

TEST(Permutation, OfABatchIsThatOfItsPositions) {
  const Job job = {.items = 50, .replicas = 1, .micro_batch = 50, .accumulation = 1};
  const Items items = batch(job, proto::SPLIT_TRAIN, 0, 3);
  std::set<std::uint64_t> all(items.begin(), items.end());
  EXPECT_EQ(all.size(), 50U);
  EXPECT_NE(items, batch(job, proto::SPLIT_TRAIN, 0, 4));
}

}  // namespace
}  // namespace poprun::hostio::sampling_test
