/// Weights, optimiser state, accumulators and stashes that are off-chip or sharded among the replicas: results are
/// bit-identical to those of a job with everything on-chip, and the tensors take as many bytes as they should.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/lives/liveness.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/proofs/equivalence.h"
#include "replica/machine/operations.h"
#include "tests/unit/replica/compiled.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::placement_test {
namespace {

using testing::config;
using testing::dataset;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Record;
using testing::set_optimizer;
using ::testing::TestWithParam;
using ::testing::Values;

void keep_all(proto::RunConfig& job, const std::string& where) {
  proto::MemoryConfig& memory = *job.mutable_memory();
  memory.set_weights(where);
  memory.set_optimizer_state(where);
  memory.set_accumulators(where);
  memory.set_activations(where);
}

void shard(proto::RunConfig& job, std::uint32_t group = 0) {
  proto::MemoryConfig& memory = *job.mutable_memory();
  memory.add_replicated_tensor_sharding("weights");
  memory.add_replicated_tensor_sharding("optimizer-state");
  if (job.training().gradient_reduction() == "every-micro-batch") {
    memory.add_replicated_tensor_sharding("accumulators");
  }
  memory.set_sharding_min_elements(8);
  memory.set_sharding_group(group);
}

Outcome run(proto::RunConfig job) {
  job.mutable_memory()->set_in_place(true);
  job.mutable_memory()->set_poison_dead(true);
  return testing::run(job);
}

void expect_equal_bits(const Outcome& got, const Outcome& wanted) {
  ASSERT_EQ(got.records.size(), wanted.records.size());
  for (std::size_t r = 0; r < wanted.records.size(); ++r) {
    const Record& a = got.records[r];
    const Record& b = wanted.records[r];
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t i = 0; i < b.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i << ", replica " << r;
    }
    ASSERT_EQ(a.evaluations.size(), b.evaluations.size());
    EXPECT_EQ(a.evaluations.back().loss, b.evaluations.back().loss);
    EXPECT_EQ(a.tensors, b.tensors) << "replica " << r;
  }
  EXPECT_FALSE(wanted.records[0].tensors.empty());
}

struct Kind {
  std::string optimizer;
  bool half = false;
  std::uint32_t replicas = 2;
  std::uint32_t accumulation = 1;
  std::uint32_t ipus = 1;
  double clip_norm = 0;
  std::string reduction = "mean";
};

proto::RunConfig job_of(const Kind& kind) {
  proto::RunConfig job = config(kind.replicas, 4);
  job.mutable_topology()->set_ipus_per_replica(kind.ipus);
  set_optimizer(job, kind.optimizer);
  proto::TrainingConfig& training = *job.mutable_training();
  training.set_learning_rate(0.01);
  training.set_gradient_accumulation(kind.accumulation);
  training.set_gradient_reduction(kind.reduction);
  training.set_clip_norm(kind.clip_norm);
  if (kind.half) {
    job.mutable_model()->set_precision("half");
    training.set_stochastic_rounding(true);
    training.set_loss_scaling(0);
  }
  return job;
}

class Placed : public TestWithParam<Kind> {};

TEST_P(Placed, JobsHaveTheBitsOfThoseOnTheChip) {
  const proto::RunConfig plain = job_of(GetParam());
  const Outcome wanted = run(plain);
  proto::RunConfig off_chip = plain;
  keep_all(off_chip, "off-chip");
  {
    SCOPED_TRACE("off-chip");
    expect_equal_bits(run(off_chip), wanted);
  }
  if (GetParam().replicas == 1) {
    return;
  }
  proto::RunConfig sharded = plain;
  shard(sharded);
  {
    SCOPED_TRACE("sharded");
    expect_equal_bits(run(sharded), wanted);
  }
  proto::RunConfig state = plain;
  state.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  state.mutable_memory()->set_sharding_min_elements(8);
  {
    SCOPED_TRACE("state sharded");
    expect_equal_bits(run(state), wanted);
  }
  proto::RunConfig both = off_chip;
  shard(both, GetParam().replicas % 2 == 0 ? 2 : 0);
  SCOPED_TRACE("sharded and off-chip, in groups of 2");
  expect_equal_bits(run(both), wanted);
}

