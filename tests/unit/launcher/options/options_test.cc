#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include "hostio/datasets/dataset.h"
#include "launcher/options/config_file.h"
#include "launcher/options/help.h"
#include "launcher/options/parse.h"
#include "replica/device/device.h"
#include "replica/ops/optimizers/optimizer.h"
#include "tests/unit/launcher/parsed_options.h"

namespace poprun::launcher {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Options, BatchNormsAreFoldedInInferenceOnly) {
  EXPECT_EQ(error_of({"--model.fold-batch-norm", "true"}),
            "model.fold-batch-norm = true needs model.mode = inference: in training, batch norms use the statistics of "
            "each batch; remove model.fold-batch-norm, or set model.mode");
  const auto options = parse({"--model.fold-batch-norm", "true", "--model.mode", "inference"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_TRUE(options->config.model().fold_batch_norm());
}

TEST(Options, TilesAreExactWhereAskedFor) {
  const auto options = parse({"--memory.tiles", "exact", "--device.tiles", "24", "--device.bytes-per-tile", "1048576"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.memory().tiles(), "exact");
  EXPECT_EQ(options->config.device().tiles(), 24U);
  EXPECT_EQ(options->config.device().bytes_per_tile(), 1048576U);
  EXPECT_EQ(error_of({"--memory.tiles", "exact", "--training.gradient-bucket", "1"}),
            "memory.tiles = exact cannot be combined with training.gradient-bucket, whose exchanges overlap with other "
            "operations; leave out one of them");
}

TEST(Options, TheHostsShareOfAStepIsThatOfAFrameworkOrANumberOfSeconds) {
  const auto host_call = [](const char* value) {
    return parse({"--device.host-call", value})->config.device().host_call();
  };
  EXPECT_EQ(parse({})->config.device().host_call(), "");
  EXPECT_EQ(host_call("none"), "");
  EXPECT_EQ(host_call("popart"), "popart");
  EXPECT_EQ(host_call("0.25"), "0.25");
  for (const char* wrong : {"tensorflow", "-1", "3601", "nan", "1 s"}) {
    EXPECT_THAT(error_of({"--device.host-call", wrong}),
                HasSubstr("none, popart, poptorch or a number of seconds from 0 to 3600"))
        << wrong;
  }
}

TEST(Options, SomeTilesCanBeForTransfersAlone) {
  EXPECT_EQ(parse({})->config.device().io_tiles(), 0U);
  EXPECT_EQ(parse({"--device.io-tiles", "128"})->config.device().io_tiles(), 128U);
  EXPECT_EQ(error_of({"--numIOTiles", "128"}), "--numIOTiles: unknown option; did you mean --device.io-tiles?");
}

TEST(Options, MicroBatchesCanBeComputedInEqualPieces) {
  EXPECT_EQ(parse({})->config.data().compute_batch_size(), 0U);
  const Args micro = {"--data.micro-batch-size", "12", "--data.compute-batch-size"};
  const auto with = [&](const std::string& size) {
    Args args = micro;
    args.push_back(size);
    return args;
  };
  EXPECT_EQ(parse(with("4"))->config.data().compute_batch_size(), 4U);
  EXPECT_EQ(error_of(with("5")), "data.compute-batch-size = 5 does not divide data.micro-batch-size = 12; use 4");
  EXPECT_EQ(error_of(with("24")), "data.compute-batch-size = 24 does not divide data.micro-batch-size = 12; use 12");
  Args inference = with("4");
  inference.insert(inference.end(), {"--model.mode", "inference", "--model.initial-weights", "w"});
  EXPECT_THAT(parse(inference)->notes,
              Contains(StartsWith("data.compute-batch-size = 4 has no effect with model.mode = "
                                  "inference")));
  Args accumulators = with("4");
  accumulators.insert(accumulators.end(), {"--training.gradient-accumulation-kind", "sum"});
  EXPECT_THAT(parse(accumulators)->notes, IsEmpty()) << "gradients of pieces are accumulated";
}

TEST(Options, OperatorsCanRunInPlace) {
  const auto options = parse({"--memory.in-place", "true"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_TRUE(options->config.memory().in_place());
}

TEST(Options, EqualRunsShareCodeWhereAskedFor) {
  const auto options = parse({"--memory.outlining", "on"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.memory().outlining(), "on");
  EXPECT_EQ(error_of({"--memory.outlining", "on", "--report.dump-tensors", "conv1@1"}),
            "memory.outlining = on cannot be combined with report.dump-tensors, since layers that "
            "share a function do not keep the names of their tensors; leave out one of them");
}

TEST(Options, SizesOfWhatIsNeitherOffTheChipNorShardedHaveNoEffect) {
  const Args sizes = {"--memory.off-chip-min-elements", "5", "--memory.sharding-min-elements", "6",
                      "--memory.sharding-group",        "1"};
  const auto options = parse(sizes);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->notes, ElementsAre("memory.off-chip-min-elements = 5 has no effect: nothing is off-chip or "
                                          "auto",
                                          "memory.sharding-min-elements = 6 has no effect: "
                                          "memory.replicated-tensor-sharding is empty",
                                          "memory.sharding-group = 1 has no effect: "
                                          "memory.replicated-tensor-sharding is empty"));
  Args used = sizes;
  used.insert(used.end(), {"--memory.weights", "auto", "--memory.replicated-tensor-sharding", "weights"});
  EXPECT_THAT(parse(used)->notes, IsEmpty());
  Args checked = sizes;
  checked.insert(checked.begin(), "check");
  EXPECT_THAT(parse(checked)->notes, IsEmpty());
}

TEST(Options, DefaultsFillTheWholeConfiguration) {
  const auto options = parse({});

  ASSERT_TRUE(options) << options.error().message;
  const proto::RunConfig& config = options->config;
  EXPECT_EQ(config.model().name(), "small-cnn");
  EXPECT_EQ(config.data().source(), "fashion-mnist");
  EXPECT_EQ(config.data().micro_batch_size(), 16U);
  EXPECT_EQ(config.data().prefetch_batches(), 4U);
  EXPECT_EQ(config.training().optimizer(), "momentum");
  EXPECT_EQ(config.training().learning_rate(), 0.05);
  EXPECT_EQ(config.training().hyper_parameters().at("momentum"), 0.9);
  EXPECT_EQ(config.training().gradient_accumulation(), 1U);
  EXPECT_EQ(config.training().seed(), 42U);
  EXPECT_TRUE(config.training().evaluate());
  EXPECT_FALSE(config.memory().poison_dead());
  EXPECT_TRUE(config.memory().in_place());
  EXPECT_EQ(config.memory().outlining(), "auto");
  EXPECT_FALSE(config.model().fold_batch_norm());
  EXPECT_EQ(config.device().ipu(), "mk2");
  EXPECT_EQ(config.topology().num_replicas(), 1U);
  EXPECT_EQ(config.topology().num_instances(), 1U);
  EXPECT_EQ(options->output.dir, "poprun-emu-out");
  EXPECT_EQ(options->hostio.timeout_seconds, 60U);
  EXPECT_EQ(options->timeouts.heartbeat_seconds, 30);
  EXPECT_EQ(options->timeouts.collective_seconds, 120U);
  EXPECT_THAT(options->notes, IsEmpty());
}

TEST(Options, CommandLineOverridesFileOverridesDefault) {
  const auto options = parse({"--training.seed", "9"}, "[training]\nseed = 8\nepochs = 3\n");

  ASSERT_TRUE(options);
  EXPECT_EQ(options->config.training().seed(), 9U);
  EXPECT_EQ(options->config.training().epochs(), 3U);
  EXPECT_THAT(resolved_config(*options), HasSubstr("seed = 9                                 # command line\n"));
  EXPECT_THAT(resolved_config(*options), HasSubstr("epochs = 3                               # file\n"));
  EXPECT_THAT(resolved_config(*options), HasSubstr("momentum = 0.9                           # default\n"));
}

TEST(Options, ResolvedConfigurationIsATrainCfgOfTheSameJob) {
  const auto options = parse({"--training.seed", "9", "--memory.poison-dead", "on"});
  ASSERT_TRUE(options);

  const auto again = parse({}, resolved_config(*options));

  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(MessageDifferencer::Equals(again->config, options->config));
}

TEST(Options, ResolvedConfigurationOfAnOnnxJobIsATrainCfgToo) {
  const auto options = parse({"--model.onnx", "file.onnx", "--model.precision", "half"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.model().loss(), "cross-entropy");

  const auto again = parse({}, resolved_config(*options));

  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(MessageDifferencer::Equals(again->config, options->config));
}

TEST(Options, OfSumsOfGradientsRefuseALearningRateThatGrowsWithTheBatch) {
  EXPECT_EQ(error_of({"--training.scale-learning-rate", "32", "--training.gradient-reduction", "sum"}),
            "training.scale-learning-rate = 32 needs averaged gradients, but training.gradient-reduction is sum; "
            "remove one of these settings");
  EXPECT_THAT(error_of({"--training.scale-learning-rate", "32", "--training.gradient-accumulation-kind", "sum"}),
              HasSubstr("but training.gradient-accumulation-kind is sum"));
}

TEST(Options, OfAccumulatorsNeedAccumulation) {
  const auto notes = [](Args args) { return parse(std::move(args))->notes; };
  EXPECT_THAT(notes({"--training.gradient-accumulation-kind", "sum"}),
              ElementsAre("training.gradient-accumulation-kind = sum has no effect with "
                          "training.gradient-accumulation = 1"));
  EXPECT_THAT(notes({"--training.accumulator-precision", "float"}), SizeIs(1));
  EXPECT_THAT(notes({"--training.accumulator-precision", "float", "--training.gradient-accumulation", "2"}), IsEmpty());
}

TEST(Options, OfHalfPrecisionNeedIt) {
  EXPECT_EQ(error_of({"--training.accumulator-precision", "half"}),
            "training.accumulator-precision = half needs model.precision = half, but it is float");
  EXPECT_EQ(parse({"--model.partials", "half"}).error().message,
            "model.partials = half needs model.precision = half, but it is float");
  EXPECT_FALSE(parse({"--training.master-weights", "true"}));
  EXPECT_EQ(parse({"--model.precision", "half"})->config.training().loss_scaling(), 0);
  EXPECT_EQ(parse({})->config.training().loss_scaling(), 1);
  EXPECT_EQ(parse({"--training.loss-scaling", "64"})->config.training().loss_scaling(), 64);
  EXPECT_FALSE(parse({"--training.loss-scaling", "0"}));
}

TEST(Options, TakeEveryFormOfANumberOfReplicas) {
  for (const Args& form :
       {Args{"-n", "16"}, Args{"-n16"}, Args{"-n=16"}, Args{"--num-replicas=16"}, Args{"--num-replicas", "16"}}) {
    const auto options = parse(form);
    ASSERT_TRUE(options) << form[0] << ": " << options.error().message;
    EXPECT_EQ(options->config.topology().num_replicas(), 16U) << form[0];
    EXPECT_EQ(options->config.topology().num_instances(), 16U) << form[0];
  }
}

TEST(Options, TakePoprunsBooleansWithAndWithoutAValue) {
  EXPECT_TRUE(parse({"--dry-run"})->dry_run);
  EXPECT_TRUE(parse({"--dry-run", "yes"})->dry_run);
  EXPECT_FALSE(parse({"--dry-run=off"})->dry_run);
  EXPECT_TRUE(parse({"--print-topology", "1", "--overwrite"})->print_topology);
  EXPECT_FALSE(parse({})->config.memory().allow_out_of_memory());
  EXPECT_TRUE(parse({"--allow-out-of-memory"})->config.memory().allow_out_of_memory());
  EXPECT_EQ(error_of({"--dry-run=maybe"}),
            "--dry-run = maybe is not allowed; allowed: yes, no, on, off, true, false, 1 or 0");
}

TEST(Options, CountVerbosityAsPoprunDoes) {
  EXPECT_EQ(parse({"-v"})->verbosity, 1U);
  EXPECT_EQ(parse({"-vv"})->verbosity, 2U);
  EXPECT_EQ(parse({"--vv"})->verbosity, 2U);
  EXPECT_EQ(parse({"--verbose", "2"})->verbosity, 2U);
  EXPECT_EQ(parse({"-v", "0"})->verbosity, 0U);
  EXPECT_EQ(parse({"--verbose=1"})->verbosity, 1U);
  EXPECT_EQ(parse({"--debug"})->verbosity, 2U);
  EXPECT_EQ(parse({"--debug", "-v"})->verbosity, 2U);
  EXPECT_EQ(parse({"-v", "--debug=no"})->verbosity, 1U);
}

TEST(Options, ThatLackTheirValueDoNotTakeTheNextOptionForIt) {
  EXPECT_EQ(error_of({"--output-dir", "--dry-run"}), "--output-dir: needs a value");
  EXPECT_EQ(error_of({"--output-dir", "--training.seed=3"}), "--output-dir: needs a value");
  EXPECT_EQ(error_of({"-n", "--overwrite"}), "--num-replicas: needs a value");
  EXPECT_EQ(error_of({"--training.nesterov", "-v"}), "--training.nesterov: needs a value");
  EXPECT_EQ(parse({"--output-dir", "--mine"})->output.dir, "--mine");
  EXPECT_EQ(parse({"--output-dir=--dry-run"})->output.dir, "--dry-run");
}

TEST(Options, OfMpirunAreItsOwnEvenWhereOursAreCalledAlike) {
  const auto options = parse({"--mpi-global-args", "--allow-run-as-root", "--mpi-local-args", "-v", "--overwrite"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->mpirun.global_args, ElementsAre("--allow-run-as-root"));
  EXPECT_THAT(options->mpirun.local_args, ElementsAre("-v"));
  EXPECT_TRUE(options->output.overwrite);
}

TEST(Options, RepeatedOptionsAccumulateAndAreSplitAsInAShell) {
  const auto options = parse({"--mpi-global-args=--mca a b", "--mpi-global-args", "--timestamp-output",
                              "--mpi-local-args", "-x 'A=1 2'", "-H", "n0", "--host", "n[1-2]"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->mpirun.global_args, ElementsAre("--mca", "a", "b", "--timestamp-output"));
  EXPECT_THAT(options->mpirun.local_args, ElementsAre("-x", "A=1 2"));
  EXPECT_THAT(options->hosts.lists, ElementsAre("n0", "n[1-2]"));
}

TEST(Options, OfRealPodsAreAcceptedWithOneNote) {
  const auto options =
      parse({"--vipu-partition=p", "--numa-aware", "yes", "--allow-run-as-root", "--process-placement", "spreadnuma"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->notes.size(), 4U);
  EXPECT_EQ(options->notes[0], "--allow-run-as-root has no effect: root is always allowed");
  EXPECT_THAT(options->notes[3], HasSubstr("there is no IPU hardware to act on"));
}

TEST(Options, ForRestartsAreNotedWhereThereIsNoCheckpointToGoOnFrom) {
  EXPECT_THAT(parse({"--restarts", "2"})->notes, ElementsAre(StartsWith("--restarts without --checkpoint-every: ")));
  EXPECT_THAT(parse({"--restarts", "2", "--checkpoint-every", "10min"})->notes, IsEmpty());
  EXPECT_THAT(parse({"--checkpoint-every", "500"})->notes, IsEmpty());
}

TEST(Options, OfPoprunThatAreNotHereSayWhatToUseInstead) {
  EXPECT_EQ(error_of({"--import-config", "pod.cfg"}),
            "--import-config is poprun's option; here the settings of a job are in train.cfg and its placement is on "
            "the command line");
  EXPECT_THAT(error_of({"--export-config=pod.cfg"}), HasSubstr("--dry-run -v prints every resolved"));
  EXPECT_THAT(error_of({"--overwrite-config"}), HasSubstr("--dry-run -v prints every resolved"));
  EXPECT_THAT(error_of({"--version", "--version-format", "full-json"}),
              HasSubstr("profile.json lists the versions of the libraries"));
}

TEST(Options, OfOneInstanceAreItsOwn) {
  const auto options =
      parse({"-n", "4", "--instance-mpi-local-args", "1:-x A=1", "--instance-mpi-local-args=3:-x 'B=1 2'",
             "--instance-mpi-local-args", "1:--report-bindings"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->mpirun.instance_local_args, ElementsAre(Pair(1U, ElementsAre("-x", "A=1", "--report-bindings")),
                                                               Pair(3U, ElementsAre("-x", "B=1 2"))));
  EXPECT_EQ(error_of({"-n", "2", "--instance-mpi-local-args", "2:-x A=1"}),
            "--instance-mpi-local-args: there is no instance 2; instances are numbered 0 to 1");
  EXPECT_EQ(error_of({"--instance-mpi-local-args", "-x A=1"}),
            "--instance-mpi-local-args = -x A=1 is not allowed; allowed: INSTANCE:ARGS, such as "
            "0:\"-x NAME=VALUE\"");
  EXPECT_THAT(error_of({"--instance-mpi-local-args", "0:'"}), HasSubstr("the quote ' is not closed"));
}

TEST(Options, DropoutIsNotedInInference) {
  const auto options = parse({"--model.mode", "inference", "--model.name", "gpt2", "--model.dropout", "0.1"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->notes, Contains("model.dropout = 0.1 has no effect with model.mode = "
                                       "inference: nothing is dropped"));
}

TEST(Options, NoDecayIsNotedWithoutWeightDecay) {
  const auto options = parse({"--training.no-decay", "vectors"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->notes, Contains("training.no-decay = vectors has no effect with "
                                       "training.weight-decay = 0"));
}

TEST(Options, ALearningRateThatIsZeroInFloat32IsNoted) {
  EXPECT_THAT(parse({"--training.learning-rate", "1e-50"})->notes,
              ElementsAre("a learning rate of 1e-50 is 0 in float32, so nothing is trained"));
  EXPECT_THAT(parse({"--training.learning-rate", "1e-40"})->notes, IsEmpty());
}

TEST(Options, ThatOthersLeaveWithoutEffectAreNoted) {
  const auto notes = [](const Args& args, std::string_view config) { return parse(args, config)->notes; };
  EXPECT_THAT(notes({"--training.no-decay", "vectors"}, ""),
              ElementsAre("training.no-decay = vectors has no effect with training.weight-decay = 0"));
  EXPECT_THAT(notes({"--training.no-decay", "vectors", "--training.optimizer", "lars"}, ""), IsEmpty());
  const std::string_view file = "[training]\nmomentum = 0.8\nsteps = 5\nepochs = 2\n";
  EXPECT_THAT(notes({}, file), IsEmpty());
  EXPECT_THAT(notes({"--training.optimizer", "adam"}, file),
              ElementsAre("training.momentum = 0.8 has no effect with training.optimizer = adam"));
  EXPECT_THAT(notes({"--training.beta2", "0.9"}, ""),
              ElementsAre("training.beta2 = 0.9 has no effect with training.optimizer = momentum"));
  EXPECT_THAT(notes({"--training.schedule-decay", "0.5"}, ""),
              ElementsAre("training.schedule-decay = 0.5 has no effect with training.schedule = "
                          "constant"));
  EXPECT_THAT(notes({"--training.epochs", "7"}, file),
              ElementsAre("training.epochs = 7 has no effect with training.steps = 5"));
  EXPECT_THAT(notes({"--training.steps", "7"}, file), IsEmpty());
}

TEST(Options, OfAModelOnTheCommandLineReplaceTheFilesModel) {
  const auto onnx = parse({"--model.onnx", "m.onnx"}, "[model]\nname = gpt2\n");
  ASSERT_TRUE(onnx) << onnx.error().message;
  EXPECT_EQ(onnx->config.model().name(), "m.onnx");
  EXPECT_THAT(onnx->notes, ElementsAre("model.onnx = m.onnx replaces the file's model.name = gpt2"));
  EXPECT_THAT(error_of({"--model.onnx", "m.onnx", "--model.name", "gpt2"}), HasSubstr("cannot be combined"));
  EXPECT_THAT(error_of({}, "[model]\nname = gpt2\nonnx = m.onnx\n"), HasSubstr("cannot be combined"));
}

TEST(Options, OfModelSizesHaveBoundsThatCanBeCompiled) {
  EXPECT_EQ(error_of({"--model.layers", "5000"}),
            "--model.layers = 5000 is not allowed; allowed: an integer from 1 to 1024");
  EXPECT_EQ(error_of({"--model.hidden", "4294967296"}),
            "--model.hidden = 4294967296 is not allowed; allowed: an integer from 1 to 1048576");
}

TEST(Options, OfAnOptimizerAreThoseItDeclares) {
  for (const Optimizer& optimizer : all_optimizers()) {
    const auto options = parse({"--training.optimizer", optimizer.name()});
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_THAT(options->notes, IsEmpty()) << optimizer.name();
    const auto& had = options->config.training().hyper_parameters();
    EXPECT_EQ(had.size(), optimizer.hyper_parameters.size()) << optimizer.name();
    for (const HyperParameter& own : optimizer.hyper_parameters) {
      ASSERT_TRUE(had.contains(own.name)) << optimizer.name() << " " << own.name;
      const std::string name = "training." + own.name;
      const auto setting = std::ranges::find(options->settings, name, &Setting::name);
      EXPECT_EQ(setting->text, own.fallback) << optimizer.name() << " " << own.name;
      EXPECT_THAT(help_text("training"), HasSubstr("--" + name));
    }
  }
}

TEST(Options, ListChipsOptimizersAndDatasetsThereAre) {
  const std::string chip = error_of({"--device.ipu", "mk0"});
  for (const std::string& name : device_names()) {
    EXPECT_THAT(chip, HasSubstr(name));
    EXPECT_EQ(parse({"--device.ipu", name})->config.device().ipu(), name);
    EXPECT_THAT(help_text("device"), HasSubstr(name));
  }
  const std::string optimizer = error_of({"--training.optimizer", "gradient-guess"});
  for (const Optimizer& known : all_optimizers()) {
    EXPECT_THAT(optimizer, HasSubstr(known.name()));
  }
  // The help text contains line breaks and indents, so the comparison ignores white space.
  std::string help = help_text("data");
  std::erase_if(help, [](char c) { return c == ' ' || c == '\n'; });
  for (std::string form : hostio::dataset_forms()) {
    std::erase(form, ' ');
    EXPECT_THAT(help, HasSubstr(form));
  }
}

TEST(Options, UnknownNamesGetTheNearestKnown) {
  EXPECT_EQ(error_of({"--num-replica", "3"}), "--num-replica: unknown option; did you mean --num-replicas?");
  EXPECT_EQ(error_of({"--training.lerning-rate=3"}),
            "--training.lerning-rate: unknown option; did you mean --training.learning-rate?");
  EXPECT_EQ(error_of({"--learning-rate", "3"}),
            "--learning-rate: unknown option; did you mean --training.learning-rate?");
  EXPECT_EQ(error_of({"--learning_rate=3"}), "--learning_rate: unknown option; did you mean --training.learning-rate?");
  EXPECT_EQ(error_of({"--sequence-length=3"}),
            "--sequence-length: unknown option; did you mean --model.sequence-length or "
            "--data.sequence-length?");
  EXPECT_EQ(
      error_of({"--replicas", "3"}),
      "--replicas belongs to the subcommand scale; did you mean --num-replicas? usage: poprun-emu scale [options] "
      "train.cfg");
  EXPECT_EQ(error_of({"--lr", "3"}), "--lr: unknown option; did you mean --training.learning-rate?");
  EXPECT_EQ(error_of({"--training.lr=3"}), "--training.lr: unknown option; did you mean --training.learning-rate?");
  EXPECT_EQ(error_of({"--np", "3"}), "--np: unknown option; did you mean --num-replicas?");
  EXPECT_EQ(error_of({"-x", "A=1"}), "-x: unknown option; did you mean --mpi-local-args?");
  EXPECT_EQ(error_of({}, "[training]\nlr = 3\n"),
            "train.cfg:2: unknown key lr in [training]; did you mean learning-rate?");
  EXPECT_EQ(error_of({}, "[training]\ntraining.steps = 3\n"),
            "train.cfg:2: unknown key training.steps in [training]; did you mean steps?");
  EXPECT_EQ(error_of({"--quantum"}), "--quantum: unknown option; see poprun-emu --help all");
  EXPECT_EQ(error_of({}, "[training]\nlearning-rat = 3\n"),
            "train.cfg:2: unknown key learning-rat in [training]; did you mean learning-rate?");
  EXPECT_EQ(error_of({}, "[training]\n\nsource = x\n"),
            "train.cfg:3: unknown key source in [training]; did you mean source in [data]?");
  EXPECT_EQ(error_of({}, "[trainig]\nmagic = 3\n"), "train.cfg:1: unknown section [trainig]; did you mean training?");
  EXPECT_EQ(error_of({}, "[device]\nquantum = 3\n"),
            "train.cfg:2: unknown key quantum in [device]; available: ipu, tiles, "
            "io-tiles, bytes-per-tile, host-call, steps-per-call, watts, price, streaming-bytes");
  EXPECT_EQ(error_of({}, "[network]\nstages = 3\n"),
            "train.cfg:1: unknown section [network]; available: job, model, data, training, pipeline, "
            "memory, device, report, published");
}

TEST(Options, OfTheSectionJobAreOverriddenByTheCommandLine) {
  const std::string file = "[job]\nreplicas = 8\nipus_per_replica = 2\ninstances = 4\n";
  const auto own = parse({}, file);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->config.topology().num_replicas(), 8U);
  EXPECT_EQ(own->config.topology().ipus_per_replica(), 2U);
  EXPECT_EQ(own->config.topology().num_instances(), 4U);
  const auto fewer = parse({"-n", "4"}, file);
  ASSERT_TRUE(fewer) << fewer.error().message;
  EXPECT_EQ(fewer->config.topology().num_replicas(), 4U);

  EXPECT_EQ(error_of({}, "[job]\nreplica = 8\n"), "train.cfg:2: unknown key replica in [job]; did you mean replicas?");
  EXPECT_EQ(error_of({}, "[training]\nnum-replicas = 8\n"),
            "train.cfg:2: unknown key num-replicas in [training]; did you mean replicas in [job]?");
  EXPECT_EQ(error_of({}, "[job]\nreplicas = 8\nreplicas = 4\n"),
            "train.cfg:3: replicas was already set on line 2; remove one of these lines");
  EXPECT_THAT(error_of({}, "[job]\nreplicas = many\n"), HasSubstr("train.cfg:2: replicas"));
}

TEST(Options, AnswerInTextJsonOrCsv) {
  EXPECT_EQ(parse({"--dry-run", "--format", "csv"})->form, AnswerForm::kCsv);
  EXPECT_EQ(parse({"--dry-run", "--format", "json"})->form, AnswerForm::kJson);
  EXPECT_EQ(parse({"--dry-run", "--format", "text"})->form, AnswerForm::kText);
  EXPECT_EQ(parse({"--format", "json"})->form, AnswerForm::kJson);
  EXPECT_THAT(error_of({"--dry-run", "--format", "yaml"}), HasSubstr("text, json, csv"));
}

TEST(Options, OfOtherLaunchersAreAnswered) {
  const auto answer = [](const Args& args) { return error_of(args); };
  EXPECT_EQ(answer({"-np", "4"}), "-np: unknown option; did you mean --num-replicas?");
  EXPECT_EQ(answer({"--np=4"}), "--np: unknown option; did you mean --num-replicas?");
  for (const char* name : {"--nproc_per_node", "--nproc-per-node"}) {
    EXPECT_THAT(answer({name, "4"}), AllOf(StartsWith(name), HasSubstr("--host node0:4,node1:4")));
  }
  EXPECT_THAT(answer({"--nnodes=2"}), HasSubstr("--host node0,node1"));
  EXPECT_THAT(answer({"--max-restarts", "3"}), HasSubstr("--restarts"));
  EXPECT_THAT(answer({"--resume-from-checkpoint", "last"}), HasSubstr("--resume"));
  EXPECT_THAT(answer({"--save_steps", "50"}), HasSubstr("--checkpoint-every"));
  EXPECT_THAT(answer({"--bind-to", "core"}), HasSubstr("--mpi-global-args"));
  EXPECT_THAT(answer({"--master_addr", "node0"}), HasSubstr("starts the processes on all hosts"));
  EXPECT_EQ(answer({"--machinefile", "f"}), "--machinefile: unknown option; did you mean --hostfile?");
  EXPECT_EQ(answer({"--dataset", "x"}), "--dataset: unknown option; did you mean --data.source?");
}

TEST(Options, OfASectionAloneAreItsName) {
  EXPECT_EQ(parse({"--model", "gpt2"})->config.model().name(), "gpt2");
  EXPECT_EQ(parse({"--model=gpt2"})->config.model().name(), "gpt2");
  EXPECT_THAT(error_of({"--device", "mk2"}), HasSubstr("unknown option"));
}

TEST(Options, ThatPrintTheTopologyAloneNeedNoTrainCfg) {
  const auto alone = parse_options(Args{"-n", "4", "--print-topology"}, "");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->config_file, "");
  EXPECT_EQ(alone->config.topology().num_replicas(), 4U);
  EXPECT_EQ(parse({"--print-topology"})->config_file, "train.cfg");
  EXPECT_FALSE(parse_options(Args{"--print-topology", "no"}, ""));
}

TEST(Options, OfASubnetHaveItsMask) {
  EXPECT_EQ(parse({"--host-subnet", "10.1.0.0/16"})->hosts.subnet, "10.1.0.0/16");
  for (const char* wrong : {"10.1.0.0", "10.1.0.0/", "10.1.0.0/33", "10.1/16", "eth0", "::1/64"}) {
    EXPECT_EQ(error_of({"--host-subnet", wrong}),
              std::string("--host-subnet = ") + wrong +
                  " is not allowed; allowed: an IPv4 network with its prefix length, such as "
                  "10.1.0.0/16");
  }
}

TEST(Options, OfAMissingTrainCfgSayWhereItWasLookedFor) {
  EXPECT_EQ(parse_options(Args{"nowhere.cfg"}).error().message, "nowhere.cfg: no such file");
  EXPECT_EQ(parse_options(Args{"/tmp/x/nowhere.cfg"}).error().message, "/tmp/x/nowhere.cfg: no such file");
}

TEST(Options, OutsideOfSectionsCannotStandInTheFile) {
  EXPECT_THAT(error_of({}, "[output]\ndir = x\n"), HasSubstr("unknown section [output]"));
}

TEST(Options, WrongValuesSayWhatIsAllowed) {
  EXPECT_EQ(error_of({"-n", "0"}), "--num-replicas = 0 is not allowed; allowed: an integer from 1 to 65536");
  EXPECT_EQ(error_of({"-n", "-3"}), "--num-replicas = -3 is not allowed; allowed: an integer from 1 to 65536");
  EXPECT_EQ(error_of({"-n", "3x"}), "--num-replicas = 3x is not allowed; allowed: an integer from 1 to 65536");
  EXPECT_EQ(error_of({}, "[training]\noptimizer = adam\nnesterov = true\n"),
            "training.nesterov = true needs training.optimizer = momentum, but it is adam");
  EXPECT_EQ(error_of({}, "[training]\nlearning-rate = fast\n"),
            "train.cfg:2: learning-rate = fast is not allowed; allowed: a number above 0 and at most "
            "1000000");
  EXPECT_EQ(error_of({}, "[training]\nmomentum = 1\n"),
            "train.cfg:2: momentum = 1 is not allowed; allowed: a number of at least 0 and below 1");
  EXPECT_THAT(error_of({"--training.learning-rate", "nan"}), HasSubstr("not allowed"));
  EXPECT_THAT(error_of({"--training.learning-rate", "inf"}), HasSubstr("not allowed"));
  EXPECT_THAT(error_of({"--hostio-address", "here"}), HasSubstr("allowed: HOST:PORT"));
  EXPECT_THAT(error_of({"--hostio-address", "here:0"}), HasSubstr("allowed: HOST:PORT"));
  EXPECT_THAT(error_of({"--mpi-global-args", "'"}), HasSubstr("the quote ' is not closed"));
  EXPECT_THAT(error_of({"--training.seed=" + std::string(1000, '7')}),
              AllOf(HasSubstr("777... (1000 characters) is not allowed"), SizeIs(Lt(200U))));
  EXPECT_EQ(parse_options(Args{"train.cfg", "--num-replicas"}, "").error().message, "--num-replicas: needs a value");
}

TEST(Options, TextThatCannotBeSentIsRefused) {
  EXPECT_THAT(error_of({"--model.name=\xFF"}), HasSubstr("allowed: 1 to 4096 printable characters in UTF-8"));
  EXPECT_THAT(error_of({"--output-dir="}), HasSubstr("needs a value"));
  EXPECT_EQ(error_of({"--model.name", "\xC3\xA9"}), "no error");
}

TEST(Options, AWrongValueInTheFileIsAnErrorEvenWhenOverridden) {
  EXPECT_THAT(error_of({"--training.seed", "1"}, "[training]\nseed = x\n"), HasSubstr("train.cfg:2: seed = x"));
}

TEST(Options, AKeyGivenTwiceInTheFileIsAnError) {
  EXPECT_EQ(error_of({}, "[training]\nseed = 1\nepochs = 2\nseed = 3\n"),
            "train.cfg:4: seed was already set on line 2; remove one of these lines");
}

TEST(Options, TheLastOfTwoOnTheCommandLineWins) {
  EXPECT_EQ(parse({"-n", "2", "-n", "4"})->config.topology().num_replicas(), 4U);
}

TEST(Options, AreCheckedAgainstEachOther) {
  EXPECT_EQ(error_of({"-n", "4", "--num-instances", "3"}),
            "--num-replicas = 4 is not divisible by --num-instances = 3, but every instance must have the same number "
            "of replicas; use 2 or 4 instances");
  EXPECT_THAT(error_of({"-n", "4", "--num-instances", "8"}),
              HasSubstr("--num-instances = 8 is more than --num-replicas = 4"));
  EXPECT_THAT(error_of({"-H", "a", "--hostfile", "b"}), HasSubstr("cannot be combined"));
  EXPECT_EQ(error_of({"-n", "4", "--only-output-from-instance", "4"}),
            "--only-output-from-instance = 4: there is no instance with this number; instances are numbered 0 to 3");
  EXPECT_THAT(error_of({"--heartbeat-interval", "5", "--heartbeat-timeout", "6"}),
              HasSubstr("at least twice --heartbeat-interval"));
}

TEST(Options, MetricsAreServedWhereAskedFor) {
  EXPECT_EQ(parse({})->metrics.port, 0);
  const auto options = parse({"--metrics-port", "9464", "--metrics-address", "::"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->metrics.port, 9464);
  EXPECT_EQ(options->metrics.address, "::");
  EXPECT_THAT(options->notes, IsEmpty());
  EXPECT_THAT(parse({"--metrics-address", "0.0.0.0"})->notes,
              ElementsAre("--metrics-address 0.0.0.0 has no effect without --metrics-port"));
  EXPECT_THAT(error_of({"--metrics-port", "65536"}), HasSubstr("an integer from 0 to 65535"));
  EXPECT_THAT(error_of({"--metrics-address", "localhost"}), HasSubstr("an IP address, such as 127.0.0.1 or ::"));
}

TEST(Options, NameTheFolderForTensorBoard) {
  EXPECT_EQ(parse({})->output.tensorboard, "");
  EXPECT_EQ(parse({"--tensorboard", "runs/first"})->output.tensorboard, "runs/first");
  EXPECT_THAT(error_of({"--tensorboard="}), HasSubstr("needs a value"));
}

TEST(Options, NeedExactlyOneTrainCfg) {
  const auto none = parse_options(Args{"-n", "4"}, "");
  const auto two = parse_options(Args{"a.cfg", "b.cfg"}, "");
  ASSERT_FALSE(none);
  ASSERT_FALSE(two);
  EXPECT_THAT(none.error().message, HasSubstr("no train.cfg was given; usage: poprun-emu [options] train.cfg"));
  EXPECT_THAT(two.error().message, HasSubstr("2 were given: a.cfg b.cfg; the file says what to run"));
  EXPECT_EQ(none.error().code, ErrorCode::kUsage);
}

TEST(Options, HelpAndVersionNeedNothingElse) {
  EXPECT_EQ(parse_options(Args{"--help"}, "")->help, "");
  EXPECT_EQ(parse_options(Args{"-h", "train.cfg"}, "")->help, "");
  EXPECT_EQ(parse_options(Args{"--help", "model"}, "")->help, "model");
  EXPECT_EQ(parse_options(Args{"--help=all"}, "")->help, "all");
  for (const Args& misspelt : {Args{"--help", "modle"}, Args{"--help=modle"}}) {
    EXPECT_EQ(parse_options(misspelt, "").error().message, "--help modle: unknown section; did you mean model?");
  }
  EXPECT_TRUE(parse_options(Args{"--version"}, "")->version);
}

TEST(Options, ScaleTheLearningRateWithTheBatch) {
  const auto options = parse({"-n", "4", "--training.scale-learning-rate", "32"},
                             "[data]\nmicro-batch-size = 8\n[training]\nlearning-rate = 0.25\n"
                             "gradient-accumulation = 2\n");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.training().learning_rate(), 0.5);
  EXPECT_THAT(options->notes, ::testing::ElementsAre("learning rate 0.25 x global batch 64 / 32 = 0.5 "
                                                     "(training.scale-learning-rate)"));
}

TEST(Options, NameTheSourceWithWhatTheDataIsAskedFor) {
  const auto options = parse({"--data.sequence-length", "64"},
                             "[data]\nsource = text:book.txt\nsequence-length = 32\n"
                             "task = masked-lm\n");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.data().source(), "text:book.txt?task=masked-lm,sequence-length=64");
}

TEST(TrainCfg, IsAJobOfKnownKeys) {
  const auto text = read_config_file(POPRUN_TRAIN_CFG);
  ASSERT_TRUE(text);
  const auto options = parse({}, *text);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.model().name(), "small-cnn");
}

TEST(Dumps, HaveAPatternAndSteps) {
  const auto options = parse({"--report.dump-tensors", "a@b{1,2}@3,14", "--report.dump-tensors", "c@1"});
  ASSERT_TRUE(options);
  const auto& dumps = options->config.report().dump_tensors();
  ASSERT_EQ(dumps.size(), 3);
  EXPECT_EQ(dumps[0].pattern(), "a@b{1,2}");
  EXPECT_EQ(dumps[0].step(), 3U);
  EXPECT_EQ(dumps[1].pattern(), "a@b{1,2}");
  EXPECT_EQ(dumps[1].step(), 14U);
  EXPECT_EQ(dumps[2].pattern(), "c");
  for (const char* wrong : {"a", "@1", "a@", "a@0", "a@x", "a@1,", "a(@1"}) {
    EXPECT_FALSE(parse({"--report.dump-tensors", wrong})) << wrong;
  }
}

}  // namespace
}  // namespace poprun::launcher
