#include "replica/check/check.h"

#include <gmock/gmock.h>

#include "replica/check/check_variants.h"
#include "replica/check/records.h"
#include "replica/machine/machine.h"
#include "replica/models/layers/layers.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/texts.h"
#include "tests/unit/replica/training_job.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Returns a job with two micro-batches per step, so that a pipeline can overlap them.
proto::RunConfig job(std::uint32_t replicas) {
  proto::RunConfig config = testing::config(replicas, 4);
  config.mutable_training()->set_gradient_accumulation(2);
  config.mutable_check()->set_steps(2);
  config.mutable_pipeline()->set_schedule("grouped");  // As the launcher sends it.
  config.mutable_pipeline()->set_recomputation_memory(0.9);
  return config;
}

/// Changes the Program of a variant as a bug of the compiler could; nothing by default.
using Fault = std::function<void(const Variant&, Program&)>;

struct Checked {
  proto::CheckPlan plan;
  std::vector<proto::CheckedRun> runs;
  std::vector<Bytes> touched;  ///< Amounts of memory that replica 0 requested from its machine.
};

/// Runs a check on replicas that are threads, with `forward` instead of the job's model if given.
Checked check(
    const proto::RunConfig& config, std::vector<Variant> variants, const Fault& fault = [](const Variant&, Program&) {},
    const testing::Forward& forward = nullptr) {
  Checked checked;
  const std::uint32_t replicas = config.topology().num_replicas();
  auto world = LocalWorld::create({.replicas = replicas});
  EXPECT_TRUE(world);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r] {
      testing::Progress progress;
      const HostWeights none;
      TrainingOptions options = *training_options(config, testing::dataset());
      options.total_steps = config.check().steps();
      const Status status = run_check({.communicator = (*world)->communicator(ReplicaId{r}),
                                       .progress = progress,
                                       .streams =
                                           [&, r](JobStream stream, std::uint64_t /*first*/) {
                                             const bool train = stream == JobStream::kTrain;
                                             return std::make_unique<testing::SampleStream>(
                                                 train ? 0 : 1'000'000, train ? ~std::uint64_t{0} : 24, r, replicas, 4);
                                           },
                                       .initial_weights = none,
                                       .check_host =
                                           [&, r](Bytes more) {
                                             if (r == 0) {
                                               checked.touched.push_back(more);
                                             }
                                             return Status{};
                                           },
                                       .variants =
                                           [&] {
                                             return Result<CheckedVariants>({variants, {}});
                                           },
                                       .compile = [&](const Variant& variant) -> Result<Program> {
                                         POPRUN_ASSIGN(CompileOptions compile,
                                                       compile_options(config_of(variant, config), testing::dataset()));
                                         compile.forward = forward ? forward : compile.forward;
                                         POPRUN_ASSIGN(Program program, plan_program(compile));
                                         fault(variant, program);
                                         return program;
                                       },
                                       .report =
                                           [&](const proto::ReportItem& item) {
                                             if (item.has_check_plan()) {
                                               checked.plan = item.check_plan();
                                             } else {
                                               checked.runs.push_back(item.checked_run());
                                             }
                                           }},
                                      options);
      EXPECT_TRUE(status) << status.error().message;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return checked;
}

const Variant kPlain{1, 1, "4", Schedule::kSequential, Recomputation::kNone};
const Variant kGrouped{2, 2, "2 2", Schedule::kGrouped, Recomputation::kNone};
const Variant kInterleaved{2, 2, "2 2", Schedule::kInterleaved, Recomputation::kNone};

TEST(Check, FindsEverySchedulesBitsEqualToThePlainOnes) {
  const Checked checked = check(job(2), {kPlain, kGrouped, kInterleaved});

  EXPECT_EQ(checked.plan.runs(), 3U);
  EXPECT_EQ(checked.plan.steps(), 2U);
  EXPECT_THAT(checked.plan.combinations(),
              ElementsAre("1 IPU, recomputation none", "2 IPUs, grouped, recomputation none",
                          "2 IPUs, interleaved, recomputation none"));
  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[0].verdict(), proto::CheckedRun::REFERENCE);
  EXPECT_GT(checked.runs[0].wall_step_seconds(), 0);
  for (std::size_t k = 1; k < 3; ++k) {
    const proto::CheckedRun& run = checked.runs[k];
    EXPECT_EQ(run.verdict(), proto::CheckedRun::EQUAL) << run.DebugString();
    EXPECT_LT(run.utilisation(), 1);
    EXPECT_GT(run.wall_step_seconds(), 0);
    EXPECT_LT(run.peak_bytes(), checked.runs[0].peak_bytes());
  }
}

