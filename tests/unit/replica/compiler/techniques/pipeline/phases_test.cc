/// Phased jobs: bit-identical to plain jobs, with off-chip weights, state and stashes that move once per phase.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/compile.h"
#include "replica/compiler/passes.h"
#include "replica/machine/operations.h"
#include "replica/program/timeline.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::phases_test {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::Record;

constexpr std::uint32_t kMicroBatches = 3;

proto::RunConfig job_of(std::uint32_t phases, std::uint32_t ipus, bool off_chip, bool sharded = false) {
  proto::RunConfig job = testing::config(/*replicas=*/2, /*micro_batch_size=*/4);
  testing::set_optimizer(job, "adam");
  job.mutable_training()->set_gradient_accumulation(kMicroBatches);
  job.mutable_training()->set_learning_rate(0.01);
  job.mutable_topology()->set_ipus_per_replica(ipus);
  proto::MemoryConfig& memory = *job.mutable_memory();
  memory.set_in_place(true);
  memory.set_poison_dead(true);
  memory.set_phases(phases);
  memory.set_phase_ipus(ipus);
  const std::string where = off_chip ? "off-chip" : "on-chip";
  memory.set_weights(where);
  memory.set_optimizer_state(where);
  memory.set_accumulators(where);
  memory.set_activations(where);
  if (sharded) {
    memory.add_replicated_tensor_sharding("weights");
    memory.add_replicated_tensor_sharding("optimizer-state");
    memory.set_sharding_min_elements(8);
  }
  return job;
}

void expect_equal_bits(const Outcome& got, const Outcome& wanted) {
  for (std::size_t r = 0; r < wanted.records.size(); ++r) {
    const Record& a = got.records.at(r);
    const Record& b = wanted.records[r];
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t i = 0; i < b.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i << ", replica " << r;
    }
    EXPECT_EQ(a.evaluations.back().loss, b.evaluations.back().loss);
    EXPECT_EQ(a.tensors, b.tensors);
  }
  EXPECT_FALSE(wanted.records[0].tensors.empty());
}

TEST(Phases, HaveTheBitsOfThePlainJob) {
  const Outcome plain = testing::run(job_of(1, 1, false));

  for (const std::uint32_t ipus : {1U, 2U}) {
    for (const std::uint32_t phases : {2U, 4U}) {
      for (const bool off_chip : {false, true}) {
        for (const bool sharded : {false, true}) {
          SCOPED_TRACE(std::to_string(phases) + " phases on " + std::to_string(ipus) + (off_chip ? ", off-chip" : "") +
                       (sharded ? ", sharded" : ""));
          expect_equal_bits(testing::run(job_of(phases, ipus, off_chip, sharded)), plain);
        }
      }
    }
  }
}

Job compiled(const proto::RunConfig& config) {
  const auto options = compile_options(config, testing::dataset());
  EXPECT_TRUE(options) << options.error().message;
  auto job = run_passes(*options);
  EXPECT_TRUE(job) << job.error().message;
  return *std::move(job);
}

/// How often one step gathers each variable, loads it from a remote buffer, and stores it to one.
struct Moves {
  std::map<std::string, std::int64_t> gathers;
  std::map<std::string, std::int64_t> loads;
  std::map<std::string, std::int64_t> stores;
};

void count(const Graph& graph, const std::string& function, std::int64_t times, Moves& moves) {
  for (const Region& region : find_function(graph, function)->regions) {
    for (const Operation& operation : region.operations) {
      if (const auto call = Call::from(operation)) {
        count(graph, call->function, times * region.repeat, moves);
      }
      for (std::size_t k = 0; AllGather::is(operation) && k < operation.outputs.size(); ++k) {
        moves.gathers[graph.tensor(operation.outputs[k]).name] += times * region.repeat;
      }
      for (std::size_t k = 0; Copy::is(operation) && k < operation.inputs.size(); ++k) {
        const Tensor& from = graph.tensor(operation.inputs[k]);
        const Tensor& to = graph.tensor(operation.outputs[k]);
        if (from.is_remote()) {
          moves.loads[to.name] += times * region.repeat;
        } else if (to.is_remote()) {
          moves.stores[from.name] += times * region.repeat;
        }
      }
    }
  }
}

TEST(Phases, LoadTheirWeightsOnceHoweverManyMicroBatchesThereAre) {
  const Job job = compiled(job_of(4, 1, true));
  Moves moves;

  count(job.graph, "train", 1, moves);

  // Each pass loads the weights, but the last phase's forward and backward share a load. The update stores them.
  EXPECT_EQ(moves.loads["conv1.weight"], 2);
  EXPECT_EQ(moves.loads["fc2.weight"], 1);
  EXPECT_EQ(moves.stores["conv1.weight"], 1);
  EXPECT_EQ(moves.stores["fc2.weight"], 1);
  // Accumulators live only during a phase, and state moves only for the update.
  EXPECT_EQ(moves.loads["conv1.weight.accumulator"], 0);
  EXPECT_EQ(moves.stores["conv1.weight.accumulator"], 0);
  EXPECT_EQ(moves.loads["conv1.weight.m"], 1);
  EXPECT_EQ(moves.stores["conv1.weight.m"], 1);
}

TEST(Phases, GatherTheirShardsOnce) {
  const Job job = compiled(job_of(4, 2, true, /*sharded=*/true));
  Moves moves;

  count(job.graph, "train", 1, moves);

  EXPECT_EQ(moves.gathers["conv1.weight"], 2);
  EXPECT_EQ(moves.gathers["fc2.weight"], 1);
  EXPECT_EQ(moves.loads["conv1.weight.shard"], 2);
}

