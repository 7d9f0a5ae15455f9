/// Timelines: when steps with given cycles run.

#include "replica/program/timeline.h"

#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/pipeline_program.h"

namespace poprun {
namespace {

using testing::add_execute;
using ::testing::ElementsAre;
using testing::pipeline_program;
using testing::program_of_ipus;
using testing::StageTime;
using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

proto::Step& add_step(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint64_t compute,
                      std::uint64_t link = 0, proto::Links links = proto::LINKS_IN_ORDER) {
  proto::Step& step = *steps.Add();
  step.set_number(static_cast<std::uint32_t>(steps.size()));
  step.mutable_cost()->set_compute_cycles(compute);
  step.mutable_cost()->set_link_cycles(link);
  step.set_links(links);
  return step;
}

/// Walks a function on one IPU.
CallTime walk_alone(const proto::Function& function, const StretchVisitor& visit = nullptr) {
  return walk(program_of_ipus(1), function, visit);
}

proto::Cost cost_of(const proto::Function& function) {
  return walk_alone(function).busy.at(0);
}

const char* name_of(Lane lane) {
  return lane == Lane::kTiles ? "tiles" : lane == Lane::kLinks ? "links" : "I/O";
}

/// Returns one line `step lane [begin, end)` per stretch.
std::string timeline_of(const proto::Function& function, const Program& program = program_of_ipus(1)) {
  std::string text;
  walk(program, function, [&](const Stretch& stretch) {
    text += fmt::format("{} {} [{}, {})\n", stretch.step.number(), name_of(stretch.lane), stretch.begin.count(),
                        (stretch.begin + stretch.length).count());
  });
  return text;
}

TEST(Timeline, StepsFollowOneAnother) {
  proto::Function function;
  add_step(*function.mutable_steps(), 10);
  add_step(*function.mutable_steps(), 5, 7);

  EXPECT_EQ(timeline_of(function), "1 tiles [0, 10)\n2 tiles [10, 15)\n2 tiles [15, 22)\n");
  EXPECT_EQ(walk_alone(function).length, Cycles{22});
  EXPECT_EQ(total_cycles(cost_of(function)), Cycles{22});
}

TEST(Timeline, ARepeatTakesEveryRound) {
  proto::Function function;
  proto::Step& repeat = *function.add_steps();
  repeat.mutable_repeat()->set_count(3);
  add_step(*repeat.mutable_repeat()->mutable_steps(), 4).mutable_cost()->set_flops(100);

  const proto::Cost total = cost_of(function);

  EXPECT_EQ(total.compute_cycles(), 12U);
  EXPECT_EQ(total.flops(), 300U);
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
  const proto::Cost total = cost_of(function);
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
  EXPECT_EQ(cost_of(function).link_cycles(), 0U);
}

proto::Step& add_copy(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t from, std::uint32_t to,
                      std::uint64_t cycles) {
  proto::Step& step = *steps.Add();
  step.mutable_copy()->add_from(from);
  step.mutable_copy()->add_to(to);
  step.mutable_cost()->set_link_cycles(cycles);
  return step;
}

TEST(Timeline, ACopyWaitsForTheLatestOfItsIpusAndForNoOther) {
  //  IPU 0 | 10 | idle | copy 5 | 1 |
  //  IPU 1 | 20        | copy 5 |
  //  IPU 2 | 7 |
  Program program = program_of_ipus(3);
  proto::Function function;
  auto& steps = *function.mutable_steps();
  add_execute(steps, 0, 10);
  add_execute(steps, 1, 20);
  add_copy(steps, 0, 1, 5);
  add_execute(steps, 0, 1);
  add_execute(steps, 2, 7);

  const CallTime time = walk(program, function);

  EXPECT_EQ(time.length, Cycles{26});
  EXPECT_EQ(time.busy_cycles(0), Cycles{16});
  EXPECT_EQ(time.idle_cycles(0), Cycles{10});
  EXPECT_EQ(time.busy_cycles(1), Cycles{25});
  EXPECT_EQ(time.busy_cycles(2), Cycles{7});
  EXPECT_DOUBLE_EQ(time.utilisation(), (16. + 25 + 7) / (3 * 26));
}

/// Returns a Program with one tensor per IPU, followed by one remote buffer per IPU.
Program program_with_remote_buffers(std::uint32_t ipus) {
  Program program = program_of_ipus(ipus);
  for (std::uint32_t ipu = 0; ipu < ipus; ++ipu) {
    proto::Placement& placement = *program.add_tensors()->mutable_placement();
    placement.set_ipu(ipu);
    placement.set_memory(proto::MEMORY_STREAMING);
  }
  return program;
}

/// Adds an input from the host through I/O tiles, which takes 2 further cycles to exchange data with the other tiles.
proto::Step& add_input(Steps& steps, std::uint32_t ipu, std::uint64_t cycles) {
  proto::Step& step = *steps.Add();
  step.set_number(static_cast<std::uint32_t>(steps.size()));
  step.mutable_stream_in()->add_tensors(ipu);
  step.mutable_cost()->set_host_cycles(cycles);
  step.mutable_cost()->set_exchange_cycles(2);
  step.set_transfer(proto::TRANSFER_IN);
  return step;
}

struct Entry {
  std::uint32_t ipu = 0;
  std::int32_t entry = 0;
};

/// Adds a load from an entry of the remote buffer, which is tensor `remote`, through I/O tiles.
void add_load(Steps& steps, const Entry& entry, std::uint32_t remote, std::uint64_t cycles) {
  proto::Step& step = add_input(steps, entry.ipu, 0);
  step.mutable_copy()->add_from(remote);
  step.mutable_copy()->add_from_entries(entry.entry);
  step.mutable_copy()->add_to(entry.ipu);
  step.mutable_cost()->set_streaming_cycles(cycles);
}

/// Adds a store to an entry of the remote buffer.
void add_store(Steps& steps, const Entry& entry, std::uint32_t remote, std::uint64_t cycles) {
  proto::Step& step = add_input(steps, entry.ipu, 0);
  step.mutable_copy()->add_from(entry.ipu);
  step.mutable_copy()->add_to(remote);
  step.mutable_copy()->add_to_entries(entry.entry);
  step.mutable_cost()->set_streaming_cycles(cycles);
  step.set_transfer(proto::TRANSFER_OUT);
}

TEST(IoTiles, FetchTheNextMicroBatchWhileThisOneIsComputed) {
  //  tiles | wait 10 | 2 | compute 20 | 2 | compute 20 | 2 | compute 20 |
  //  I/O   | in 10   |   | in 10  |       | in 10  |
  proto::Function function;
  proto::Repeat& repeat = *function.add_steps()->mutable_repeat();
  repeat.set_count(3);
  add_input(*repeat.mutable_steps(), 0, 10);
  add_step(*repeat.mutable_steps(), 20);

  // The third round is identical to the second, so it is not listed separately.
  EXPECT_EQ(timeline_of(function),
            "1 I/O [0, 10)\n"
            "1 tiles [0, 10)\n"
            "1 tiles [10, 12)\n"
            "2 tiles [12, 32)\n"
            "1 I/O [12, 22)\n"
            "1 tiles [32, 34)\n"
            "2 tiles [34, 54)\n"
            "1 I/O [34, 44)\n"
            "1 tiles [54, 56)\n"
            "2 tiles [56, 76)\n");
  const proto::Cost total = cost_of(function);
  EXPECT_EQ(total.io_cycles(), 30U);
  EXPECT_EQ(total.host_cycles(), 10U) << "waiting";
  EXPECT_EQ(total_cycles(total), Cycles{76});
}

TEST(IoTiles, LoadBeforeTheyStoreWhatHasNothingToDoWithIt) {
  //  tiles | wait 10   | 2 | compute 30 | 2 | 2 | 5 | wait 3 | 2 | wait 20 | 2 |
  //  I/O   | load #0   |   | load #1 |      | store #0 .. |      | store #1 | load #1 |
  const Program program = program_with_remote_buffers(1);
  proto::Function function;
  Steps& steps = *function.mutable_steps();
  add_load(steps, {.entry = 0}, 1, 10);
  add_step(steps, 30);
  add_store(steps, {.entry = 0}, 1, 10);
  add_load(steps, {.entry = 1}, 1, 10);
  add_step(steps, 5);
  add_store(steps, {.entry = 1}, 1, 10);
  add_load(steps, {.entry = 1}, 1, 10);

  EXPECT_EQ(timeline_of(function, program),
            "1 I/O [0, 10)\n"
            "1 tiles [0, 10)\n"
            "1 tiles [10, 12)\n"
            "2 tiles [12, 42)\n"
            "3 tiles [42, 44)\n"
            "3 I/O [44, 54)\n"
            "4 I/O [12, 22)\n"
            "4 tiles [44, 46)\n"
            "5 tiles [46, 51)\n"
            "6 tiles [51, 54)\n"
            "6 tiles [54, 56)\n"
            "6 I/O [56, 66)\n"
            "7 I/O [66, 76)\n"
            "7 tiles [56, 76)\n"
            "7 tiles [76, 78)\n");
}

TEST(IoTiles, StoreBeforeALoadThatDoesNotFitInFrontOfIt) {
  const Program program = program_with_remote_buffers(1);
  proto::Function function;
  Steps& steps = *function.mutable_steps();
  add_step(steps, 5);
  add_store(steps, {.entry = 0}, 1, 10);
  add_load(steps, {.entry = 1}, 1, 8);

  EXPECT_EQ(timeline_of(function, program),
            "1 tiles [0, 5)\n"
            "2 tiles [5, 7)\n"
            "2 I/O [7, 17)\n"
            "3 I/O [17, 25)\n"
            "3 tiles [7, 25)\n"
            "3 tiles [25, 27)\n");
}

TEST(IoTiles, EndTheStepWhenTheLastTransferHasEnded) {
  const Program program = program_with_remote_buffers(1);
  proto::Function function;
  add_step(*function.mutable_steps(), 5);
  add_store(*function.mutable_steps(), {.entry = 0}, 1, 10);

  const CallTime time = walk(program, function);

  EXPECT_EQ(time.length, Cycles{17});
  EXPECT_EQ(time.busy_cycles(0), Cycles{7});
  EXPECT_EQ(time.idle_cycles(0), Cycles{10});
}

TEST(IoTiles, KnowTheEntriesOfTheFunctionThatIsCalled) {
  // A function that stores entry 0 stores entry 1 if it is called with entry 1.
  for (const std::int32_t loaded : {0, 1}) {
    Program program = program_with_remote_buffers(1);
    proto::Function& called = *program.add_functions();
    called.set_name("called");
    add_store(*called.mutable_steps(), {.entry = 0}, 1, 10);
    proto::Function function;
    add_step(*function.mutable_steps(), 40);
    proto::Call& call = *function.add_steps()->mutable_call();
    call.set_function("called");
    call.set_entry(1);
    add_load(*function.mutable_steps(), {.entry = loaded}, 1, 10);
    std::int64_t begin = 0;
    walk(program, function, [&](const Stretch& bar) { begin = bar.lane == Lane::kIo ? bar.begin.count() : begin; });
    EXPECT_EQ(begin, loaded == 0 ? 0 : 52) << "entry " << loaded;
  }
}

TEST(Timeline, AStretchKnowsWhatItBelongsTo) {
  Program program = program_of_ipus(2);
  proto::Function& part = *program.add_functions();
  part.set_name("part");
  add_execute(*part.mutable_steps(), 1, 4);
  proto::Function function;
  function.set_name("all");
  proto::Repeat& repeat = *function.add_steps()->mutable_repeat();
  repeat.set_count(5);
  repeat.add_steps()->mutable_call()->set_function("part");
  repeat.mutable_steps(0)->mutable_call()->set_micro_batch(3);
  add_execute(*function.mutable_steps(), 1, 6);
  std::vector<std::string> seen;

  walk(program, function, [&](const Stretch& bar) {
    seen.push_back(fmt::format("{} on {} at {}: micro-batch {}, {} times every {}", bar.function.name(), bar.ipu,
                               bar.begin.count(), bar.micro_batch, bar.count, bar.distance.count()));
  });

  EXPECT_THAT(seen, ElementsAre("part on 1 at 0: micro-batch 3, 1 times every 0",
                                "part on 1 at 4: micro-batch 4, 4 times every 4",
                                "all on 1 at 20: micro-batch 0, 1 times every 0"));
}

/// Adds random steps of all kinds on three IPUs.
class RandomSteps {
 public:
  explicit RandomSteps(std::uint32_t seed) : random_(seed) {}