/// Replaces `operation` by `other` in the first step that executes it in a part whose name begins with `part`.
bool replace_operation(Program& program, const std::string& operation, const std::string& other,
                       const std::string& part = "") {
  for (proto::Function& function : *program.mutable_functions()) {
    for (proto::Step& step : *function.mutable_steps()) {
      if (function.has_part() && function.name().starts_with(part) && step.execute().operation() == operation) {
        step.mutable_execute()->set_operation(other);
        return true;
      }
    }
  }
  return false;
}

TEST(Check, NamesTheFirstValueThatAPlantedFaultChanges) {
  const Checked checked = check(job(2), {kPlain, kGrouped, kInterleaved}, [](const Variant& variant, Program& program) {
    if (variant == kGrouped) {
      EXPECT_TRUE(replace_operation(program, "relu", "tanh"));
    }
  });

  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[1].verdict(), proto::CheckedRun::DIFFERENT);
  EXPECT_THAT(checked.runs[1].detail(), HasSubstr("step 1, replica 0: "));
  EXPECT_THAT(checked.runs[1].detail(),
              HasSubstr("the first value that differs is 'relu1' of tanh in micro-batch 1, forward "
                        "part of stage 0 on IPU 0"));
  EXPECT_EQ(checked.runs[2].verdict(), proto::CheckedRun::EQUAL);
}

/// Removes the first step that writes `tensor` in a function whose name begins with `function`.
bool remove_writer(Program& program, const std::string& function, const std::string& tensor) {
  for (proto::Function& f : *program.mutable_functions()) {
    for (int s = 0; f.name().starts_with(function) && s < f.steps_size(); ++s) {
      for (const std::uint32_t id : tensors_of(f.steps(s)).writes) {
        if (program.tensors(static_cast<int>(id)).name() == tensor) {
          f.mutable_steps()->DeleteSubrange(s, 1);
          return true;
        }
      }
    }
  }
  return false;
}

TEST(Check, NotesThatAVariantReadsWhatOnlyAnEarlierRunWrote) {
  proto::RunConfig config = job(2);
  config.mutable_training()->set_learning_rate(0);  // Weights stay as an earlier run left them.
  const Variant recomputing{1, 1, "4", Schedule::kSequential, Recomputation::kLayer};

  const Checked checked = check(config, {kPlain, recomputing}, [&](const Variant& variant, Program& program) {
    if (variant == recomputing) {
      program = *plan_program(*compile_options(config_of(kPlain, config), testing::dataset()));
      EXPECT_TRUE(remove_writer(program, "load", "fc2.weight"));
    }
  });

  ASSERT_THAT(checked.runs, SizeIs(2));
  EXPECT_EQ(checked.runs[1].verdict(), proto::CheckedRun::DIFFERENT);
  EXPECT_THAT(checked.runs[1].detail(), StartsWith("step 1, replica 0: "));
  EXPECT_THAT(checked.runs[1].detail(), HasSubstr("differs is 'fc2' of linear in micro-batch 1"));
}

/// Looks up the logits of each label in two tables, one for 10 labels and one for 8.
ModelOutputs two_tables(Builder& builder, const std::vector<TensorId>& tensors, bool /*training*/) {
  const ModelInputs inputs{.names = {"images", "labels"}, .tensors = tensors, .classes = 10, .sizes = {}};
  builder.layer("tables");
  const auto look_up = [&](const std::string& name, std::int64_t rows, Attributes attributes) {
    const TensorType type{DataType::kF32, {rows, 10}, Layout::kRowMajor};
    const TensorId table = builder.variable(name, type, Role::kParameter, {.value = 1});
    attributes.set("axis", std::int64_t{0});
    return builder.add_one("gather", {table, tensors[1]}, attributes, name + ".rows");
  };
  const TensorId big = look_up("big", 10, {});
  const TensorId small = look_up("small", 8, {{"outside", "zeros"}});
  return layers::score(builder, builder.add_one("add", {big, small}, {}, "logits"), inputs, "loss");
}

