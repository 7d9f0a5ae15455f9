/// Checks that random jobs are refused with a reason, or compiled with every pass proven, and that executed jobs are
/// bit-identical to the job without techniques.
///
/// Each run tries a few jobs of a fixed seed. For more, as in a nightly run:
///
///   POPRUN_EMU_RANDOM_JOBS=1000 POPRUN_EMU_RANDOM_SEED=7 build/release/.../random_jobs_test
///
///   POPRUN_EMU_RANDOM_FIRST    number of the first job (0)
///   POPRUN_EMU_RANDOM_RUNS     how many of the compiled jobs are executed (a fifth of all jobs)
///   POPRUN_EMU_RANDOM_VERBOSE  if set, each job is printed, as a command, with its outcome

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random_job.h"
#include "replica/loops/replay.h"
#include "run_job.h"

namespace poprun::testing {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Runs `work` in its own process and returns its result, so that a job that crashes counts as failed.
std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  POPRUN_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  POPRUN_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    const std::string text = work();
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t written = write(ends[1], text.data() + done, text.size() - done);
      POPRUN_CHECK(written > 0);
      done += static_cast<std::size_t>(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = read(ends[0], piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  POPRUN_CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? fmt::format("wrong: ended by signal {}", WTERMSIG(status)) : text;
}

/// Returns whether a refusal says which part of the job is the reason: it names one of the job's options.
/// Returns whether each line names an option: a job may have several mistakes.
bool names_options(const std::string& message, const std::vector<Setting>& settings) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    if (std::ranges::none_of(settings, [&](const Setting& s) { return line.find(s.name) != std::string::npos; })) {
      return false;
    }
  }
  return !message.empty();
}

std::string first_difference(const Results& got, const Results& wanted) {
  for (const auto& [name, bytes] : wanted) {
    const auto found = got.find(name);
    if (found == got.end() || found->second != bytes) {
      return name;
    }
  }
  return got.size() == wanted.size() ? "" : "number of results";
}

/// Saves the ONNX file of a job that went wrong and returns a line with its path; empty if the job has none.
std::string kept_file(const RandomJob& job, std::uint64_t number) {
  if (job.onnx.empty()) {
    return {};
  }
  const std::string path = fmt::format("{}/random-{}.onnx", ::testing::TempDir(), number);
  std::ofstream(path, std::ios::binary) << job.onnx;
  return fmt::format("its file is kept as {}\n", path);
}

/// Returns "compiled", "equal", "refused: ..." or "wrong: ...". `replays`: each step is replayed, if that is possible.
std::string outcome_of(const RandomJob& drawn, bool executed, bool replays = false) {
  const std::vector<Setting> all = drawn.all();
  const Result<CompiledJob> job = compile_job(all, drawn.onnx);
  if (!job) {
    const Error& error = job.error();
    const bool is_refusal = error.code == ErrorCode::kUsage && names_options(error.message, all);
    return fmt::format("{}: {}", is_refusal ? "refused" : "wrong", error.message);
  }
  if (!executed) {
    return "compiled";
  }
  if (const Status described = describe_job(*job); !described) {
    return "wrong: not described: " + described.error().message;
  }
  Result<CompiledJob> plain = compile_job(drawn.arithmetic, drawn.onnx);
  if (!plain) {
    return "wrong: without techniques: " + plain.error().message;
  }
  CompiledJob poisoned = *job;
  poisoned.config.mutable_memory()->set_poison_dead(true);
  plain->config.mutable_memory()->set_private_images(true);
  const std::uint32_t replicas = job->config.topology().num_replicas();
  if (replays && replicas > 1 && !job->config.inference() && plan_replay(job->program, replicas)) {
    poisoned.config.mutable_corruption()->set_replay_every(1);
  }
  const Result<Results> got = run_job(poisoned);
  const Result<Results> wanted = run_job(*plain);
  if (!got || !wanted) {
    return fmt::format("wrong: {}", got ? wanted.error().message : got.error().message);
  }
  const std::string difference = first_difference(*got, *wanted);
  return difference.empty() ? "equal" : fmt::format("wrong: {} differs", difference);
}