  void add(int count, google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (int k = 0; k < count; ++k) {
      switch (below(7)) {
        case 5:
          add_input(steps, below(3), 1 + below(30));
          break;
        case 6:
          transfer(steps, below(3));
          break;
        case 0:
          add_copy(steps, below(3), below(3), below(20));
          break;
        case 1:
          begin_exchange(steps, below(3));
          break;
        case 2:
          steps.Add()->mutable_call()->set_function("called");
          steps.rbegin()->mutable_call()->set_micro_batch(below(7));
          break;
        default:
          add_execute(steps, below(3), below(30));
      }
    }
  }

 private:
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  /// Adds a load or a store. The remote buffer of IPU k is tensor k + 3.
  void transfer(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t ipu) {
    const Entry entry{ipu, static_cast<std::int32_t>(below(2))};
    const std::uint64_t cycles = 1 + below(30);
    below(2) == 0 ? add_load(steps, entry, ipu + 3, cycles) : add_store(steps, entry, ipu + 3, cycles);
  }

  /// Begins an exchange in the background, and may wait for it.
  void begin_exchange(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t ipu) {
    proto::Step& begin = *steps.Add();
    begin.mutable_all_reduce()->add_tensors(ipu);
    begin.mutable_cost()->set_link_cycles(below(40));
    begin.set_links(proto::LINKS_BACKGROUND);
    if (below(2) == 0) {
      add_execute(steps, ipu, below(30));
      proto::Step& await = *steps.Add();
      await.mutable_await_all_reduces()->add_tensors(ipu);
      await.set_links(proto::LINKS_AWAITED);
    }
  }