/// Makes the first training step look labels up in the small table alone.
bool look_up_in_small_table(Program& program) {
  const auto small = std::ranges::find(program.tensors(), "small", &proto::Tensor::name);
  for (proto::Function& function : *program.mutable_functions()) {
    for (proto::Step& step : *function.mutable_steps()) {
      if (!function.name().starts_with("eval") && step.execute().operation() == "gather") {
        step.mutable_execute()->set_inputs(0, static_cast<std::uint32_t>(small - program.tensors().begin()));
        return true;
      }
    }
  }
  return false;
}

/// In the only step, the labels of replica 0 are 4 5 8 6 and those of replica 1 are 0 1 0 5. Replica 1 must not be left
/// waiting in an exchange.
TEST(Check, ReportsAnIndexOutOfRangeOnOneReplicaAsADifference) {
  proto::RunConfig config = job(2);
  config.mutable_training()->set_gradient_accumulation(1);
  config.mutable_check()->set_steps(1);
  const Variant recomputing{1, 1, "4", Schedule::kSequential, Recomputation::kLayer};
  const Variant goes_on{1, 1, "4", Schedule::kSequential, Recomputation::kAll};

  const Checked checked = check(
      config, {kPlain, recomputing, goes_on},
      [&](const Variant& variant, Program& program) {
        if (variant == recomputing) {
          EXPECT_TRUE(look_up_in_small_table(program));
        }
      },
      two_tables);

  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[1].verdict(), proto::CheckedRun::DIFFERENT);
  EXPECT_EQ(checked.runs[1].detail(),
            "index 8 in element 2 of 'labels' i32[4] is out of range for gather 'big.rows', which "
            "accepts indices -8 to 7 of 'small' f32[8,10], in step 1 on replica 0");
  EXPECT_EQ(checked.runs[2].verdict(), proto::CheckedRun::EQUAL);
}

/// Returns the peak of the images' bytes on the IPU that needs most.
std::int64_t images_of(const Variant& variant, const proto::RunConfig& config) {
  const auto program = plan_program(*compile_options(config_of(variant, config), testing::dataset()));
  EXPECT_TRUE(program);
  std::uint64_t most = 0;
  for (const proto::IpuMemory& memory : program->memory()) {
    most = std::max(most, memory.images_peak());
  }
  return static_cast<std::int64_t>(most);
}

TEST(Check, AsksForTheMemoryThatNoEarlierRunTouched) {
  const Checked checked = check(job(2), {kGrouped, kPlain, kInterleaved});

  ASSERT_THAT(checked.runs, SizeIs(3));
  ASSERT_THAT(checked.touched, SizeIs(::testing::Ge(2U)));
  EXPECT_EQ(checked.runs[0].verdict(), proto::CheckedRun::REFERENCE);
  const std::int64_t grouped = images_of(kGrouped, job(2));
  const std::int64_t plain = images_of(kPlain, job(2));
  EXPECT_GT(checked.touched[0].count(), grouped) << "on both IPUs";
  EXPECT_LT(checked.touched[0].count(), 2 * grouped);
  EXPECT_GE(checked.touched[1].count(), plain - grouped);
  EXPECT_LT(checked.touched[1].count(), plain);
}

TEST(Check, NamesTheFirstValueThatDiffersInTheEvaluationAlone) {
  const Checked checked = check(job(2), {kPlain, kGrouped}, [](const Variant& variant, Program& program) {
    if (variant == kGrouped) {
      EXPECT_TRUE(replace_operation(program, "relu", "tanh", "evaluate"));
    }
  });

  ASSERT_THAT(checked.runs, SizeIs(2));
  EXPECT_EQ(checked.runs[1].verdict(), proto::CheckedRun::DIFFERENT);
  EXPECT_THAT(checked.runs[1].detail(), StartsWith("evaluation after step 2, replica 0: the "));
  EXPECT_THAT(checked.runs[1].detail(),
              HasSubstr("; the first value that differs is 'evaluate/relu1' of tanh in batch 1, "
                        "forward part of stage 0 on IPU 0"));
}

