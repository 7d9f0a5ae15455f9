/// The compiler marks what is equal on all replicas, and the proof finds each kind of damage to the marks.

#include "replica/compiler/lowering/replication.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/proofs/replication.h"
#include "tests/unit/replica/training_job.h"

namespace poprun::replication_test {
namespace {

using namespace testing;  // NOLINT: the made-up job.
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Program program_of(const proto::RunConfig& job) {
  auto options = compile_options(job, dataset());
  EXPECT_TRUE(options);
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

proto::RunConfig job_with(const std::string& optimizer) {
  proto::RunConfig job = config(2, 3);
  set_optimizer(job, optimizer);
  return job;
}

/// Returns the steps of all functions, with those of repeats.
std::vector<proto::Step*> steps_of(Program& program) {
  std::vector<proto::Step*> all;
  const auto add = [&](const auto& self, auto& steps) -> void {
    for (proto::Step& step : steps) {
      all.push_back(&step);
      self(self, *step.mutable_repeat()->mutable_steps());
    }
  };
  for (proto::Function& function : *program.mutable_functions()) {
    for (proto::Step& step : *function.mutable_steps()) {
      all.push_back(&step);
      if (step.has_repeat()) {
        add(add, *step.mutable_repeat()->mutable_steps());
      }
    }
  }
  return all;
}

std::string name_of(const Program& program, std::uint32_t id) {
  return program.tensors(static_cast<int>(id)).name();
}

/// The names of what is marked.
struct Marks {
  std::set<std::string> common;
  std::set<std::string> divisible;  ///< Parameters whose updates are.
  std::set<std::string> reduced;    ///< Divisible tensors of all-reduces.
  std::set<std::string> complete;
  std::map<std::string, std::uint32_t> owners;
};

Marks marks_of(Program program) {
  Marks marks;
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.common()) {
      marks.common.insert(tensor.name());
    }
    if (tensor.owner() > 0) {
      marks.owners[tensor.name()] = tensor.owner();
    }
  }
  for (const proto::Step* step : steps_of(program)) {
    if (step->execute().divisible()) {
      marks.divisible.insert(name_of(program, step->execute().outputs(0)));
    }
    for (const std::uint32_t id : step->all_reduce().divisible()) {
      marks.reduced.insert(name_of(program, id));
    }
    for (const std::uint32_t id : step->completes()) {
      marks.complete.insert(name_of(program, id));
    }
  }
  return marks;
}

TEST(Replication, WeightsAndStateAreCommonAndTheirUpdatesDivisible) {
  const Marks marks = marks_of(program_of(job_with("momentum")));

  EXPECT_EQ(marks.common.size(), 16U);  // Eight parameters, with one state each.
  EXPECT_EQ(marks.common.count("fc1.weight"), 1U);
  EXPECT_EQ(marks.common.count("fc1.weight.momentum"), 1U);
  EXPECT_EQ(marks.divisible.size(), 8U);
  EXPECT_EQ(marks.reduced.size(), 8U);
  EXPECT_EQ(marks.reduced.count("fc1.weight.gradient"), 1U);
  EXPECT_EQ(marks.reduced.count("train.metrics"), 0U);
  EXPECT_EQ(marks.complete, marks.reduced);
}

TEST(Replication, AJobOfOneReplicaHasNoMarks) {
  proto::RunConfig job = job_with("momentum");
  job.mutable_topology()->set_num_replicas(1);

  EXPECT_THAT(marks_of(program_of(job)).common, IsEmpty());
}

TEST(Replication, ClippedGradientsAreReadWholeButUpdatesAreDivisible) {
  proto::RunConfig job = job_with("adam");
  job.mutable_training()->set_clip_norm(1);

  const Marks marks = marks_of(program_of(job));

  EXPECT_EQ(marks.divisible.size(), 8U);
  EXPECT_THAT(marks.reduced, IsEmpty());
  EXPECT_THAT(marks.complete, IsEmpty());
}

TEST(Replication, AccumulatedGradientsAreDivisibleButReducedOnlyAtTheEnd) {
  proto::RunConfig job = job_with("adam");
  job.mutable_training()->set_gradient_accumulation(3);

  const Marks marks = marks_of(program_of(job));

  EXPECT_EQ(marks.common.size(), 24U);
  EXPECT_EQ(marks.reduced.size(), 8U);
  EXPECT_THAT(marks.complete, IsEmpty());
}

TEST(Replication, WeightsWhoseUpdatesSumOverElementsHaveOwnersByDecreasingSize) {
  const std::map<std::string, std::set<std::string>> states = {
      {"lamb", {"m", "v"}}, {"lars", {"momentum"}}, {"adafactor", {"row", "column"}}};
  for (const auto& [optimizer, names] : states) {
    const Marks marks = marks_of(program_of(job_with(optimizer)));

    EXPECT_THAT(marks.divisible, IsEmpty()) << optimizer;
    EXPECT_EQ(marks.reduced.size(), 8U) << optimizer << ": each gradient is summed by the owner of its weights";
    EXPECT_EQ(marks.complete, marks.reduced) << optimizer;
    EXPECT_EQ(marks.owners.at("fc1.weight"), 1U) << optimizer;
    EXPECT_EQ(marks.owners.at("conv2.weight"), 2U) << optimizer;
    std::set<std::uint32_t> owners;
    for (const auto& [name, owner] : marks.owners) {
      owners.insert(owner);
    }
    EXPECT_EQ(owners, (std::set<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8})) << optimizer << ": one per parameter";
    for (const std::string& state : names) {
      EXPECT_EQ(marks.common.count("fc1.weight." + state), 1U) << optimizer;
      EXPECT_EQ(marks.owners.at("fc1.weight." + state), 1U) << optimizer;
    }
    if (optimizer != "adafactor") {
      EXPECT_EQ(marks.owners.at("fc1.weight.sums-of-squares"), 1U) << optimizer << ": the others do not need the norms";
      EXPECT_EQ(marks.common.count("fc1.weight.sums-of-squares"), 0U) << optimizer;
    }
  }
}