INSTANTIATE_TEST_SUITE_P(All, Placed,
                         Values(Kind{"sgd"}, Kind{"momentum", false, 1, 3}, Kind{"momentum", false, 4, 2, 2},
                                Kind{"adam", false, 3, 2, 1, 0.5}, Kind{"adamw", true, 2, 2},
                                Kind{"lamb", false, 4, 1, 1, 1.0}, Kind{"lamb", true, 3, 2, 2, 1.0},
                                Kind{"lars", false, 4, 1, 1, 1.0}, Kind{"lars", true, 3, 2, 2, 1.0},
                                Kind{"adam", false, 4, 3, 2, 0, "every-micro-batch"},
                                Kind{"momentum", true, 2, 3, 1, 0, "every-micro-batch"}),
                         [](const auto& test) {
                           const Kind& k = test.param;
                           std::string name = k.optimizer + (k.half ? "Half" : "") + "Replicas" +
                                              std::to_string(k.replicas) + "Micro" + std::to_string(k.accumulation) +
                                              "Ipus" + std::to_string(k.ipus);
                           return name + (k.clip_norm > 0 ? "Clipped" : "") +
                                  (k.reduction == "mean" ? "" : "EveryMicroBatch");
                         });

std::uint64_t bytes_of(const Program& program, const std::string& name) {
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.name() == name) {
      return tensor.bytes();
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

TEST(Sharded, StateIsDividedByTheReplicasAndFilledUp) {
  proto::RunConfig job = config(3, 4);
  shard(job);
  const Outcome outcome = run(job);
  const std::uint64_t whole = bytes_of(outcome.program, "fc1.weight");
  const std::uint64_t part = (whole / 4 + 2) / 3 * 4;
  EXPECT_EQ(bytes_of(outcome.program, "fc1.weight.shard"), part);
  EXPECT_EQ(bytes_of(outcome.program, "fc1.weight.momentum.shard"), part);
}

TEST(OffChip, StateTakesTheBytesOfItsEntriesAndNoMore) {
  proto::RunConfig job = config(1, 4);
  job.mutable_memory()->set_optimizer_state("off-chip");
  const Outcome outcome = run(job);
  std::uint64_t bytes = 0;
  std::uint64_t end = 0;
  for (const proto::Tensor& tensor : outcome.program.tensors()) {
    if (is_remote(tensor)) {
      bytes += tensor.bytes();
      end = std::max(end, tensor.placement().offset() + tensor.bytes());
    }
  }
  EXPECT_EQ(bytes, 421642U * 4) << "the momentum of every weight";
  EXPECT_EQ(outcome.program.memory(0).streaming_peak(), end);
  EXPECT_EQ(outcome.results[0].streaming_high_water[0].count(), static_cast<std::int64_t>(end));
}

/// Bytes that the copies in a function move in each direction.
struct Moved {
  std::uint64_t loaded = 0;
  std::uint64_t stored = 0;
};

void add_moves(const Program& program, const auto& steps, Moved& moved) {
  for (const proto::Step& step : steps) {
    add_moves(program, step.repeat().steps(), moved);
    for (int k = 0; k < step.copy().from_size(); ++k) {
      const proto::Tensor& from = program.tensors(static_cast<int>(step.copy().from(k)));
      const proto::Tensor& to = program.tensors(static_cast<int>(step.copy().to(k)));
      moved.loaded += is_remote(from) ? to.bytes() : 0;
      moved.stored += is_remote(to) ? from.bytes() : 0;
    }
  }
}

TEST(OffChip, StateMovesOnceEachWayInEachStep) {
  proto::RunConfig job = config(1, 4);
  job.mutable_training()->set_gradient_accumulation(4);
  job.mutable_memory()->set_optimizer_state("off-chip");
  const Outcome outcome = run(job);
  Moved moved;
  add_moves(outcome.program, find_function(outcome.program, "train")->steps(), moved);
  EXPECT_EQ(moved.loaded, 421642U * 4);
  EXPECT_EQ(moved.stored, 421642U * 4);
}

/// Returns the largest number of a job's variables that are on-chip at one step of "load".
std::size_t most_at_once_in_load(bool from_host) {
  proto::RunConfig config = testing::config(1, 4);
  keep_all(config, "off-chip");
  CompileOptions options = *compile_options(config, dataset());
  options.initial_weights_from_host = from_host;
  const auto job = run_passes(options);
  EXPECT_TRUE(job) << job.error().message;
  const Liveness liveness = compute_liveness(job->graph);
  const std::size_t steps = job->graph.at(job->graph.load()).operations.size();
  std::vector<std::size_t> living(steps);
  for (std::uint32_t t = 0; t < job->graph.tensors().size(); ++t) {
    const Tensor& tensor = job->graph.tensors()[t];
    for (const Span& span : liveness.lives[t].spans) {
      for (std::size_t step = span.first; tensor.residence && step <= span.last && step < steps; ++step) {
        ++living[step];
      }
    }
  }
  EXPECT_GE(steps, 32U) << "eight weights and their momenta, each stored";
  return *std::ranges::max_element(living);
}

TEST(OffChip, InitialValuesPassThroughTheChipOneByOne) {
  EXPECT_EQ(most_at_once_in_load(false), 1U);
  EXPECT_EQ(most_at_once_in_load(true), 1U);
}

TEST(OffChip, AFullStreamingMemoryIsOutOfMemoryWithItsBuffers) {
  proto::RunConfig job = config(1, 4);
  job.mutable_device()->set_streaming_bytes(1'000'000);
  job.mutable_memory()->set_optimizer_state("off-chip");
  const auto program = compile(*compile_options(job, dataset()));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(program.error().message, HasSubstr("of the Streaming Memory of IPU 0"));
  EXPECT_THAT(program.error().message, HasSubstr("fc1.weight.momentum.remote"));
}

TEST(Locations, SmallTensorsStayAndOverridesDecide) {
  proto::RunConfig job = config(1, 4);
  job.mutable_memory()->set_optimizer_state("off-chip");
  job.mutable_memory()->set_off_chip_min_elements(100);
  proto::LocationOverride& one = *job.mutable_memory()->add_location();
  one.set_tensors("^fc1.weight$");
  one.set_storage("off-chip");
  const auto program = compile(*compile_options(job, dataset()));
  ASSERT_TRUE(program) << program.error().message;
  const std::vector<std::string> lines(program->locations().begin(), program->locations().end());
  EXPECT_THAT(lines, ::testing::IsSupersetOf({"fc1.weight: off-chip (memory.location ^fc1.weight$)",
                                              "fc2.weight.momentum: off-chip (memory.optimizer-state)",
                                              "fc2.bias.momentum: on-chip (fewer than 100 elements "
                                              "(memory.off-chip-min-elements))"}));
}

std::vector<std::string> notes_of(const proto::RunConfig& job) {
  return testing::texts(run_passes(*compile_options(job, dataset()))->notes);
}

TEST(Locations, SayWhichOverridesFindNothing) {
  proto::RunConfig job = config(1, 4);
  job.mutable_memory()->set_weights("off-chip");
  for (const char* name : {"conv9", "."}) {
    proto::LocationOverride& one = *job.mutable_memory()->add_location();
    one.set_tensors(name);
    one.set_storage("on-chip");
  }
  EXPECT_THAT(notes_of(job), ::testing::IsSupersetOf({"memory.location conv9 has no effect: no weight, optimiser "
                                                      "state, accumulator or stash has a matching name",
                                                      "weights: 8 tensors kept on-chip because of memory.location, "
                                                      "memory.off-chip-min-elements or memory.phases"}));
}

TEST(Sharded, SaysSoWhereNothingIs) {
  proto::RunConfig job = config(2, 4);
  job.mutable_memory()->add_replicated_tensor_sharding("accumulators");
  EXPECT_THAT(notes_of(job), ::testing::Contains("memory.replicated-tensor-sharding has no effect: "
                                                 "the job has no tensors of the given kinds"));
  job.mutable_memory()->add_replicated_tensor_sharding("weights");
  job.mutable_memory()->set_sharding_min_elements(1'000'000);
  EXPECT_THAT(notes_of(job), ::testing::Contains("memory.replicated-tensor-sharding has no effect: "
                                                 "8 tensors cannot be sharded: each has fewer than 1000000 elements "
                                                 "(memory.sharding-min-elements) or is a copy for another IPU"));
}

/// Returns the verdict of verify_equivalence on a placed job after `damage`, or "".
std::string verdict_on(const proto::RunConfig& job, const std::function<void(Graph&)>& damage) {
  const CompileOptions options = *compile_options(job, dataset());
  Job placed;
  Graph plain;
  for (const Pass& pass : all_passes()) {
    if (pass.applies(options)) {
      EXPECT_TRUE(pass.run(options, placed)) << pass.name;
    }
    if (pass.name == "precision") {
      plain = placed.graph;
    }
  }
  EXPECT_TRUE(verify_equivalence(plain, placed.graph)) << "before the damage";
  damage(placed.graph);
  const Status status = verify_equivalence(plain, placed.graph);
  return status ? "" : status.error().message;
}

/// Calls change(operations, index) for the first operation outside "load" that satisfies `is`.
void at_first(Graph& graph, const std::function<bool(const Operation&)>& is,
              const std::function<void(std::vector<Operation>&, std::size_t)>& change) {
  for (Function& function : graph.functions) {
    for (Region& region : function.regions) {
      const auto found = std::ranges::find_if(region.operations, is);
      if (function.name != "load" && found != region.operations.end()) {
        change(region.operations, static_cast<std::size_t>(found - region.operations.begin()));
        return;
      }
    }
  }
  FAIL() << "no such operation";
}

void remove(std::vector<Operation>& operations, std::size_t i) {
  operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
}

proto::RunConfig off_chip_state() {
  proto::RunConfig job = config(1, 4);
  job.mutable_memory()->set_optimizer_state("off-chip");
  return job;
}

proto::RunConfig sharded_state() {
  proto::RunConfig job = config(2, 4);
  shard(job);
  return job;
}

bool stores(const Operation& operation) {
  const auto copy = Copy::from(operation);
  return copy && !copy->to_entries.empty();
}

bool loads(const Operation& operation) {
  const auto copy = Copy::from(operation);
  return copy && !copy->from_entries.empty();
}

TEST(Damage, AMissingStoreIsFound) {
  EXPECT_THAT(verdict_on(off_chip_state(), [](Graph& g) { at_first(g, stores, remove); }), HasSubstr("momentum"));
}

/// Value numbering would not find this: the tensor would stay on-chip during the whole run, with the right value.
TEST(Damage, AMissingLoadIsFoundByThePassesVerifier) {
  const CompileOptions options = *compile_options(off_chip_state(), dataset());
  Job job = *run_passes(options);
  at_first(job.graph, loads, remove);
  const Pass& pass = *std::ranges::find(all_passes(), "locations", &Pass::name);
  const Status status = pass.verify(options, job, job);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("before it is loaded"));
}

