#include "collectives/local/call.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

TEST(Call, ListsReplicasAsRanges) {
  EXPECT_EQ(replica_list(std::array<std::size_t, 1>{5}), "replica 5");
  EXPECT_EQ(replica_list(std::array<std::size_t, 5>{0, 1, 2, 5, 7}), "replicas 0-2, 5, 7");
}

TEST(Call, DescribesWhatIsExchanged) {
  EXPECT_EQ(describe(Call{.kind = CallKind::kAllReduce, .reduction = Reduction::kMean, .bytes = 8}),
            "all-reduce (mean) of 8 B");
  EXPECT_EQ(describe(Call{.kind = CallKind::kBroadcast, .root = ReplicaId{2}, .bytes = 17}),
            "broadcast of 17 B from replica 2");
  EXPECT_EQ(describe(Call{.kind = CallKind::kAllocate, .bytes = 4}), "allocate of 4 B");
  EXPECT_EQ(describe(Call{.kind = CallKind::kBarrier}), "barrier");
}

TEST(Call, NamesTheFirstTensorAndCountsTheOthers) {
  Call call{.kind = CallKind::kAllReduce, .reduction = Reduction::kMean, .bytes = 8};
  call.add_name("");
  EXPECT_EQ(describe(call), "all-reduce (mean) of 8 B");
  call.add_name("conv1.weight.gradient");
  EXPECT_EQ(describe(call), "all-reduce (mean) of 8 B ('conv1.weight.gradient')");
  call.add_name("conv1.bias.gradient");
  call.add_name("fc1.weight.gradient");
  EXPECT_EQ(describe(call), "all-reduce (mean) of 8 B ('conv1.weight.gradient' and 2 more)");
}

TEST(Call, CutsALongNameButTellsItFromOthers) {
  const std::string name(70, 'x');
  Call one;
  Call other;
  one.add_name(name + "1");
  other.add_name(name + "2");

  EXPECT_EQ(names_of(one), " ('" + std::string(60, 'x') + "...')");
  EXPECT_EQ(names_of(other), names_of(one));
  EXPECT_FALSE(one == other);
}

TEST(Call, CutsANameBetweenCharacters) {
  std::string name = "x";
  for (int i = 0; i < 35; ++i) {
    name += "\u00e9";
  }
  Call call;

  call.add_name(name);

  EXPECT_EQ(names_of(call), " ('" + name.substr(0, 59) + "...')");
  EXPECT_EQ(cut_to("a\u20ac", 4), "a\u20ac");
  EXPECT_EQ(cut_to("a\u20ac", 3), "a");
  EXPECT_EQ(cut_to("\u20ac", 0), "");
}

TEST(Call, TellsNamesApartByTheirOrder) {
  Call one;
  Call other;
  for (const char* name : {"a", "b", "c"}) {
    one.add_name(name);
  }
  for (const char* name : {"a", "c", "b"}) {
    other.add_name(name);
  }
  EXPECT_FALSE(one == other);
}

TEST(Call, DescribesTimesInSecondsWhereTheyAreWhole) {
  EXPECT_EQ(describe(std::chrono::milliseconds{120'000}), "120 s");
  EXPECT_EQ(describe(std::chrono::milliseconds{250}), "250 ms");
}

TEST(Call, NamesTheMissingInWordsAndAsFacts) {
  const std::array<std::size_t, 6> late = {0, 1, 2, 5, 16, 17};

  const Error error = late_error("all-reduce 17 of replicas 0-31 ('a: replica 9')", late, std::chrono::seconds{2});

  EXPECT_EQ(error.code, ErrorCode::kInfrastructure);
  EXPECT_EQ(error.message,
            "all-reduce 17 of replicas 0-31 ('a: replica 9'): replicas 0-2, 5, 16-17 did not "
            "arrive within 2 s");
  EXPECT_EQ(error.facts.missing, (std::vector<std::uint32_t>{0, 1, 2, 5, 16, 17}));
}

TEST(Call, SaysWhoCallsWhat) {
  const Call sum{.kind = CallKind::kAllReduce, .bytes = 12};
  const Call barrier{.kind = CallKind::kBarrier};

  EXPECT_FALSE(disagreement("call 1", std::array<std::size_t, 2>{0, 1}, std::array{sum, sum}));
  EXPECT_EQ(disagreement("call 17", std::array<std::size_t, 4>{4, 5, 6, 7}, std::array{sum, sum, barrier, sum}),
            "call 17 differs between replicas: replicas 4-5, 7: all-reduce (sum) of 12 B; "
            "replica 6: barrier");
}

TEST(Call, SaysThatOnlyBuffersDiffer) {
  const Call one{.kind = CallKind::kAllReduce, .bytes = 12, .layout = 1};
  const Call other{.kind = CallKind::kAllReduce, .bytes = 12, .layout = 2};

  EXPECT_EQ(disagreement("call 1", std::array<std::size_t, 2>{0, 1}, std::array{one, other}),
            "call 1 differs between replicas in the names, types, sizes or positions of its buffers: "
            "replica 0: all-reduce (sum) of 12 B; replica 1: all-reduce (sum) of 12 B");
}

}  // namespace
}  // namespace poprun::collectives