TEST(Replication, AGlobalNormHasNoOwner) {
  proto::RunConfig job = job_with("lamb");
  job.mutable_training()->set_clip_norm(1);

  const Marks marks = marks_of(program_of(job));

  EXPECT_EQ(marks.owners.at("fc1.weight"), 1U);
  EXPECT_EQ(marks.owners.at("conv2.weight"), 2U);
  EXPECT_EQ(marks.owners.count("fc1.weight.gradient.sum-of-squares"), 0U);
}

TEST(Replication, TheOwnerOfMasterWeightsAlsoWritesTheirCopies) {
  proto::RunConfig job = job_with("lamb");
  job.mutable_model()->set_precision("half");
  job.mutable_training()->set_master_weights(true);
  job.mutable_training()->set_loss_scaling(128);

  const Marks marks = marks_of(program_of(job));

  EXPECT_EQ(marks.owners.at("fc1.weight.master"), 1U);
  EXPECT_EQ(marks.owners.at("fc1.weight"), 1U);
  EXPECT_THAT(marks.divisible, IsEmpty());
}

TEST(Replication, OutliningLeavesMuonsMomentumPrivate) {
  proto::RunConfig job = job_with("muon");
  const Marks inlined = marks_of(program_of(job));
  job.mutable_memory()->set_outlining("on");
  const Marks outlined = marks_of(program_of(job));

  for (const char* name : {"fc1.weight", "fc1.weight.momentum", "fc1.weight.direction.5.u"}) {
    EXPECT_EQ(inlined.owners.at(name), 1U) << name;
  }
  EXPECT_EQ(outlined.owners.at("fc1.weight"), 1U);
  EXPECT_EQ(outlined.common.count("fc1.weight.momentum"), 0U) << "code that weights share has no owner";
}

TEST(Replication, ShardsAreNotCommon) {
  proto::RunConfig job = job_with("adam");
  job.mutable_memory()->add_replicated_tensor_sharding("optimizer-state");
  job.mutable_memory()->set_sharding_min_elements(8192);

  const Marks marks = marks_of(program_of(job));

  for (const std::string& name : marks.common) {
    EXPECT_THAT(name, Not(HasSubstr("shard")));
  }
  EXPECT_EQ(marks.common.count("fc1.weight.m"), 0U);
  EXPECT_EQ(marks.common.count("fc1.bias.m"), 1U);
}

/// Returns what the proof says of a damaged Program.
std::string verdict_on(const std::function<void(Program&)>& damage, const std::string& optimizer = "momentum") {
  Program program = program_of(job_with(optimizer));
  EXPECT_TRUE(verify_replication(program));
  damage(program);
  const Status status = verify_replication(program);
  return status ? "" : status.error().message;
}