TEST(Damage, ALoadAfterTheUseIsFound) {
  EXPECT_THAT(verdict_on(off_chip_state(),
                         [](Graph& g) {
                           at_first(g, loads, [](auto& operations, std::size_t i) {
                             std::swap(operations[i], operations[i + 1]);
                           });
                         }),
              HasSubstr("momentum"));
}

TEST(Damage, AnotherTensorsBufferIsFound) {
  EXPECT_NE(verdict_on(off_chip_state(),
                       [](Graph& g) {
                         at_first(g, loads, [&g](auto& operations, std::size_t i) {
                           operations[i].inputs[0] = g.find("fc2.bias.momentum.remote");
                         });
                       }),
            "");
}

/// Returns a job with identical layers, whose momenta are entries of one buffer.
proto::RunConfig equal_layers_off_chip() {
  proto::RunConfig job = off_chip_state();
  job.mutable_model()->set_name("resnet18");
  return job;
}

TEST(Damage, AnotherEntryOfTheSameBufferIsFound) {
  const auto loads_the_second = [](const Operation& operation) {
    const auto copy = Copy::from(operation);
    return copy && std::ranges::find(copy->from_entries, 1) != copy->from_entries.end();
  };
  EXPECT_THAT(verdict_on(equal_layers_off_chip(),
                         [&](Graph& g) {
                           at_first(g, loads_the_second, [](auto& operations, std::size_t i) {
                             Copy copy = *Copy::from(operations[i]);
                             std::ranges::replace(copy.from_entries, 1, 0);
                             operations[i] = copy.operation();
                           });
                         }),
              HasSubstr("momentum"));
}