TEST(Check, GivesStandardAMemoryGoalThatMakesItRecompute) {
  const Variant standard{2, 2, "2 2", Schedule::kGrouped, Recomputation::kStandard};

  const Checked checked = check(job(1), {kPlain, kGrouped, standard});

  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[2].verdict(), proto::CheckedRun::EQUAL);
  EXPECT_EQ(checked.runs[2].same_as(), "");
  EXPECT_LT(checked.runs[2].recomputation_memory(), 0.1);
  EXPECT_GT(checked.runs[2].device_step_seconds(), checked.runs[1].device_step_seconds());
}

TEST(Check, DoesNotRunAProgramThatItHasRun) {
  const Variant all{2, 2, "2 2", Schedule::kGrouped, Recomputation::kAll};

  const Checked checked = check(job(1), {kPlain, kGrouped, all}, [&](const Variant& variant, Program& program) {
    if (variant == all) {
      program = *plan_program(*compile_options(config_of(kGrouped, job(1)), testing::dataset()));
    }
  });

  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[2].verdict(), proto::CheckedRun::EQUAL);
  EXPECT_EQ(checked.runs[2].same_as(), "2 IPUs, grouped, recomputation none");
  EXPECT_EQ(checked.runs[2].wall_step_seconds(), 0);
}

TEST(Check, TakesTheFirstVariantThatFitsForItsReference) {
  const Checked checked = check(job(1), {kPlain, kGrouped, kInterleaved}, [](const Variant& variant, Program& program) {
    if (variant == kPlain) {
      proto::IpuMemory& memory = *program.mutable_memory(0);
      memory.set_fullest_tile_peak(memory.bytes_per_tile() + 8);
    }
  });

  ASSERT_THAT(checked.runs, SizeIs(3));
  EXPECT_EQ(checked.runs[0].verdict(), proto::CheckedRun::PROVEN);
  EXPECT_EQ(checked.runs[0].peak_bytes(), checked.runs[0].capacity_bytes() + 1472 * 8);
  EXPECT_EQ(checked.runs[1].verdict(), proto::CheckedRun::REFERENCE);
  EXPECT_EQ(checked.runs[2].verdict(), proto::CheckedRun::EQUAL);
}

TEST(StateDifference, IsTheFirstStepsFirstName) {
  const std::vector<StateDigests> reference = {{{"a", {1}}, {"b", {2}}}, {{"a", {3}}, {"b", {4}}}};
  std::vector<StateDigests> other = reference;
  other[0]["a@1"] = {.whole = 7};
  EXPECT_FALSE(first_difference(reference, other));

  other[1]["b"] = {.whole = 5};
  ASSERT_TRUE(first_difference(reference, other));
  EXPECT_EQ(first_difference(reference, other)->step, 2U);
  EXPECT_EQ(first_difference(reference, other)->name, "b");

  other[0].erase("a");
  EXPECT_EQ(first_difference(reference, other)->name, "a");
}

TEST(Variants, AreEveryScheduleWithEveryRecomputationAndSomeOutlined) {
  const std::vector<Spread> spreads = {{2, 2, "2 2"}, {4, 4, "1 1 1 1"}};

  const std::vector<Variant> variants = all_variants("4", spreads);

  constexpr std::size_t kPipelines = 5 + 2 * 15;
  constexpr std::size_t kPlaced = 1 + 2;
  ASSERT_THAT(variants, SizeIs(kPipelines + kPlaced + 2 * 7 + 2 + 3 * 2));
  EXPECT_EQ(variants[0], kPlain);
  EXPECT_EQ(to_text(variants[0]), "1 IPU, recomputation none");
  EXPECT_EQ(to_text(variants[kPipelines - 1]), "4 IPUs, interleaved, recomputation all");
  EXPECT_EQ(to_text(variants[kPipelines + kPlaced]), "2 phases on 1 IPU, recomputation none");
  EXPECT_EQ(to_text(variants[variants.size() - 7]), "4 phases on 2 IPUs, recomputation pipeline, off-chip");
  EXPECT_EQ(to_text(variants.back()), "4 IPUs, grouped, recomputation all, outlined");
}