  std::mt19937 random_;
};

/// (lane, IPU, begin, length, micro-batch) of every bar.
using Bars = std::vector<std::tuple<Lane, std::uint32_t, std::int64_t, std::int64_t, std::uint64_t>>;

Bars bars_of(const Program& program, const proto::Function& function) {
  Bars bars;
  walk(program, function, [&](const Stretch& bar) {
    for (std::uint64_t k = 0; k < bar.count; ++k) {
      const Cycles begin = bar.begin + bar.distance * static_cast<std::int64_t>(k);
      bars.emplace_back(bar.lane, bar.ipu, begin.count(), bar.length.count(), bar.micro_batch + k);
    }
  });
  std::ranges::sort(bars);
  return bars;
}

class TimelineProperty : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(TimelineProperty, RoundsWalkedAsOneAreTheRoundsWalkedOneByOne) {
  Program program = program_with_remote_buffers(3);
  RandomSteps random(GetParam());
  proto::Function& called = *program.add_functions();
  called.set_name("called");
  add_execute(*called.mutable_steps(), GetParam() % 3, 11);
  add_execute(*called.mutable_steps(), GetParam() % 3, 5);
  proto::Function together;
  random.add(4, *together.mutable_steps());
  proto::Function one_by_one = together;
  proto::Repeat& repeat = *together.add_steps()->mutable_repeat();
  repeat.set_count(40);
  random.add(8, *repeat.mutable_steps());
  for (std::uint32_t round = 0; round < repeat.count(); ++round) {
    // Each call runs one round, and passes the round's number as the micro-batch.
    proto::Function& wrapped = *program.add_functions();
    wrapped.set_name(fmt::format("round {}", round));
    *wrapped.mutable_steps() = repeat.steps();
    one_by_one.add_steps()->mutable_call()->set_function(wrapped.name());
    one_by_one.mutable_steps()->rbegin()->mutable_call()->set_micro_batch(round);
  }
  proto::Function rest;
  random.add(4, *rest.mutable_steps());
  together.mutable_steps()->MergeFrom(rest.steps());
  one_by_one.mutable_steps()->MergeFrom(rest.steps());