/// Returns the text of the function "train".
std::string train_text(const Job& job) {
  const std::string text = to_text(job.graph);
  const std::size_t begin = text.find("function train\n");
  return text.substr(begin, text.find("\nfunction ", begin) - begin);
}

TEST(Phases, OnTwoIpusLoadWhileTheOtherOneWorks) {
  const std::string text = train_text(compiled(job_of(4, 2, true)));

  const auto at = [&](const std::string& what) {
    const std::size_t found = text.find(what);
    EXPECT_NE(found, std::string::npos) << what << " in\n" << text;
    return found;
  };
  EXPECT_LT(at("conv2.weight"), at("call() function=\"forward.0\""));
  EXPECT_GT(at("fc1.weight, "), at("call() function=\"forward.0\""));
  EXPECT_LT(at("fc1.weight, "), at("call() function=\"forward.1\""));
}

Program program_of(const proto::RunConfig& config) {
  const auto options = compile_options(config, testing::dataset());
  EXPECT_TRUE(options) << options.error().message;
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return *std::move(program);
}

/// Adds all bars of a stretch, one after the other.
void add_bars(const Stretch& stretch, std::vector<std::pair<std::int64_t, std::int64_t>>& bars) {
  for (std::uint64_t k = 0; k < stretch.count; ++k) {
    const std::int64_t begin = stretch.begin.count() + static_cast<std::int64_t>(k) * stretch.distance.count();
    bars.emplace_back(begin, begin + stretch.length.count());
  }
}

TEST(Phases, OnTwoIpusHideLoadsBehindTheOtherOnesWork) {
  proto::RunConfig one = job_of(4, 1, true);
  proto::RunConfig two = job_of(4, 2, true);
  for (proto::RunConfig* config : {&one, &two}) {
    config->mutable_training()->set_gradient_accumulation(8);
    config->mutable_memory()->set_activations("on-chip");
  }
  const Program program = program_of(two);
  std::vector<std::pair<std::int64_t, std::int64_t>> loads;  // On IPU 1.
  std::vector<std::pair<std::int64_t, std::int64_t>> work;   // On IPU 0.
  const CallTime time = walk(program, *find_function(program, "train"), [&](const Stretch& stretch) {
    if (stretch.ipu == 1 && stretch.doing == Doing::kStreaming && stretch.step.has_copy() &&
        is_remote(program.tensors(static_cast<int>(stretch.step.copy().from(0))))) {
      add_bars(stretch, loads);
    } else if (stretch.ipu == 0 && stretch.function.has_part()) {
      add_bars(stretch, work);
    }
  });

  ASSERT_EQ(loads.size(), 3U + 4U) << "weights of three phases, and state of four parameters";
  std::int64_t loading = 0;
  std::int64_t hidden = 0;
  for (const auto& [begin, end] : loads) {
    loading += end - begin;
    for (const auto& [other_begin, other_end] : work) {
      hidden += std::max<std::int64_t>(0, std::min(end, other_end) - std::max(begin, other_begin));
    }
  }
  EXPECT_GT(hidden, loading / 2);
  const CallTime alone = walk(program_of(one), *find_function(program_of(one), "train"));
  EXPECT_LT(time.length.count(), alone.length.count());
  EXPECT_GT(time.busy_cycles(0) + time.busy_cycles(1), time.length);
}

TEST(Phases, OfSeveralReplicasLoadTheirShardsInAsMuchLessTime) {
  const auto streaming_cycles = [](std::uint32_t replicas, bool sharded) {
    proto::RunConfig job = job_of(4, 1, false);
    job.mutable_topology()->set_num_replicas(replicas);
    job.mutable_memory()->set_weights("off-chip");
    if (sharded) {
      job.mutable_memory()->add_replicated_tensor_sharding("weights");
      job.mutable_memory()->set_sharding_min_elements(2);
    }
    const Program program = program_of(job);
    return walk(program, *find_function(program, "train")).busy[0].streaming_cycles();
  };

  const auto whole = static_cast<double>(streaming_cycles(4, false));

  EXPECT_GT(whole, 100'000) << "weights, twice forward and back";
  EXPECT_NEAR(static_cast<double>(streaming_cycles(2, true)) / whole, 1.0 / 2, 0.01);
  EXPECT_NEAR(static_cast<double>(streaming_cycles(4, true)) / whole, 1.0 / 4, 0.01);
}

std::string verdict_on(const std::function<void(Job&)>& damage) {
  const auto options = compile_options(job_of(4, 1, true), testing::dataset());
  Job job = *run_passes(*options);
  const Pass& pass = *std::ranges::find(all_passes(), "locations", &Pass::name);
  EXPECT_TRUE(pass.verify(*options, job, job));
  damage(job);
  const Status status = pass.verify(*options, job, job);
  return status ? "" : status.error().message;
}

TEST(Phases, MustLoadBeforeTheyBegin) {
  EXPECT_THAT(verdict_on([](Job& job) {
                Place before = job.training->phases.at(1);
                --before.region;
                auto& operations = job.graph.at(before).operations;
                std::erase_if(operations, [&](const Operation& operation) {
                  return Copy::is(operation) && job.graph.tensor(operation.inputs[0]).is_remote();
                });
              }),
              HasSubstr("before it is loaded"));
}

}  // namespace
}  // namespace poprun::phases_test
