/// Whole jobs in virtual time: what each fault leads to, and that no series of faults and no crash of the machine loses
/// anything. POPRUN_EMU_SIMULATIONS sets the number of random jobs, POPRUN_EMU_SEED the first seed, and
/// POPRUN_EMU_CRASHED_JOBS that of crashes.
#include "launcher/job/job.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/outputs/safetensors.h"
#include "tests/unit/launcher/job/simulated_world.h"
#include "tests/unit/launcher/outputs/recorded_disk.h"
#include "tests/unit/launcher/parsed_options.h"
#include "tests/unit/number_in.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t open_files() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Returns the number of the last attempt that locked the folder.
std::uint64_t epoch_in(const fs::path& folder) {
  std::string word;
  std::uint64_t epoch = 0;
  std::ifstream(folder / ".poprun-emu.lock") >> word >> epoch;
  return epoch;
}

class JobInVirtualTime : public ::testing::Test {
 protected:
  /// Runs a job of two replicas with a checkpoint every 3 steps, whose files are in `folder` or in root_.
  JobEnd run(SimulatedWorld& world, const Args& more = {}, const fs::path& folder = {}) {
    const fs::path out = (folder.empty() ? root_ : folder) / "out";
    Args args = {
        "-n", "2", "--output-dir", out, "--checkpoint-every", "3", "--checkpoint-keep", "2", "--heartbeat-timeout",
        "10"};
    args.insert(args.end(), more.begin(), more.end());
    const Result<Options> options = parse(args, "");
    POPRUN_CHECK(options.has_value());
    const Result<Placement> placement = place(*options);
    POPRUN_CHECK(placement.has_value());
    const std::size_t files = open_files();
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const double began = world.now();
    JobEnd end;
    try {
      Console console;
      end = run_attempts(world, *options, *placement, console, began);
    } catch (const SimulatedWorld::Left& left) {
      end.exit_code = left.exit_code;
    }
    said_ = ::testing::internal::GetCapturedStderr();
    ::testing::internal::GetCapturedStdout();
    took_ = world.now() - began;
    EXPECT_EQ(open_files(), files) << "a file was left open";
    return end;
  }

  /// Checks that the results are those of a job without faults, in which every step was computed once.
  static void expect_results(const fs::path& folder, std::uint64_t steps) {
    const Result<std::vector<Tensor>> weights = read_safetensors(folder / "out/weights.safetensors");
    ASSERT_TRUE(weights) << weights.error().message;
    ASSERT_TRUE(weights->at(0).data == simulated_weights(steps)) << "the weights are not those after step " << steps;
    ASSERT_TRUE(fs::exists(folder / "out/profile.json"));
    std::ifstream metrics(folder / "out/metrics.csv");
    std::string line;
    std::getline(metrics, line);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      ASSERT_TRUE(std::getline(metrics, line)) << "metrics.csv ends before step " << step;
      ASSERT_TRUE(line.find(fmt::format(",{},", step)) != std::string::npos || line.starts_with(std::to_string(step)))
          << line << " instead of step " << step;
    }
    ASSERT_FALSE(std::getline(metrics, line)) << line;
  }

  testing::TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "root";
  std::string said_;  ///< The messages of the last run.
  double took_ = 0;   ///< Its seconds.
};

TEST_F(JobInVirtualTime, ComputesAllStepsAndKeepsTheLastCheckpoints) {
  SimulatedWorld world({.steps = 20});
  EXPECT_EQ(run(world).exit_code, 0) << said_;
  expect_results(root_, 20);
  EXPECT_EQ(checkpoints_in(root_ / "out/checkpoints").size(), 2U);
  EXPECT_EQ(step_of(checkpoints_in(root_ / "out/checkpoints").front()), 18U);
}

struct Case {
  const char* name;
  std::vector<Fault> faults;
  int code;
  const char* says;
  double seconds_max;
};

class JobWithAFault : public JobInVirtualTime, public ::testing::WithParamInterface<Case> {};

TEST_P(JobWithAFault, EndsInTimeWithTheCause) {
  SimulatedWorld world({.steps = 40, .faults = GetParam().faults});
  EXPECT_EQ(run(world).exit_code, GetParam().code) << said_;
  EXPECT_THAT(said_, HasSubstr(GetParam().says));
  EXPECT_LE(took_, GetParam().seconds_max) << said_;
}