  const CallTime fast = walk(program, together);
  const CallTime slow = walk(program, one_by_one);

  EXPECT_EQ(fast.length, slow.length);
  for (std::size_t ipu = 0; ipu < 3; ++ipu) {
    EXPECT_EQ(fast.busy[ipu].SerializeAsString(), slow.busy[ipu].SerializeAsString());
  }
  EXPECT_EQ(bars_of(program, together), bars_of(program, one_by_one));
}

INSTANTIATE_TEST_SUITE_P(Seeds, TimelineProperty, ::testing::Range(0U, 200U));

CallTime walk_train(const Program& program, const StretchVisitor& visit = nullptr) {
  return walk(program, *find_function(program, "train"), visit);
}

std::vector<std::uint32_t> one_ipu_a_stage(std::uint32_t stages) {
  std::vector<std::uint32_t> ipus(stages);
  std::iota(ipus.begin(), ipus.end(), 0U);
  return ipus;
}

CallTime walk_pipeline(Schedule schedule, std::int64_t micro_batches, const std::vector<StageTime>& times) {
  const auto stages = static_cast<std::uint32_t>(times.size());
  return walk_train(pipeline_program(make_timetable(schedule, one_ipu_a_stage(stages), micro_batches, true), times));
}

double utilisation(Schedule schedule, std::uint32_t stages, std::int64_t micro_batches, const StageTime& time) {
  return walk_pipeline(schedule, micro_batches, std::vector(stages, time)).utilisation();
}

/// Returns the utilisation of n equal stages by seed 004, 5.4.2.
double published_utilisation(std::uint32_t n, std::int64_t accumulation, const StageTime& time) {
  const auto micro_batch = static_cast<double>(time.forward + time.recomputation + time.backward);
  const auto update = static_cast<double>(time.update);
  const auto steps = static_cast<double>(accumulation);
  return (steps * micro_batch + update) / ((steps + n - 1) * micro_batch + update);
}

TEST(Utilisation, OfEqualStagesIsThePublishedFormula) {
  const std::vector<StageTime> all = {{.forward = 100, .backward = 210},
                                      {.forward = 100, .backward = 210, .recomputation = 100},
                                      {.forward = 100, .backward = 210, .update = 1'000},
                                      {.forward = 100, .backward = 210, .update = 1'000, .recomputation = 100}};
  for (const StageTime& time : all) {
    for (std::uint32_t stages = 1; stages <= 8; ++stages) {
      for (std::int64_t accumulation = 1; accumulation <= 64; ++accumulation) {
        ASSERT_NEAR(utilisation(Schedule::kGrouped, stages, accumulation, time),
                    published_utilisation(stages, accumulation, time), 1e-12)
            << stages << " stages, accumulation " << accumulation;
      }
    }
  }
}

TEST(Utilisation, IsAQuarterOfFourStagesWithoutAccumulationAndNearlyOneWithMuch) {
  const StageTime time{.forward = 100, .backward = 200};
  EXPECT_DOUBLE_EQ(utilisation(Schedule::kGrouped, 4, 1, time), 0.25);
  EXPECT_NEAR(utilisation(Schedule::kGrouped, 4, 1000, time), 0.997, 5e-5);
}

TEST(Utilisation, SequentialIsOneOfTheStages) {
  for (std::uint32_t stages = 1; stages <= 8; ++stages) {
    for (const std::int64_t accumulation : {1, 2, 64}) {
      EXPECT_DOUBLE_EQ(utilisation(Schedule::kSequential, stages, accumulation, {}), 1. / stages);
    }
  }
}

TEST(Utilisation, SequentialIsOneOfTheStagesInInferenceToo) {
  for (std::uint32_t stages = 1; stages <= 8; ++stages) {
    for (const std::int64_t batches : {1, 2, 3, 64, 1'000'000}) {
      const Program program =
          pipeline_program(make_timetable(Schedule::kSequential, one_ipu_a_stage(stages), batches, false),
                           std::vector<StageTime>(stages));
      EXPECT_DOUBLE_EQ(walk_train(program).utilisation(), 1. / stages) << batches << " batches";
    }
  }
}

TEST(Utilisation, InferenceOnAPipelineOverlaps) {
  const Program program =
      pipeline_program(make_timetable(Schedule::kGrouped, one_ipu_a_stage(4), 13, false), std::vector<StageTime>(4));
  EXPECT_DOUBLE_EQ(walk_train(program).utilisation(), 13. / 16);
}

TEST(Utilisation, InterleavedIsSlowerThanGroupedWhereForwardAndBackwardDiffer) {
  // With up to 3 stages, neighbours exchange only every other cycle. Between exchanges, a forward and a backward part
  // compensate for each other.
  for (std::uint32_t stages = 2; stages <= 8; ++stages) {
    for (const std::int64_t accumulation : {2, 16, 64}) {
      const auto difference = [&](const StageTime& time) {
        return utilisation(Schedule::kGrouped, stages, accumulation, time) -
               utilisation(Schedule::kInterleaved, stages, accumulation, time);
      };
      EXPECT_NEAR(difference({.forward = 150, .backward = 150}), 0, 1e-12);
      EXPECT_GE(difference({.forward = 100, .backward = 200}), stages > 3 ? 0.005 : 0)
          << stages << " stages, accumulation " << accumulation;
    }
  }
}

TEST(Utilisation, OfUnequalStagesIsThatOfEachIpu) {
  // The longest forward and the longest backward part are on different IPUs. The formula takes the longest of each, so
  // it assumes a cycle that does not exist.
  const std::vector<StageTime> times = {
      {.forward = 100, .backward = 200}, {.forward = 150, .backward = 150}, {.forward = 90, .backward = 110}};
  constexpr std::int64_t kAccumulation = 64;

  const CallTime time = walk_pipeline(Schedule::kGrouped, kAccumulation, times);

  double sum = 0;
  for (std::size_t ipu = 0; ipu < times.size(); ++ipu) {
    const auto busy = static_cast<std::int64_t>(times[ipu].forward + times[ipu].backward);
    EXPECT_EQ(time.busy_cycles(ipu), Cycles{busy * kAccumulation});
    EXPECT_EQ(time.busy_cycles(ipu) + time.idle_cycles(ipu), time.length);
    sum += static_cast<double>(time.busy_cycles(ipu).count());
  }
  EXPECT_DOUBLE_EQ(time.utilisation(), sum / 3 / static_cast<double>(time.length.count()));
  const double formula = published_utilisation(3, kAccumulation, {.forward = 150, .backward = 200});
  const double fullest = static_cast<double>(time.busy_cycles(0).count()) / static_cast<double>(time.length.count());
  EXPECT_GT(fullest, 0.95);
  EXPECT_GT(formula, 0.96);
  EXPECT_LT(time.utilisation(), 0.9);
}

TEST(Utilisation, ABillionMicroBatchesTakeNoLongerToWalkThanAFew) {
  constexpr std::int64_t kMany = 1'000'000'000;
  for (const Schedule schedule : {Schedule::kSequential, Schedule::kGrouped, Schedule::kInterleaved}) {
    const CallTime time = walk_pipeline(schedule, kMany, std::vector<StageTime>(4));
    EXPECT_EQ(time.busy_cycles(0), Cycles{3 * kMany});
  }
}

TEST(Utilisation, AnIpuUpdatesAsSoonAsItsLastGradientIsDone) {
  const StageTime time{.forward = 10, .backward = 20, .update = 5};
  const Program program =
      pipeline_program(make_timetable(Schedule::kGrouped, {0, 1, 2}, 12, true), std::vector(3, time));
  std::vector<std::int64_t> updates;

  const CallTime call = walk_train(program, [&](const Stretch& bar) {
    if (!bar.function.has_part()) {
      updates.push_back(bar.begin.count());
    }
  });

  // There are 2 cycles of forward parts, 12 of both, and 2 of backward parts.
  EXPECT_THAT(updates, ElementsAre(20 + 360 + 40, 20 + 360 + 20, 20 + 360));
  EXPECT_EQ(call.length, Cycles{425});
}

TEST(Phases, LetTheOtherIpuLoadMeanwhile) {
  // IPU 1 loads phase 1 while IPU 0 runs phase 0 for 10 micro-batches, and loads phase 2 while
  // IPU 1 runs phase 1.
  Program program = program_of_ipus(2);
  for (const std::uint32_t phase : {0U, 1U, 2U}) {
    proto::Function& function = *program.add_functions();
    function.set_name(fmt::format("forward.{}", phase));
    function.mutable_part()->set_stage(phase);
    function.mutable_part()->set_ipu(phase % 2);
    add_execute(*function.mutable_steps(), phase % 2, 10);
  }
  proto::Function& train = *program.add_functions();
  train.set_name("train");
  for (const std::uint32_t phase : {0U, 1U, 2U}) {
    add_execute(*train.mutable_steps(), (phase + 1) % 2, 90);
    proto::Repeat& repeat = *train.add_steps()->mutable_repeat();
    repeat.set_count(10);
    repeat.add_steps()->mutable_call()->set_function(fmt::format("forward.{}", phase));
    proto::Copy& brings = *train.add_steps()->mutable_copy();
    brings.add_from(phase % 2);
    brings.add_to((phase + 1) % 2);
  }

  const CallTime time = walk_train(program);

  EXPECT_EQ(time.length, Cycles{3 * 10 * 10});
  EXPECT_EQ(time.busy_cycles(0), Cycles{2 * 100 + 90});
}

}  // namespace
}  // namespace poprun