TEST(Damage, AnEntryThatIsStoredBeforeTheUpdateIsFound) {
  EXPECT_THAT(verdict_on(off_chip_state(),
                         [](Graph& g) {
                           at_first(g, stores, [](auto& operations, std::size_t i) {
                             const TensorId stored = operations[i].inputs[0];
                             std::size_t writer = i;
                             do {
                               --writer;
                             } while (std::ranges::count(operations[writer].outputs, stored) == 0);
                             const auto begin = operations.begin();
                             std::rotate(begin + static_cast<std::ptrdiff_t>(writer),
                                         begin + static_cast<std::ptrdiff_t>(i),
                                         begin + static_cast<std::ptrdiff_t>(i + 1));
                           });
                         }),
              HasSubstr("momentum"));
}

TEST(Damage, AMissingGatherIsFound) {
  proto::RunConfig job = sharded_state();
  job.mutable_training()->set_evaluate(false);  // Evaluation would also gather the weights that training reads.
  EXPECT_NE(verdict_on(job, [](Graph& g) { at_first(g, AllGather::is, remove); }), "");
}

TEST(Damage, AWrongShardIsFound) {
  EXPECT_NE(verdict_on(sharded_state(),
                       [](Graph& g) {
                         at_first(g, AllGather::is, [&g](auto& operations, std::size_t i) {
                           operations[i].inputs[0] = g.find("fc1.weight.momentum.shard");
                         });
                       }),
            "");
}