std::uint32_t find(const Program& program, std::string_view name) {
  const auto& tensors = program.tensors();
  return static_cast<std::uint32_t>(
      std::ranges::find_if(tensors, [&](const auto& tensor) { return tensor.name() == name; }) - tensors.begin());
}

/// Returns the first step that fulfils the condition.
proto::Step& first(Program& program, const std::function<bool(const proto::Step&)>& condition) {
  for (proto::Step* step : steps_of(program)) {
    if (condition(*step)) {
      return *step;
    }
  }
  throw std::logic_error("the Program has no step of this kind");
}

TEST(ReplicationProof, ABatchIsNotCommon) {
  EXPECT_THAT(verdict_on([](Program& p) { p.mutable_tensors(static_cast<int>(find(p, "images")))->set_common(true); }),
              HasSubstr("'images' is common, but differs between replicas"));
}

TEST(ReplicationProof, AGradientIsReducedBeforeADivisibleStepReadsIt) {
  EXPECT_THAT(verdict_on([](Program& p) {
                proto::Step& reduce = first(p, [](const proto::Step& s) { return s.has_all_reduce(); });
                reduce.mutable_all_reduce()->clear_tensors();
                reduce.mutable_all_reduce()->clear_divisible();
                reduce.mutable_all_reduce()->clear_owners();
                for (proto::Step* step : steps_of(p)) {
                  step->clear_completes();
                }
              }),
              HasSubstr("differs between replicas, but the step is divisible"));
}

TEST(ReplicationProof, AGroupsSumIsNotEqualEverywhere) {
  EXPECT_THAT(verdict_on([](Program& p) {
                proto::Step& reduce = first(p, [](const proto::Step& s) { return s.has_all_reduce(); });
                reduce.mutable_all_reduce()->clear_divisible();
                reduce.mutable_all_reduce()->clear_owners();
                reduce.mutable_all_reduce()->set_group(1);
                for (proto::Step* step : steps_of(p)) {
                  step->clear_completes();
                }
              }),
              HasSubstr("differs between replicas"));
}

TEST(ReplicationProof, NobodyReadsAWholeTensorOfWhichEachReplicaHasAPart) {
  EXPECT_THAT(
      verdict_on([](Program& p) {
        first(p, [](const proto::Step& s) { return s.execute().divisible(); }).mutable_execute()->set_divisible(false);
      }),
      HasSubstr("is read whole, but each replica has only its part"));
}

TEST(ReplicationProof, OnlyDivisibleStepsWriteCommonTensors) {
  EXPECT_THAT(verdict_on([](Program& p) {
                for (proto::Step* step : steps_of(p)) {
                  step->clear_completes();
                  step->mutable_execute()->set_divisible(false);
                  if (step->has_all_reduce()) {
                    step->mutable_all_reduce()->clear_divisible();
                    step->mutable_all_reduce()->clear_owners();
                  }
                }
              }),
              HasSubstr("is common, but the step writes it whole"));
}

TEST(ReplicationProof, AllResultsOfAStepHaveOneOwner) {
  EXPECT_THAT(verdict_on([](Program& p) { p.mutable_tensors(static_cast<int>(find(p, "fc1.weight.v")))->set_owner(2); },
                         "lamb"),
              HasSubstr("'fc1.weight.v' is written by other replicas than its owner"));
}

TEST(ReplicationProof, OnlyTheOwnerReadsWhatItAloneHas) {
  const auto damage = [](Program& p) {
    first(p, [](const proto::Step& step) { return step.execute().operation() == "lamb"; })
        .mutable_execute()
        ->set_inputs(3, find(p, "fc1.weight.sums-of-squares"));
  };
  EXPECT_THAT(verdict_on(damage, "lamb"),
              HasSubstr("'fc1.weight.sums-of-squares' is read by other replicas than its owner"));
}

TEST(ReplicationProof, OnlyTheOwnerOfASumReadsIt) {
  const auto damage = [](Program& p) {
    proto::AllReduce& reduce =
        *first(p, [](const proto::Step& step) { return step.has_all_reduce(); }).mutable_all_reduce();
    const auto& divisible = reduce.divisible();
    reduce.set_owners(
        static_cast<int>(std::ranges::find(divisible, find(p, "fc1.weight.gradient")) - divisible.begin()), 2);
  };
  EXPECT_THAT(verdict_on(damage, "lamb"),
              HasSubstr("'fc1.weight.gradient' is read whole, but each replica has only its part"));
}

