/// When steps with given cycles run.

#include "replica/timeline/timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

proto::Step& add_step(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint64_t compute,
                      std::uint64_t link = 0, proto::Links links = proto::LINKS_IN_ORDER) {
  proto::Step& step = *steps.Add();
  step.set_number(static_cast<std::uint32_t>(steps.size()));
  step.mutable_cost()->set_compute_cycles(compute);
  step.mutable_cost()->set_link_cycles(link);
  step.set_links(links);
  return step;
}

/// One line `step lane [begin, end)` per stretch.
std::string timeline_of(const proto::Function& function) {
  std::string text;
  walk(function, [&](const Stretch& stretch) {
    text += fmt::format("{} {} [{}, {})\n", stretch.step.number(),
                        stretch.lane == Lane::kTiles ? "tiles" : "links", stretch.begin.count(),
                        (stretch.begin + stretch.length).count());
  });
  return text;
}

TEST(Timeline, StepsFollowOneAnother) {
  proto::Function function;
  add_step(*function.mutable_steps(), 10);
  add_step(*function.mutable_steps(), 5, 7);

  EXPECT_EQ(timeline_of(function), "1 tiles [0, 10)\n2 tiles [10, 15)\n2 tiles [15, 22)\n");
  EXPECT_EQ(total_cycles(walk(function)), Cycles{22});
}

TEST(Timeline, ARepeatTakesEveryRound) {
  proto::Function function;
  proto::Step& repeat = *function.add_steps();
  repeat.mutable_repeat()->set_count(3);
  add_step(*repeat.mutable_repeat()->mutable_steps(), 4).mutable_cost()->set_flops(100);
  std::vector<std::uint32_t> rounds;

  const proto::Cost total =
      walk(function, [&](const Stretch& stretch) { rounds.push_back(stretch.micro_batch); });

  EXPECT_EQ(total.compute_cycles(), 12U);
  EXPECT_EQ(total.flops(), 300U);
  EXPECT_EQ(rounds, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(Timeline, LinksWorkBesideTheTilesAndTheRestIsWaitedFor) {
  //  tiles  | 1: 10 | 2: 5 | 4: 3 |         wait         | 6: 2 |
  //  links          | begun by 2: 20     | begun by 4: 8 |
  proto::Function function;
  auto& steps = *function.mutable_steps();
  add_step(steps, 10);
  add_step(steps, 0, 20, proto::LINKS_BACKGROUND);
  add_step(steps, 5);
  add_step(steps, 3, 8, proto::LINKS_BACKGROUND);
  add_step(steps, 0, 0, proto::LINKS_AWAITED);
  add_step(steps, 2);

  EXPECT_EQ(timeline_of(function),
            "1 tiles [0, 10)\n"
            "2 links [10, 30)\n"
            "3 tiles [10, 15)\n"
            "4 tiles [15, 18)\n"
            "4 links [30, 38)\n"
            "5 tiles [18, 38)\n"
            "6 tiles [38, 40)\n");
  const proto::Cost total = walk(function);
  EXPECT_EQ(total.background_cycles(), 28U);
  EXPECT_EQ(total.link_cycles(), 20U);
  EXPECT_EQ(total_cycles(total), Cycles{40});
}

TEST(Timeline, NothingIsWaitedForThatIsDone) {
  proto::Function function;
  auto& steps = *function.mutable_steps();
  add_step(steps, 0, 5, proto::LINKS_BACKGROUND);
  add_step(steps, 10);
  add_step(steps, 0, 0, proto::LINKS_AWAITED);

  EXPECT_EQ(timeline_of(function), "1 links [0, 5)\n2 tiles [0, 10)\n");
  EXPECT_EQ(walk(function).link_cycles(), 0U);
}

}  // namespace
}  // namespace poprun