TEST(Damage, AShardOfWhatIsNotReducedIsFound) {
  EXPECT_NE(verdict_on(sharded_state(),
                       [](Graph& g) {
                         at_first(g, ReduceScatter::is, [](auto& operations, std::size_t i) {
                           operations[i] = Shard{operations[i].inputs, operations[i].outputs}.operation();
                         });
                       }),
            "");
}

bool updates(const Operation& operation) {
  return operation.kind == "momentum";
}

/// The update's sharded operands are known by their positions, whatever their shapes are.
TEST(Damage, AWholeBesideShardsIsFound) {
  EXPECT_THAT(verdict_on(sharded_state(),
                         [](Graph& g) {
                           at_first(g, updates, [&g](auto& operations, std::size_t i) {
                             operations[i].inputs[1] = g.find("fc2.bias");
                           });
                         }),
              HasSubstr("a full tensor, along with shards"));
}

TEST(Damage, AShardInThePlaceOfAScalarIsFound) {
  EXPECT_THAT(verdict_on(sharded_state(),
                         [](Graph& g) {
                           at_first(g, updates, [](auto& operations, std::size_t i) {
                             operations[i].inputs[3] = operations[i].inputs[0];
                           });
                         }),
              HasSubstr("a shard, which it cannot process"));
}

TEST(Damage, AShardOfAnotherShapeIsFound) {
  EXPECT_THAT(verdict_on(sharded_state(),
                         [](Graph& g) {
                           at_first(g, updates, [&g](auto& operations, std::size_t i) {
                             const bool is_fc1 = g.tensor(operations[i].inputs[0]).name == "fc1.weight.shard";
                             operations[i].inputs[2] =
                                 g.find(is_fc1 ? "fc2.weight.momentum.shard" : "fc1.weight.momentum.shard");
                           });
                         }),
              HasSubstr("a shard of a different shape"));
}

TEST(Damage, SumsOfOneShardAreFound) {
  proto::RunConfig job = sharded_state();
  job.mutable_training()->set_clip_norm(1);
  const auto sums = [](const Operation& operation) {
    const auto reduced = AllReduce::from(operation);
    return reduced && reduced->reduction == Reduction::kSum;
  };
  EXPECT_THAT(verdict_on(job, [&](Graph& g) { at_first(g, sums, remove); }),
              HasSubstr("not yet summed over the shards"));
  job.mutable_topology()->set_num_replicas(4);
  job.mutable_memory()->set_sharding_group(2);
  EXPECT_THAT(verdict_on(job,
                         [&](Graph& g) {
                           at_first(g, sums, [](auto& operations, std::size_t i) {
                             AllReduce all = *AllReduce::from(operations[i]);
                             all.group = 0;
                             operations[i] = all.operation();
                           });
                         }),
              HasSubstr("a replica's summand"));
}

}  // namespace
}  // namespace poprun::placement_test