TEST(Variants, InPhasesAreTheirStagesInTurns) {
  proto::RunConfig config = job(1);
  config.mutable_pipeline()->add_device_mapping(0);
  const Variant phased = all_variants("4", std::vector<Spread>{{3, 3, "1 1 2"}}).end()[-5];

  const proto::RunConfig made = config_of(phased, config);

  EXPECT_EQ(made.memory().phases(), 3U);
  EXPECT_EQ(made.memory().phase_ipus(), 2U);
  EXPECT_EQ(made.topology().ipus_per_replica(), 2U);
  EXPECT_THAT(made.pipeline().device_mapping(), IsEmpty());
  config.mutable_memory()->set_phases(7);
  EXPECT_EQ(config_of(kPlain, config).memory().phases(), 1U);
}

TEST(Variants, HaveTheJobsOwnStagesOrBalancedOnes) {
  proto::RunConfig config = job(1);
  config.mutable_topology()->set_ipus_per_replica(2);
  config.mutable_pipeline()->add_layers_per_ipu(1);
  config.mutable_pipeline()->add_layers_per_ipu(3);
  const Variant own{2, 2, "1 3", Schedule::kInterleaved, Recomputation::kNone, true};

  EXPECT_THAT(default_ipus(config), ElementsAre(2));
  EXPECT_EQ(config_of(own, config).pipeline().layers_per_ipu_size(), 2);
  EXPECT_EQ(config_of(own, config).pipeline().schedule(), "interleaved");
  EXPECT_THAT(config_of(kGrouped, config).pipeline().layers_per_ipu(), IsEmpty());
  EXPECT_THAT(config_of(kPlain, config).pipeline().layers_per_ipu(), IsEmpty());
  EXPECT_EQ(config_of(kPlain, config).topology().ipus_per_replica(), 1U);
}

TEST(CheckVariants, GoAsFarAsTheModelHasLayers) {
  const auto checked = check_variants(job(1), testing::dataset(), nullptr);

  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_THAT(checked->variants, SizeIs(5 + 3 * 15 + (1 + 3) + 3 * 7 + 2 + 4 * 2));
  EXPECT_EQ(checked->variants.back().split, "1 1 1 1");
  EXPECT_THAT(config_of(checked->variants.back(), job(1)).pipeline().split(), ElementsAre("conv2", "fc1", "fc2"))
      << "all combinations have the split that was found once";
  EXPECT_THAT(checked->notes, IsEmpty());
}

TEST(CheckVariants, UseAsManyIpusAsAreAskedForEvenIfSomeHaveNoLayer) {
  const std::string note = "runs on 5 IPUs use only 4 of them: small-cnn has 4 layers (conv1, conv2, fc1, fc2)";
  proto::RunConfig by_check = job(1);
  by_check.mutable_check()->add_ipus(5);
  proto::RunConfig by_job = job(1);
  by_job.mutable_topology()->set_ipus_per_replica(5);

  for (const proto::RunConfig& config : {by_check, by_job}) {
    const auto checked = check_variants(config, testing::dataset(), nullptr);
    ASSERT_TRUE(checked) << checked.error().message;
    EXPECT_EQ(std::ranges::max(checked->variants, {}, &Variant::ipus).ipus, 5U);
    EXPECT_THAT(testing::texts(checked->notes), ElementsAre(note));
  }
}

