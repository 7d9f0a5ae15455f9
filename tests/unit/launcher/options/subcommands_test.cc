#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/options/command_line.h"
#include "launcher/options/help.h"
#include "launcher/options/next_command.h"
#include "launcher/options/parse.h"

namespace poprun::launcher::subcommands_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Args = std::vector<std::string>;

Result<Options> parse(const Args& args, std::string_view config = "") {
  return parse_options(args, config);
}

std::string error_of(const Args& args, std::string_view config = "") {
  const auto options = parse(args, config);
  return options ? "no error" : options.error().message;
}

TEST(Subcommands, StandBeforeTrainCfg) {
  const auto options = parse({"check", "-n", "2", "train.cfg", "--check-steps", "5"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->subcommand(), Subcommand::kCheck);
  EXPECT_EQ(options->config_file, "train.cfg");
  EXPECT_EQ(options->config.check().steps(), 5U);
  EXPECT_THAT(options->config.check().ipus(), IsEmpty());
  EXPECT_EQ(options->output.dir, "poprun-emu-check");
}

TEST(Subcommands, AreNoFilesAndFilesAreNone) {
  EXPECT_EQ(parse({"./check"})->subcommand(), Subcommand::kRun);
  EXPECT_EQ(parse({"./check"})->config_file, "./check");
  EXPECT_FALSE(parse({"train.cfg"})->config.has_check());
  EXPECT_EQ(parse({"train.cfg"})->output.dir, "poprun-emu-out");
  EXPECT_EQ(parse({"checks"})->config_file, "checks");
  EXPECT_THAT(error_of({"check"}), HasSubstr("usage: poprun-emu check [options] train.cfg"));
}

TEST(Subcommands, AreSuggestedWhereMisspeltOrMisplaced) {
  EXPECT_EQ(error_of({"chek", "train.cfg"}),
            "unknown subcommand 'chek'; did you mean check? usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_EQ(error_of({"train.cfg", "check"}),
            "the subcommand check must come before train.cfg; usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_THAT(error_of({"python", "train.cfg"}), StartsWith("exactly one train.cfg is needed"));
}

TEST(Information, CanBeAskedForByWord) {
  EXPECT_EQ(parse({"help"})->help, "");
  EXPECT_EQ(parse({"help", "training"})->help, "training");
  EXPECT_EQ(parse({"help", "check"})->help, "check");
  EXPECT_TRUE(parse({"models"})->list_models);
  EXPECT_TRUE(parse({"models", "--format", "json"})->form == AnswerForm::kJson);
  EXPECT_EQ(parse({"models", "--help"})->help, "");
  EXPECT_EQ(parse({"./help"})->config_file, "./help");
  EXPECT_EQ(error_of({"help", "traning"}), "--help traning: unknown section; did you mean training?");
  EXPECT_EQ(error_of({"models", "train.cfg"}), "unexpected word 'train.cfg'; usage: poprun-emu models [--format json]");
}

std::string next_of(const Args& args) {
  const auto options = parse(args);
  return options ? next_command(*options) : options.error().message;
}

TEST(Scale, MakesAJobForEachNumberOfReplicas) {
  const auto options = parse({"scale", "train.cfg", "-n", "3", "--replicas", "4,65536"}, "[training]\nsteps = 7\n");

  ASSERT_TRUE(options) << options.error().message;
  const Varied& scale = std::get<ScaleRequest>(options->request).varied;
  ASSERT_EQ(scale.jobs.size(), 2U);
  EXPECT_EQ(scale.jobs[0].config.topology().num_replicas(), 4U);
  EXPECT_EQ(scale.jobs[1].config.topology().num_replicas(), 65'536U);
  EXPECT_EQ(scale.jobs[1].config.training().steps(), 7U);
  EXPECT_EQ(std::get<ScaleRequest>(parse({"scale", "train.cfg"})->request).varied.jobs.size(), 7U);
}

TEST(Scale, RefusesNumbersThatDoNotSuitTheJob) {
  EXPECT_THAT(error_of({"scale", "train.cfg", "--replicas", "0"}), HasSubstr("--replicas = 0 is not allowed"));
  EXPECT_THAT(error_of({"scale", "train.cfg", "--replicas", "65537"}), HasSubstr("--replicas = 65537 is not allowed"));
  EXPECT_THAT(error_of({"scale", "train.cfg", "--replicas", "2,3", "--model.norm-span", "2"}),
              StartsWith("--replicas = 3: "));
  EXPECT_THAT(error_of({"train.cfg", "--replicas", "2"}), HasSubstr("--replicas belongs to the subcommand scale"));
  EXPECT_EQ(error_of({"-n", "4097", "train.cfg"}),
            "--num-replicas = 4097: a job can have at most 4,096 replicas; estimate and scale plan larger jobs, "
            "and --real N runs only N of the replicas");
}

TEST(NextCommand, ContinuesWithTheSameJob) {
  EXPECT_EQ(next_of({"estimate", "--by-layer", "-n", "4", "train.cfg"}), "poprun-emu --dry-run -n 4 train.cfg");
  EXPECT_EQ(next_of({"--dry-run", "-vv", "--model", "gpt2", "--output-dir", "x", "a b.cfg"}),
            "poprun-emu --output-dir x --model.name gpt2 'a b.cfg'");
  EXPECT_EQ(next_of({"--overwrite", "--allow-out-of-memory", "--output-dir", "x", "train.cfg"}),
            "poprun-emu profile --allow-out-of-memory train.cfg");
  EXPECT_EQ(next_of({"check", "train.cfg", "--check-steps", "2"}), "poprun-emu profile train.cfg");
  EXPECT_EQ(next_of({"profile", "--no-run", "train.cfg"}), "poprun-emu train.cfg");
}

TEST(NextCommand, IsMissingWhereNobodyReadsIt) {
  EXPECT_EQ(next_of({"--dry-run", "--format", "json", "train.cfg"}), "");
  EXPECT_EQ(next_of({"estimate", "--matmul", "2x2x2"}), "");
  EXPECT_EQ(next_of({"validate"}), "");
  EXPECT_EQ(next_of({"profile", "--compare", "a", "b"}), "");
}

/// Returns the error of parse_options for a command line as typed in a shell, or "".
std::string complaint_of(std::vector<std::string> args) {
  const Result<Options> options = parse_options(args);
  return options ? "" : options.error().message;
}

TEST(Program, OfAPastedPoprunLineIsReplacedByATrainCfg) {
  const std::string python = "poprun-emu runs a train.cfg instead of a program";
  for (const std::vector<std::string>& program :
       std::initializer_list<std::vector<std::string>>{{"python3", "train.py", "--config", "x"},
                                                       {"python", "run.py", "--epochs", "3", "--num-replicas=2"},
                                                       {"python3.8", "-m", "run", "-v"},
                                                       {"./not_there.py"},
                                                       {"sh", "-c", "run --loss-scaling 8"},
                                                       {"/bin/sh"},
                                                       {"--", "python3", "--version"}}) {
    std::vector<std::string> line = {"-vv",
                                     "--num-instances=1",
                                     "--mpi-global-args=--mca a b",
                                     "--offline-mode=on",
                                     "--num-replicas",
                                     "2",
                                     "--print-topology",
                                     "yes"};
    line.insert(line.end(), program.begin(), program.end());
    EXPECT_THAT(complaint_of(line), HasSubstr(python)) << program[0];
  }
  EXPECT_EQ(complaint_of({"-n", "2", "python3", "a.py", "--b", "1", "--c"}).substr(0, 60),
            "python3 a.py --b 1 ...: poprun-emu runs a train.cfg instead ");
  EXPECT_THAT(complaint_of({"--num-replcas", "2", "python3", "a.py"}), HasSubstr("did you mean --num-replicas?"));
  EXPECT_THAT(complaint_of({"--help", "sh"}), HasSubstr("--help sh: unknown section; available: "));
  EXPECT_THAT(complaint_of({"not_there.cfg", "--epochs", "3"}), HasSubstr("--epochs: unknown"));
}

TEST(Subcommands, AreSuggestedForAWordThatIsNoFile) {
  EXPECT_EQ(complaint_of({"chek"}), "no file and no subcommand called 'chek'; did you mean check?");
  EXPECT_EQ(complaint_of({"model", "-n", "4"}), "no file and no subcommand called 'model'; did you mean models?");
  EXPECT_THAT(complaint_of({"job42"}),
              StartsWith("no file and no subcommand called 'job42'; the subcommands are check, "
                         "estimate, profile, validate, report, scale, models, help"));
  EXPECT_EQ(complaint_of({"./chek"}), "./chek: no such file");
  EXPECT_EQ(complaint_of({"training.steps=5"}), "training.steps=5: no such file; did you mean --training.steps=5?");
  EXPECT_EQ(complaint_of({"profile", "job42"}), "job42: no such file");
}

TEST(Subcommands, AreGivenOnce) {
  EXPECT_EQ(error_of({"check", "check"}),
            "the subcommand check is given twice; to run a file of that name, write ./check; usage: poprun-emu check "
            "[options] train.cfg");
  EXPECT_THAT(error_of({"check", "check", "train.cfg"}), HasSubstr("is given twice"));
  EXPECT_EQ(parse({"check", "./check"})->config_file, "./check");
}

TEST(Subcommands, SpellOutRangesOfIpus) {
  EXPECT_EQ(error_of({"check", "train.cfg", "--check-ipus", "2-4"}),
            "--check-ipus = 2-4 is not allowed; allowed: up to 256 integers from 2 to 64, separated by blanks; write "
            "out each number: 2 3 4");
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-ipus", "4-2"}), ::testing::EndsWith("separated by blanks"));
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-ipus", "1-3"}), ::testing::EndsWith("separated by blanks"));
}

TEST(Subcommands, OwnTheirOptions) {
  EXPECT_EQ(error_of({"--check-steps", "5", "train.cfg"}),
            "--check-steps belongs to the subcommand check; usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_THAT(parse({"check", "train.cfg", "--check-ipus", "2,4"})->config.check().ipus(), ElementsAre(2, 4));
  EXPECT_THAT(parse({"check", "train.cfg", "--check-ipus", "4,2,4"})->config.check().ipus(), ElementsAre(4, 2));
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-ipus", "1"}), StartsWith("--check-ipus = 1 is not allowed"));
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-steps", "0"}), StartsWith("--check-steps = 0 is not allowed"));
}

TEST(Subcommands, HaveTheirPageOfHelp) {
  EXPECT_EQ(parse({"check", "--help"})->help, "check");
  EXPECT_THAT(help_text("check"), StartsWith("Usage: poprun-emu check [options] train.cfg\n"));
  EXPECT_THAT(help_text("check"), HasSubstr("--check-ipus LIST"));
  EXPECT_THAT(help_text("check"), HasSubstr("Exits with 0 if all runs that were compared"));
  EXPECT_THAT(help_text("exit-codes"), HasSubstr("check: also if a run differs"));
  EXPECT_THAT(help_text(""), HasSubstr("\n  check     Run a few steps"));
  EXPECT_THAT(help_text("all"), HasSubstr("\n  check     Run a few steps"));
}

TEST(Check, RefusesWhatHasNoStepsToCompare) {
  EXPECT_EQ(error_of({"check", "train.cfg", "--model.mode", "inference"}),
            "check compares training steps, but a job with model.mode = inference runs none");
  EXPECT_EQ(error_of({"check", "train.cfg", "--dry-run"}),
            "--dry-run starts no replica, but check runs the job; give only one of them");
}

TEST(Check, SaysWhichKeysItOverrules) {
  const auto options =
      parse({"check", "train.cfg", "--report.dump-tensors", "fc1@1", "--overwrite", "--allow-out-of-memory"},
            "[training]\nsteps = 5\n[pipeline]\nschedule = interleaved\nrecomputation = layer\n"
            "recomputation-memory = 0.5\n");

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->config.report().dump_tensors(), IsEmpty());
  EXPECT_THAT(
      options->notes,
      ElementsAre(
          "check overrides pipeline.schedule = interleaved (runs every schedule), pipeline.recomputation = layer (runs "
          "every recomputation mode), report.dump-tensors = fc1@1 (dumps nothing), --allow-out-of-memory (only "
          "compiles jobs that do not fit), --overwrite (leaves the results of jobs in place)"));
  EXPECT_THAT(parse({"check", "train.cfg"}, "[pipeline]\nschedule = grouped\n")->notes, IsEmpty());
}

EstimateRequest estimate_of(const Result<Options>& options) {
  return std::get<EstimateRequest>(options->request);
}

ProfileRequest profile_of(const Result<Options>& options) {
  return std::get<ProfileRequest>(options->request);
}

std::vector<std::int64_t> layers_of(const EstimateRequest& request) {
  std::vector<std::int64_t> layers;
  for (const VariedJob& job : request.varied.jobs) {
    layers.push_back(job.config.model().sizes().at("layers"));
  }
  return layers;
}

TEST(Estimate, TakesItsOptions) {
  const auto options = parse({"estimate", "--by-layer", "train.cfg", "--compile"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->subcommand(), Subcommand::kEstimate);
  EXPECT_TRUE(estimate_of(options).by_layer);
  EXPECT_TRUE(estimate_of(options).compile);
  EXPECT_THAT(estimate_of(options).varied.jobs, IsEmpty());
  EXPECT_FALSE(estimate_of(parse({"estimate", "train.cfg"})).compile);
  EXPECT_EQ(error_of({"train.cfg", "--compile"}),
            "--compile belongs to the subcommand estimate; usage: poprun-emu estimate [options] "
            "train.cfg");
}

TEST(Estimate, MakesAJobOfEachValue) {
  const auto options = parse({"estimate", "train.cfg", "--vary", "model.layers=2,4,8"},
                             "[model]\nname = mlp\nlayers = 3\n[training]\noptimizer = adam\n");

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(estimate_of(options).varied.key, "model.layers");
  EXPECT_THAT(layers_of(estimate_of(options)), ElementsAre(2, 4, 8));
  EXPECT_EQ(estimate_of(options).varied.jobs[2].value, "8");
  EXPECT_EQ(estimate_of(options).varied.jobs[2].config.model().name(), "mlp");
  EXPECT_EQ(estimate_of(options).varied.jobs[2].config.training().optimizer(), "adam");
  EXPECT_EQ(options->config.model().sizes().at("layers"), 3) << "the job itself";
  EXPECT_EQ(estimate_of(parse({"estimate", "train.cfg", "--vary", "model=mlp,gpt2"})).varied.key, "model.name");
  EXPECT_EQ(estimate_of(parse({"estimate", "train.cfg", "--vary=ipus-per-replica=2,4"}))
                .varied.jobs[1]
                .config.topology()
                .ipus_per_replica(),
            4U);
  EXPECT_EQ(
      estimate_of(parse({"estimate", "train.cfg", "--vary", "data.sequence-length=64"}, "[data]\nsource = text:x\n"))
          .varied.jobs[0]
          .config.data()
          .source(),
      "text:x?sequence-length=64");
}

TEST(Estimate, RefusesWhatCannotBeVaried) {
  const auto vary = [](const std::string& what) { return error_of({"estimate", "train.cfg", "--vary", what}); };
  EXPECT_EQ(vary("model.layer=2,4"), "--vary model.layer: unknown key; did you mean model.layers?");
  EXPECT_EQ(vary("output-dir=a,b"),
            "--vary output-dir: --output-dir does not change what a job needs; keys of train.cfg, "
            "num-replicas and ipus-per-replica can be varied");
  for (const char* text : {"model.layers", "model.layers=", "=2", "model.layers=2,,4", "x=,"}) {
    EXPECT_EQ(vary(text), fmt::format("--vary = {} is not allowed; allowed: KEY=VALUE,VALUE,..., "
                                      "such as model.layers=2,4,8",
                                      text));
  }
  EXPECT_THAT(vary("model.layers=2,2"), ::testing::EndsWith("model.layers=2,4,8, without repeated values"));
  EXPECT_THAT(vary("model.layers=two"), StartsWith("--vary model.layers = two is not allowed; allowed: an integer"));
  EXPECT_EQ(vary("model.partials=float,half"),
            "--vary model.partials = half: model.partials = half needs model.precision = half, but "
            "it is float");
  EXPECT_EQ(error_of({"estimate", "train.cfg", "--vary", "model.layers=2", "--vary", "x=3"}),
            "--vary was given more than once; only one key can be varied at a time");
  EXPECT_EQ(error_of({"estimate", "train.cfg", "--vary", "model.layers=2", "--by-layer"}),
            "--by-layer lists the layers of one job, but --vary estimates several; give only one "
            "of them");
  EXPECT_THAT(error_of({"estimate", "train.cfg", "--dry-run"}), StartsWith("--dry-run compiles"));
  EXPECT_THAT(error_of({"estimate"}), HasSubstr("usage: poprun-emu estimate [options] train.cfg"));
}

TEST(Estimate, HasItsPageOfHelp) {
  EXPECT_THAT(help_text("estimate"), StartsWith("Usage: poprun-emu estimate [options] train.cfg\n"));
  for (const char* option : {"--by-layer", "--compile", "--vary KEY=VALUES"}) {
    EXPECT_THAT(help_text("estimate"), HasSubstr(option));
  }
  EXPECT_THAT(help_text(""), HasSubstr("\n  estimate  Estimate"));
}

TEST(Profile, TakesItsOptions) {
  const auto options =
      parse({"profile", "--no-run", "train.cfg", "--tile", "952", "--tile=1:3", "--profile-steps", "5"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->subcommand(), Subcommand::kProfile);
  EXPECT_EQ(options->output.dir, "poprun-emu-profile");
  EXPECT_FALSE(profile_of(options).run);
  EXPECT_EQ(profile_of(options).steps, 5U);
  ASSERT_EQ(profile_of(options).tiles.size(), 2U);
  EXPECT_FALSE(profile_of(options).tiles[0].ipu);
  EXPECT_EQ(profile_of(options).tiles[0].tile, 952U);
  EXPECT_EQ(profile_of(options).tiles[1].ipu, 1U);
  EXPECT_EQ(profile_of(options).tiles[1].tile, 3U);
  EXPECT_TRUE(profile_of(parse({"profile", "train.cfg"})).run);
  EXPECT_EQ(profile_of(parse({"profile", "train.cfg"})).steps, 3U);
  EXPECT_FALSE(parse({"profile", "train.cfg"})->config.has_profile()) << "what is compiled";
  EXPECT_EQ(error_of({"train.cfg", "--no-run"}),
            "--no-run belongs to the subcommand profile; usage: poprun-emu profile [options] "
            "train.cfg");
}

TEST(Profile, ComparesTwoFilesInTheirOrder) {
  for (const Args& args :
       {Args{"profile", "--compare", "a.pb", "b.json"}, Args{"profile", "a.pb", "b.json", "--compare"},
        Args{"profile", "a.pb", "--compare", "b.json"}}) {
    const auto options = parse(args, "not a train.cfg");
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_THAT(profile_of(options).compared, ElementsAre("a.pb", "b.json"));
  }
  EXPECT_EQ(error_of({"profile", "--compare", "a.pb"}),
            "--compare needs two profiles, source and target, but got a.pb; usage: "
            "poprun-emu profile --compare A/profile.pb B/profile.pb");
  EXPECT_THAT(error_of({"profile", "--compare", "a", "b", "--tile", "1"}),
              StartsWith("--tile applies to the profile of a job"));
}

TEST(Profile, RefusesWhatIsNoTile) {
  for (const char* tile : {"x", "1:", ":1", "-1", "1:2:3", "99999999999"}) {
    EXPECT_EQ(error_of({"profile", "train.cfg", fmt::format("--tile={}", tile)}),
              fmt::format("--tile = {} is not allowed; allowed: TILE or IPU:TILE, such as 952 or "
                          "3:952",
                          tile));
  }
  EXPECT_THAT(error_of({"profile", "train.cfg", "--dry-run"}), HasSubstr("profile --no-run"));
}

TEST(Profile, HasItsPageOfHelp) {
  EXPECT_THAT(help_text("profile"), StartsWith("Usage: poprun-emu profile [options] train.cfg\n"));
  for (const char* option : {"--no-run", "--profile-steps N", "--tile [IPU:]TILE", "--compare"}) {
    EXPECT_THAT(help_text("profile"), HasSubstr(option));
  }
  EXPECT_THAT(help_text(""), HasSubstr("\n  profile   Show"));
}

}  // namespace
}  // namespace poprun::launcher::subcommands_test
