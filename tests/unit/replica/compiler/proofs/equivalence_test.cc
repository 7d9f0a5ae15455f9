/// A step as plain text and as a pipeline of two stages: the forms are equivalent until one of them is damaged.

#include "replica/compiler/proofs/equivalence.h"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/passes.h"
#include "tests/unit/replica/two_stages.h"

namespace poprun::equivalence_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::pipelined;
using testing::plain;

Graph parse(const std::string& text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

std::string verdict(const std::string& plain_text, const std::string& rewritten) {
  const Status status = verify_equivalence(parse(plain_text), parse(rewritten));
  return status ? "" : status.error().message;
}

/// Returns `text` with the first `from` after `behind` replaced by `to`.
std::string replaced(std::string text, std::string_view behind, std::string_view from, std::string_view to) {
  const std::size_t begin = text.find(behind);
  EXPECT_NE(begin, std::string::npos) << behind;
  const std::size_t at = text.find(from, begin);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// Returns the verdict on a damaged pipeline of 7 micro-batches. A pipeline of 400 must be refused, too.
std::string verdict_on_damaged(std::string_view behind, std::string_view from, std::string_view to) {
  EXPECT_FALSE(verify_equivalence(parse(plain(400)), parse(replaced(pipelined(400), behind, from, to))));
  return verdict(plain(7), replaced(pipelined(7), behind, from, to));
}

TEST(Equivalence, AGraphIsEqualToItself) {
  EXPECT_EQ(verdict(plain(7), plain(7)), "");
  EXPECT_EQ(verdict(plain(1), plain(1)), "");
}

TEST(Equivalence, APipelineThatStashesAndRecomputesIsEqual) {
  for (const int micro_batches : {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 50}) {
    EXPECT_EQ(verdict(plain(micro_batches), pipelined(micro_batches)), "") << micro_batches;
  }
}

TEST(Equivalence, AMillionMicroBatchesTakeNoLongerThanFifty) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(verdict(plain(1'000'000, 1'000'000), pipelined(1'000'000, 1'000'000)), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Equivalence, AnotherNumberOfRoundsIsFound) {
  EXPECT_NE(verdict(plain(7), pipelined(8)), "");
  EXPECT_NE(verdict(plain(1'000'000), pipelined(999'999)), "");
  EXPECT_NE(verdict(plain(7, 90), pipelined(7, 91)), "");
  EXPECT_NE(verdict(plain(7, 91), pipelined(7, 90)), "");
}

TEST(Equivalence, TheseGraphsAreOnesThatPassesMayLeave) {
  for (const std::string& text : {plain(7), pipelined(7)}) {
    const Status status = verify_operations(parse(text));
    EXPECT_TRUE(status) << status.error().message;
  }
}

TEST(Equivalence, AStaleWeightIsFoundInTheSecondStep) {
  EXPECT_THAT(verdict_on_damaged("w, v = momentum", "w@1 = copy(w)", "total = copy(total)"),
              AllOf(HasSubstr("in train (run 4)"),
                    HasSubstr("micro-batch 0 of forward.1: mul 'p' of stage 1 reads 'w@1', which "
                              "holds 'w' as initialise writes it in load (run 0) instead of 'w' as "
                              "momentum writes it in train (run 1)")));
}

TEST(Equivalence, AWeightThatIsNeverCopiedIsFound) {
  EXPECT_THAT(verdict_on_damaged("variance = initialise", "w@1 = copy(w)", "variance = copy(variance)"),
              HasSubstr("micro-batch 0 of forward.1: mul 'p' of stage 1 reads 'w@1', which nothing has "
                        "written"));
}

TEST(Equivalence, SwappedMicroBatchesAreFound) {
  EXPECT_THAT(verdict_on_damaged("function train", "call() function=\"backward.1\" micro_batch=1",
                                 "call() function=\"backward.1\" micro_batch=2"),
              HasSubstr("micro-batch 2 of backward.1: accumulate 'sum1' of stage 1 reads 'sum1', "
                        "which holds 'sum1' of micro-batch 0 instead of 'sum1' of micro-batch 1"));
  EXPECT_THAT(verdict_on_damaged("function train", "call() function=\"backward.0\" micro_batch=0",
                                 "call() function=\"backward.0\" micro_batch=1"),
              HasSubstr("micro-batch 1 of backward.0: relu_gradient 'gd' reads 'gr@0', which holds 'gr' of "
                        "micro-batch 0 instead of 'gr' of micro-batch 1"));
  EXPECT_THAT(verdict_on_damaged("function train", "call() function=\"forward.1\" micro_batch=1",
                                 "call() function=\"forward.1\" micro_batch=2"),
              HasSubstr("micro-batch 2 of forward.1: sub 'e' of stage 1 reads 'p', which holds 'p' "
                        "of micro-batch 1 instead of 'p' of micro-batch 2"));
}

TEST(Equivalence, RecomputedDropoutWithANewKeyIsFound) {
  EXPECT_THAT(verdict_on_damaged("d.again = dropout", "key=\"a\"", "key=\"a.again\""),
              HasSubstr("micro-batch 0 of backward.0: dropout 'd.again' has key=\"a.again\" "
                        "rate=0.5, but in the plain job, it has key=\"a\" rate=0.5"));
}

TEST(Equivalence, AStashThatIsTooShortIsFound) {
  EXPECT_THAT(verdict_on_damaged("tensor", "h.stash : f32[3,4]", "h.stash : f32[2,4]"),
              HasSubstr("micro-batch 0 of backward.0: dropout 'd.again' reads 'h.restored', which "
                        "holds 'h' of micro-batch 2 instead of 'h' of micro-batch 0"));
}

TEST(Equivalence, AMissingStashIsFound) {
  EXPECT_THAT(verdict_on_damaged("function forward.0", "h.stash = stash(h)", "h = copy(h)"),
              HasSubstr("micro-batch 0 of backward.0: restore 'h.restored' reads entry 0 of "
                        "'h.stash', which nothing has written"));
  EXPECT_THAT(verdict_on_damaged("function backward.0", "h.restored = restore(h.stash)", "h.restored = copy(h)"),
              HasSubstr("micro-batch 0 of backward.0: dropout 'd.again' reads 'h.restored', which "
                        "holds 'h' of micro-batch 2 instead of 'h' of micro-batch 0"));
}

TEST(Equivalence, AnAccumulationDroppedDoubledOrMovedIsFound) {
  const std::string accumulate = "sum1 = accumulate(sum1, gw1) mean=1";
  EXPECT_THAT(verdict_on_damaged("function backward.1", "@:1:backward " + accumulate, "sum1 = copy(sum1)"),
              HasSubstr("train: accumulate 'sum1@0' reads 'sum1@0', which holds 'sum0' as fill writes it in "
                        "train (run 1) instead of 'sum1' of micro-batch 6"));
  EXPECT_THAT(verdict_on_damaged("function backward.1", accumulate, accumulate + "\n" + accumulate),
              HasSubstr("micro-batch 0 of backward.1: accumulate 'sum1' reads 'sum1', which holds 'sum1' "
                        "of micro-batch 0 instead of 'sum0' as fill writes it in train (run 1)"));
  EXPECT_THAT(verdict_on_damaged("repeat 1\n    call() function=\"forward.1\"", "call() function=\"backward.0\"",
                                 "call() function=\"backward.0\" micro_batch=6\n"
                                 "call() function=\"backward.0\""),
              HasSubstr("micro-batch 6 of backward.0: relu_gradient 'gd' reads 'gr@0', which holds "
                        "'gr' of micro-batch 5 instead of 'gr' of micro-batch 6"));
}

TEST(Equivalence, StatisticsThatACloneUpdatesAgainAreFound) {
  EXPECT_THAT(verdict_on_damaged("function backward.0", "@:0:recomputed r.again = relu(d.again)",
                                 "r.again = relu(d.again)\nmean, variance = batch_norm_update(mean, "
                                 "variance, h.restored, d.again) elements=8 momentum=0.1"),
              HasSubstr("micro-batch 0 of backward.0: batch_norm_update 'mean' reads 'mean', which holds "
                        "'mean' of micro-batch 2 instead of 'mean' as initialise writes it in load (run 0)"));
}

TEST(Equivalence, ACopyOfTheWrongTensorIsFound) {
  EXPECT_THAT(verdict_on_damaged("function train", "r@1, gr@0 = copy(r, gr)", "r@1, gr@0 = copy(h, gr)"),
              HasSubstr("micro-batch 1 of forward.1: mul 'p' of stage 1 reads 'r@1', which holds "
                        "'h' of micro-batch 1 instead of 'r' of micro-batch 1"));
}

TEST(Equivalence, TwoUpdatesAreFound) {
  const std::string update = "w, v = momentum(w, sum1@0, v, rate) momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0";
  EXPECT_THAT(verdict_on_damaged("function train", update, update + "\n" + update),
              HasSubstr("'w' differs after train (run 1): train: momentum 'w' reads 'w', which "
                        "holds 'w' as momentum writes it in train (run 1) instead of 'w' as "
                        "initialise writes it in load (run 0)"));
}

TEST(Equivalence, LabelsOfAnotherBatchAreFound) {
  EXPECT_THAT(verdict_on_damaged("function forward.1", "t = stream_in() fields=[1]", "t = stream_in() fields=[0]"),
              HasSubstr("micro-batch 0 of forward.1: sub 'e' of stage 1 reads 't', which holds 'x' "
                        "of micro-batch 0 instead of 't' of micro-batch 0"));
}

TEST(Equivalence, OutputsOfEvaluationComeInOrder) {
  EXPECT_THAT(verdict_on_damaged("function evaluate.1", "ye = relu(he@1)", "ye = relu(he)"),
              HasSubstr("record 0 of stream 'outputs' differs in evaluate (run 2): it holds 'ye' of "
                        "micro-batch 1 instead of 'ye' of micro-batch 0"));
}

TEST(Equivalence, ARandomOperationOutsideACallIsFound) {
  EXPECT_THAT(verdict_on_damaged("function train", "call() function=\"backward.0\" micro_batch=0\n",
                                 "call() function=\"backward.0\" micro_batch=0\nd = dropout(h) "
                                 "key=\"a\" rate=0.5\nr = relu(d)\n"),
              HasSubstr("train: dropout 'd' runs as micro-batch 0 instead of 2"));
}

constexpr const char* kReduce = "sum1, total = all_reduce(sum1, total) reduction=\"mean\"";
constexpr const char* kBegin = "sum1, total = all_reduce(sum1, total) background=1 reduction=\"mean\"";
constexpr const char* kAwait = "sum1, total = await_all_reduces(sum1, total)";

/// Returns the verdict on the plain job whose all-reduce is replaced by `lines`.
std::string verdict_on_reduction(const std::string& lines) {
  const std::string verdicts[] = {verdict(plain(7), replaced(plain(7), "function train", kReduce, lines)),
                                  verdict(plain(400), replaced(plain(400), "function train", kReduce, lines))};
  EXPECT_EQ(verdicts[0].empty(), verdicts[1].empty());
  return verdicts[0];
}

TEST(Equivalence, AReductionInTheBackgroundIsUsedOnlyWhenItHasBeenAwaited) {
  EXPECT_EQ(verdict_on_reduction(fmt::format("{}\n{}", kBegin, kAwait)), "");
  EXPECT_THAT(verdict_on_reduction(kBegin),
              HasSubstr("train: momentum 'w' uses 'sum1', whose background reduction has not been awaited"));
  EXPECT_THAT(verdict_on_reduction(fmt::format("{}\ntotal = await_all_reduces(total)", kBegin)),
              HasSubstr("train: momentum 'w' uses 'sum1', whose background reduction has not been awaited"));
  EXPECT_THAT(verdict_on_reduction(fmt::format("{}\nsum1 = fill() shape=[4] value=0.0\n{}", kBegin, kAwait)),
              HasSubstr("train: fill 'sum1' uses 'sum1', whose background reduction has not been awaited"));
  EXPECT_THAT(verdict_on_reduction(fmt::format("{}\n{}", kReduce, kAwait)),
              HasSubstr("awaits 'sum1', which is not being reduced"));
  EXPECT_THAT(
      verdict(plain(7), replaced(replaced(plain(7), "function train", kReduce, fmt::format("{}\n{}", kBegin, kAwait)),
                                 "stream=\"step\"", "function evaluate",
                                 "gw1 = all_reduce(gw1) background=1 reduction=\"mean\"\nfunction evaluate")),
      HasSubstr("the background reduction of 'gw1', which train starts, is never awaited"));
}

TEST(Equivalence, AnotherStoredTypeIsFound) {
  EXPECT_THAT(verdict_on_damaged("tensor", "r : f32[4]", "r : f16[4]"),
              HasSubstr("micro-batch 0 of forward.0: relu 'r' produces f16[4], but in the plain job, it produces "
                        "f32[4]"));
}

}  // namespace
}  // namespace poprun::equivalence_test