INSTANTIATE_TEST_SUITE_P(
    All, JobWithAFault,
    ::testing::Values(
        Case{"Killed", {{FaultKind::kKilled, 8, 1}}, 75, "replica 1", 12},
        Case{"Silent", {{FaultKind::kSilent, 8, 1}}, 75, "replica 1", 20},
        Case{"Fails", {{FaultKind::kFails, 8, 1}}, 70, "a simulated failure", 12},
        Case{"Lost", {{FaultKind::kLost, 8, 1}}, 75, "replica 1", 15},
        Case{"MpirunDies", {{FaultKind::kMpirunDies, 8}}, 75, "mpirun", 12},
        Case{"NeverJoins", {{FaultKind::kSilent, 0.35, 1}}, 75, "replica 1", 130},
        Case{"DataServer", {{FaultKind::kDataServer, 8}}, 0, "the data server", 30},
        Case{"Sigterm", {{FaultKind::kSigterm, 8}}, 143, "stopping at the next micro-batch", 12},
        Case{"TwoSigterms", {{FaultKind::kSigterm, 8}, {FaultKind::kSigterm, 8.005}}, 143, "without saving", 12},
        Case{"Sigusr1", {{FaultKind::kSigusr1, 8}}, 0, "taking a checkpoint", 30},
        Case{"DiskHangs", {{FaultKind::kDiskHangs, 8, 0, 60}}, 0, "has not responded", 75},
        Case{"Sleeps", {{FaultKind::kSleeps, 8, 0, 3600}}, 0, "did not run for", 3630},
        Case{"Stubborn", {{FaultKind::kStubborn, 1}, {FaultKind::kFails, 8}}, 70, "a simulated failure", 30}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_F(JobInVirtualTime, KeepsTheStepsUpToASignal) {
  SimulatedWorld world({.steps = 40, .faults = {{FaultKind::kSigterm, 8}}});
  EXPECT_EQ(run(world).exit_code, 143) << said_;
  expect_results(root_, 15);  // A step takes 0.5 s, and the first begins 0.4 s after the start.
}

TEST_F(JobInVirtualTime, IsRestartedFromItsLastCheckpoint) {
  SimulatedWorld world({.steps = 40, .faults = {{FaultKind::kKilled, 8, 1}, {FaultKind::kKilled, 16, 0}}});
  EXPECT_EQ(run(world, {"--restarts", "2"}).exit_code, 0) << said_;
  EXPECT_EQ(world.attempts(), 3);
  expect_results(root_, 40);
}

/// The parts of a goodput, in hundredths of a second: steps, start, data, saving, redone, down.
std::vector<long> hundredths(const proto::Goodput& goodput) {
  std::vector<long> parts;
  for (const double seconds : {goodput.step_seconds(), goodput.start_seconds(), goodput.data_seconds(),
                               goodput.saving_seconds(), goodput.redone_seconds(), goodput.down_seconds()}) {
    parts.push_back(std::lround(100 * seconds));
  }
  return parts;
}

TEST_F(JobInVirtualTime, CountsASecondOfEachAttemptOnce) {
  SimulatedWorld world({.steps = 40,
                        .data_seconds = 0.1,
                        .saving_seconds = 0.2,
                        .faults = {{FaultKind::kKilled, 8, 1}, {FaultKind::kKilled, 10.5, 1}}});
  const JobEnd end = run(world, {"--restarts", "2"});
  ASSERT_EQ(end.exit_code, 0) << said_;
  const proto::Goodput& goodput = end.profile->goodput();
  // Step 13 follows the checkpoint and is executed in each attempt; both failures interrupt step 14. Each of 42 steps
  // waits 0.1 s for data, and 13 checkpoints take 0.2 s. The pauses are 1 s and 2 s.
  EXPECT_EQ(hundredths(goodput), (std::vector<long>{40 * 40, 3 * 40, 42 * 10, 13 * 20 + 50, 2 * 40, 160 + 240}));
  EXPECT_EQ(goodput.attempts(), 3U);
  EXPECT_EQ(goodput.redone_steps(), 2U);
  EXPECT_NEAR(goodput.total_seconds(), 29.3, 1e-6);
  EXPECT_NEAR(goodput.ratio(), 16 / 29.3, 1e-6);
}

TEST_F(JobInVirtualTime, WritesAnEventFileInEachAttempt) {
  SimulatedWorld world({.steps = 40, .faults = {{FaultKind::kKilled, 8, 1}, {FaultKind::kKilled, 16, 0}}});
  EXPECT_EQ(run(world, {"--restarts", "2", "--tensorboard", root_ / "events"}).exit_code, 0) << said_;
  const fs::directory_iterator files(root_ / "events");
  EXPECT_EQ(std::distance(begin(files), end(files)), 3);
}

TEST_F(JobInVirtualTime, IsRestartedAsOftenAsAskedWithoutProgress) {
  std::vector<Fault> faults;
  for (int k = 1; k < 100; ++k) {
    faults.push_back({FaultKind::kKilled, 1.5 * k, 1});  // Before the first checkpoint of each attempt.
  }
  SimulatedWorld world({.steps = 40, .step_seconds = 2, .faults = faults});
  EXPECT_EQ(run(world, {"--restarts", "3"}).exit_code, 75) << said_;
  EXPECT_EQ(world.attempts(), 4);
}

TEST_F(JobInVirtualTime, LeavesAfterAFurtherSignalIfTheDiskNeverAnswers) {
  SimulatedWorld world(
      {.steps = 40,
       .faults = {{FaultKind::kDiskHangs, 8, 0, 10000}, {FaultKind::kFails, 9, 1}, {FaultKind::kSigterm, 200}}});
  EXPECT_EQ(run(world).exit_code, 70) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("could not be written yet"), HasSubstr("ending before")));
}