TEST(RandomJobs, AreRefusedWithAReasonOrProvenAndHaveTheBitsOfThePlainJob) {
  const std::uint64_t seed = number_from("POPRUN_EMU_RANDOM_SEED", 1);
  const std::uint64_t first = number_from("POPRUN_EMU_RANDOM_FIRST", 0);
  const std::uint64_t jobs = number_from("POPRUN_EMU_RANDOM_JOBS", 60);
  const std::uint64_t runs = number_from("POPRUN_EMU_RANDOM_RUNS", jobs / 5);
  const bool verbose = std::getenv("POPRUN_EMU_RANDOM_VERBOSE") != nullptr;
  std::map<std::string, std::uint64_t> counts;
  for (std::uint64_t number = first; number < first + jobs; ++number) {
    const RandomJob job = draw_job(seed, number);
    const bool executed = counts["equal"] < runs;
    const std::string outcome = in_child([&] { return outcome_of(job, executed, number % 2 == 0); });
    const std::string kind = outcome.substr(0, outcome.find(':'));
    ++counts[kind];
    const std::string text =
        fmt::format("job {} of seed {}: poprun-emu {}: {}\n", number, seed, shell_text(job.all()), outcome);
    if (verbose) {
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
    }
    EXPECT_NE(kind, "wrong") << text << (kind == "wrong" ? kept_file(job, number) : "");
  }
  fmt::print(
      "{} jobs: {} compiled, each pass proven, {} of them executed, bit-identical to the job without techniques; {} "
      "refused\n",
      jobs, counts["compiled"] + counts["equal"], counts["equal"], counts["refused"]);
  EXPECT_GT(counts["compiled"] + counts["equal"], jobs / 2) << "most jobs should make sense";
}

std::vector<Setting> settings_of(const std::string& images, std::initializer_list<Setting> more = {}) {
  std::vector<Setting> all = {
      {"num-replicas", "2"},          {"model.name", "mlp"},
      {"model.layers", "1"},          {"data.source", fmt::format("synthetic:images={},classes=10,items=512", images)},
      {"data.micro-batch-size", "2"}, {"training.steps", "2"},
      {"training.evaluate", "false"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Setting> sharded_from(const std::string& elements) {
  return {{"memory.replicated-tensor-sharding", "optimizer-state"}, {"memory.sharding-min-elements", elements}};
}

/// The 42 limbs of a sum of squares next to a bias of 42 elements, LAMB's two sums next to weights [2,42], and tensors
/// of one element.
TEST(KnownJobs, ShardWhatLooksLikeASumAndWhatHasOneElement) {
  for (const RandomJob& job :
       {RandomJob{settings_of("1x6x6", {{"model.hidden", "42"}, {"training.clip-norm", "1"}}), sharded_from("1")},
        RandomJob{settings_of("1x6x6", {{"model.hidden", "42"}, {"model.precision", "half"}}), sharded_from("40")},
        RandomJob{
            settings_of("1x6x7",
                        {{"model.hidden", "2"}, {"training.optimizer", "lamb"}, {"training.learning-rate", "0.01"}}),
            sharded_from("40")},
        RandomJob{settings_of("1x6x6", {{"model.hidden", "1"}}), sharded_from("1")}}) {
    EXPECT_EQ(in_child([&job] { return outcome_of(job, true); }), "equal") << shell_text(job.all());
  }
}

/// Gradients that one outlined function reduces and another reads.
TEST(KnownJobs, ReduceInOneOutlinedFunctionWhatAnotherAccumulates) {
  const RandomJob job{{{"num-replicas", "2"},
                       {"model.name", "gpt2"},
                       {"model.layers", "4"},
                       {"model.hidden", "32"},
                       {"model.heads", "4"},
                       {"model.vocabulary", "96"},
                       {"model.sequence-length", "8"},
                       {"data.source", "synthetic:tokens,vocabulary=96,items=512"},
                       {"data.sequence-length", "8"},
                       {"training.steps", "2"},
                       {"training.evaluate", "false"},
                       {"training.gradient-accumulation", "8"},
                       {"training.gradient-reduction", "every-micro-batch"}},
                      {{"ipus-per-replica", "2"}, {"device.tiles", "24"}, {"memory.outlining", "on"}}};
  EXPECT_EQ(in_child([&job] { return outcome_of(job, true); }), "equal") << shell_text(job.all());
}

}  // namespace
}  // namespace poprun::testing