TEST(CheckVariants, SayWhichRowsHaveTheJobsOwnStages) {
  proto::RunConfig config = job(1);
  config.mutable_topology()->set_ipus_per_replica(2);
  config.mutable_pipeline()->add_layers_per_ipu(1);
  config.mutable_pipeline()->add_layers_per_ipu(3);
  config.mutable_check()->add_ipus(3);

  EXPECT_THAT(testing::texts(check_variants(config, testing::dataset(), nullptr)->notes),
              ElementsAre("no row uses the job's own stages (pipeline.layers-per-ipu = 1 3): they "
                          "are for 2 IPUs, which --check-ipus leaves out; rows on 3 IPUs use balanced stages; rows "
                          "without a schedule have a single stage"));

  config.mutable_check()->add_ipus(2);
  const auto both = check_variants(config, testing::dataset(), nullptr);
  EXPECT_THAT(testing::texts(both->notes),
              ElementsAre("rows on 2 IPUs with split 1 3 use the job's own stages "
                          "(pipeline.layers-per-ipu = 1 3); rows on 3 IPUs use balanced stages; rows "
                          "without a schedule have a single stage"));
  EXPECT_EQ(both->variants.back().split, "1 3");
}

TEST(CheckVariants, HaveStagesThatShareTheOnlyIpu) {
  proto::RunConfig config = job(1);
  config.mutable_pipeline()->add_layers_per_ipu(1);
  config.mutable_pipeline()->add_layers_per_ipu(3);
  config.mutable_pipeline()->add_device_mapping(0);
  config.mutable_pipeline()->add_device_mapping(0);
  config.mutable_check()->add_ipus(2);

  const auto checked = check_variants(config, testing::dataset(), nullptr);

  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_THAT(checked->variants, SizeIs(5 + 2 * 15 + (1 + 2) + 2 * 7 + 2 + 3 * 2));
  EXPECT_EQ(to_text(checked->variants[0]), "1 IPU, recomputation none");
  EXPECT_EQ(to_text(checked->variants[5]), "1 IPU, sequential, recomputation none");
  EXPECT_TRUE(checked->variants[5].own_stages);
  EXPECT_FALSE(checked->variants.back().own_stages);
}

TEST(CheckVariants, NeedMoreStagesThanOne) {
  proto::RunConfig config = job(1);
  config.mutable_topology()->set_ipus_per_replica(2);
  config.mutable_pipeline()->add_layers_per_ipu(4);

  EXPECT_EQ(check_variants(config, testing::dataset(), nullptr).error().message,
            "check needs several stages, but pipeline.layers-per-ipu = 4 results in only one; let the compiler choose "
            "the stages, or choose other numbers of IPUs with --check-ipus");
}

TEST(CheckVariants, SayThatOneMicroBatchComparesLittle) {
  proto::RunConfig config = job(1);
  config.mutable_training()->set_gradient_accumulation(1);

  EXPECT_THAT(testing::texts(check_variants(config, testing::dataset(), nullptr)->notes),
              ElementsAre(HasSubstr("add --training.gradient-accumulation 8")));
}

TEST(CheckVariants, LeaveOutIpusThatWouldHaveNoLayer) {
  proto::RunConfig config = job(1);
  config.mutable_model()->set_name("mlp");
  (*config.mutable_model()->mutable_sizes())["layers"] = 1;

  const auto checked = check_variants(config, testing::dataset(), nullptr);

  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_EQ(checked->variants.back().ipus, 2U);
  EXPECT_THAT(testing::texts(checked->notes),
              ElementsAre("no runs on 3 IPUs: mlp has 2 layers (fc1, fc2), and each IPU needs at least one layer",
                          "no runs on 4 IPUs: mlp has 2 layers (fc1, fc2), and each IPU needs at least one layer"));
}

TEST(CheckVariants, NeedAModelThatCanBeCut) {
  testing::OnnxBuilder file;
  file.input("image", {-1, 1, 28, 28}).output("logits", {-1, 10});
  file.node("Flatten", {"image"}, {"features"}).set_name("/Flatten");
  file.weight("fc.weight", {784, 10}, std::vector<float>(7840, 0.5F));
  file.node("MatMul", {"features", "fc.weight"}, {"logits"}).set_name("/fc/MatMul");
  proto::RunConfig config = job(1);
  config.mutable_model()->set_name("net.onnx");

  const auto checked =
      check_variants(config, testing::dataset(),
                     *onnx_import::JobModel::parse("net.onnx", file.model.SerializeAsString(), Loss::kCrossEntropy));

  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
  EXPECT_EQ(checked.error().message,
            "check needs a model that can be spread over IPUs, but net.onnx has 1 layer (logits)");
}

}  // namespace
}  // namespace poprun