/// Chooses a few faults, most of them close to each other.
std::vector<Fault> random_faults(std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<Fault> faults;
  double at = 0;
  for (std::size_t k = 1 + random() % 4; k > 0; --k) {
    at += 8 * unit(random) * unit(random);
    faults.push_back({static_cast<FaultKind>(random() % kFaultKinds), at, static_cast<std::uint32_t>(random() % 2),
                      60 * unit(random) * unit(random)});
  }
  return faults;
}

std::string text_of(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    text += fmt::format("kind {} at {:.3f} s of instance {} for {:.1f} s; ", static_cast<int>(fault.kind), fault.at,
                        fault.instance, fault.seconds);
  }
  return text;
}

TEST_F(JobInVirtualTime, LosesNothingInAnySeriesOfFaults) {
  const std::size_t jobs = testing::number_in("POPRUN_EMU_SIMULATIONS", 100);
  const std::size_t first = testing::number_in("POPRUN_EMU_SEED", 0);
  for (std::size_t seed = first; seed < first + jobs; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<Fault> faults = random_faults(random);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(faults)));
    SimulatedWorld world({.steps = 20, .faults = faults});
    std::uint64_t stored = 0;
    world.on_stored = [&](std::uint64_t step) { stored = step; };
    const int code = run(world, {"--restarts", "2"}).exit_code;
    ASSERT_THAT(code, ::testing::AnyOf(0, 69, 70, 75, 128 + SIGTERM)) << said_;
    ASSERT_LE(took_, 400) << said_;
    if (code == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_results(root_, 20)) << said_;
    } else {
      const std::vector<std::string> left = checkpoints_in(root_ / "out/checkpoints");
      ASSERT_GE(left.empty() ? 0 : step_of(left.front()), stored) << said_;
      SimulatedWorld calm({.steps = 20});
      const Args again =
          fs::exists(root_ / "out/profile.json") ? Args{"--resume", "auto", "--overwrite"} : Args{"--resume", "auto"};
      ASSERT_EQ(run(calm, again).exit_code, 0) << said_;
      ASSERT_NO_FATAL_FAILURE(expect_results(root_, 20)) << said_;
    }
    fs::remove_all(root_);
  }
}

TEST_F(JobInVirtualTime, LosesNothingIfTheMachineCrashesAtAnyCall) {
  const std::size_t most = testing::number_in("POPRUN_EMU_CRASHED_JOBS", 100);
  std::size_t crashes = 0;
  for (std::size_t seed = 0; crashes < most; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<Fault> faults = seed == 0 ? std::vector<Fault>{} : random_faults(random);
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::vector<std::pair<std::size_t, std::uint64_t>> stored;  // Numbers of calls, and steps.
    const testing::RecordedDisk disk(root_);
    bool ends_well = false;
    {
      SimulatedWorld world({.steps = 20, .faults = faults});
      world.on_stored = [&](std::uint64_t step) { stored.emplace_back(disk.calls(), step); };
      ends_well = run(world, {"--restarts", "2"}).exit_code == 0;
    }
    const std::size_t calls = disk.calls();
    for (std::size_t k = 0; k < 50 && crashes < most; ++k, ++crashes) {
      const std::size_t at = k < 5 ? calls : random() % calls;
      SCOPED_TRACE(fmt::format("seed {}, a crash after call {} of {}: {}", seed, at, calls, text_of(faults)));
      const fs::path left = folder_.path() / "left";
      fs::remove_all(left);
      disk.crash(at, random, left);
      std::uint64_t least = 0;
      for (const auto& [call, step] : stored) {
        least = call <= at ? step : least;
      }
      if (ends_well && at == calls) {
        ASSERT_NO_FATAL_FAILURE(expect_results(left, 20)) << "of a job that ended before the crash";
      }
      const std::vector<std::string> found = checkpoints_in(left / "out/checkpoints");
      for (const std::string& checkpoint : found) {
        ASSERT_LE(read_checkpoint(checkpoint)->manifest.epoch(), epoch_in(left / "out/checkpoints"));
      }
      ASSERT_GE(found.empty() ? 0 : step_of(found.front()), least);
      SimulatedWorld calm({.steps = 20});
      ASSERT_EQ(run(calm, {"--resume", "auto", "--overwrite"}, left).exit_code, 0) << said_;
      ASSERT_THAT(said_, Not(HasSubstr("damaged")));
      ASSERT_NO_FATAL_FAILURE(expect_results(left, 20)) << said_;
    }
  }
  fmt::print("{} crashes\n", crashes);
}

}  // namespace
}  // namespace poprun::launcher