TEST(ReplicationProof, AnOwnerReadsWhatIsEqualOnAllReplicas) {
  const auto damage = [](Program& p) {
    first(p, [](const proto::Step& step) { return step.execute().operation() == "lamb_moments"; })
        .mutable_execute()
        ->set_inputs(1, find(p, "relu1"));
  };
  EXPECT_THAT(verdict_on(damage, "lamb"),
              HasSubstr("differs between replicas, but only one of them computes the step"));
}

TEST(ReplicationProof, WhatOnlyAnOwnerHasIsNotAlwaysLive) {
  const auto damage = [](Program& p) {
    p.mutable_tensors(static_cast<int>(find(p, "fc1.weight.sums-of-squares")))->set_always_live(true);
  };
  EXPECT_THAT(verdict_on(damage, "lamb"), HasSubstr("has an owner, but the host reads it on every replica"));
}

TEST(ReplicationProof, NothingLiesInTheBytesOfACommonTensor) {
  EXPECT_THAT(verdict_on([](Program& p) {
                const auto& weight = p.tensors(static_cast<int>(find(p, "fc1.weight")));
                p.mutable_tensors(static_cast<int>(find(p, "relu1")))
                    ->mutable_placement()
                    ->set_offset(weight.placement().offset());
              }),
              HasSubstr("'relu1' is in the bytes of a common tensor, but not common"));
}

TEST(ReplicationProof, ACommonTensorLiesInOneCommonVariable) {
  EXPECT_THAT(verdict_on([](Program& p) {
                proto::Tensor& rate = *p.mutable_tensors(static_cast<int>(find(p, "learning-rate")));
                rate.set_common(true);
                rate.clear_always_live();
              }),
              HasSubstr("'learning-rate' is common, but not in the bytes of one common variable"));
}

TEST(ReplicationProof, ADivisibleAllReduceIsOverAllReplicasAtOnce) {
  EXPECT_THAT(verdict_on([](Program& p) {
                first(p, [](const proto::Step& s) { return s.all_reduce().divisible_size() > 0; })
                    .mutable_all_reduce()
                    ->set_in_background(true);
              }),
              HasSubstr("is not reduced at once over all replicas"));
}

TEST(ReplicationProof, ADivisibleStepWritesOnlyCommonTensors) {
  EXPECT_THAT(
      verdict_on([](Program& p) { p.mutable_tensors(static_cast<int>(find(p, "fc2.weight")))->set_common(false); }),
      HasSubstr("'fc2.weight' is not common and updated elementwise, but the step is divisible"));
}

TEST(ReplicationProof, ACompleteTensorIsNotNamedBeforeItsAllReduce) {
  EXPECT_THAT(verdict_on([](Program& p) {
                const std::uint32_t gradient = find(p, "fc2.weight.gradient");
                proto::Step& later =
                    first(p, [](const proto::Step& s) { return s.execute().operation() == "linear_input_gradient"; });
                later.mutable_execute()->set_inputs(0, gradient);
              }),
              HasSubstr("'fc2.weight.gradient' is named after the step that completes it"));
}

// Later steps may read the bytes through the tensor that is viewed.
TEST(ReplicationProof, AViewCompletesNothing) {
  proto::RunConfig job = job_with("momentum");
  job.mutable_model()->set_name("mlp");
  job.mutable_memory()->set_in_place(true);
  Program program = program_of(job);
  const auto address = [&](std::uint32_t id) { return program.tensors(static_cast<int>(id)).placement().offset(); };
  proto::Step& view = first(program, [&](const proto::Step& step) {
    return step.execute().operation() == "reshape" &&
           address(step.execute().inputs(0)) == address(step.execute().outputs(0));
  });
  ASSERT_TRUE(verify_replication(program));

  view.add_completes(view.execute().outputs(0));

  const Status status = verify_replication(program);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("is completed by a view"));
}

TEST(ReplicationProof, ACompleteTensorIsReduced) {
  EXPECT_THAT(verdict_on([](Program& p) {
                proto::Step& step =
                    first(p, [](const proto::Step& s) { return s.execute().operation() == "softmax_cross_entropy"; });
                step.add_completes(find(p, "correct"));
              }),
              HasSubstr("'correct' is named after the step that completes it"));
}

}  // namespace
}  // namespace poprun::replication_test
