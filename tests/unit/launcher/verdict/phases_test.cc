#include "launcher/verdict/phases.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>

namespace poprun::phases_test {
namespace {

using namespace launcher;
using enum Reaction;
using ::testing::ElementsAre;

constexpr ResultFacts kNothingYet = {};
constexpr ResultFacts kTrained = {.trained = true};
constexpr ResultFacts kReported = {.trained = true, .reported = true};
constexpr ResultFacts kComplete = {.trained = true, .reported = true, .complete = true};
constexpr ResultFacts kInferred = {.reported = true};  ///< Results without training.
constexpr std::array kAllFacts = {kNothingYet, kTrained, kReported, kComplete, kInferred};

std::vector<Phase> all_phases() {
  std::vector<Phase> phases;
  for (std::size_t p = 0; p < kNumPhases; ++p) {
    phases.push_back(static_cast<Phase>(p));
  }
  return phases;
}

std::vector<JobEvent> all_events() {
  std::vector<JobEvent> events;
  for (int e = 0; e <= static_cast<int>(JobEvent::kDiskTime); ++e) {
    events.push_back(static_cast<JobEvent>(e));
  }
  return events;
}

/// Returns the reactions in all phases, in the order of the phases.
std::vector<Reaction> reactions(JobEvent event, const ResultFacts& facts) {
  std::vector<Reaction> found;
  for (const Phase phase : all_phases()) {
    found.push_back(reaction_to(event, phase, facts));
  }
  return found;
}

/// Returns the phase after `event`.
Phase after(Phase phase, JobEvent event, const ResultFacts& facts = kTrained) {
  return phase_after(phase, reaction_to(event, phase, facts));
}

TEST(Phases, AJobThatSucceedsSavesAndEnds) {
  Phase phase = after(Phase::kRunning, JobEvent::kDataset, kNothingYet);
  phase = after(phase, JobEvent::kReportItem);
  phase = after(phase, JobEvent::kReportEnd);
  EXPECT_EQ(phase, Phase::kRunning);
  phase = after(phase, JobEvent::kMpirunDone, kReported);
  EXPECT_EQ(phase, Phase::kSaving);
  EXPECT_EQ(reaction_to(JobEvent::kFilesComplete, phase, kComplete), kEndComplete);
  phase = after(phase, JobEvent::kOutcome, kComplete);
  EXPECT_EQ(phase, Phase::kEnding);
  phase = after(phase, JobEvent::kProcessesGone, kComplete);
  EXPECT_EQ(phase, Phase::kClosing);
  phase = after(phase, JobEvent::kDiskTime, kComplete);
  EXPECT_EQ(phase, Phase::kWaitingForDisk);
  EXPECT_EQ(reaction_to(JobEvent::kDiskTime, phase, kComplete), kLeave);
}

TEST(Phases, AJobThatASignalStopsDrainsSavesAndEnds) {
  Phase phase = after(Phase::kRunning, JobEvent::kEndSignal);
  EXPECT_EQ(phase, Phase::kDraining);
  EXPECT_EQ(reaction_to(JobEvent::kHeld, phase, kTrained), kTake);
  phase = after(phase, JobEvent::kMpirunDone, kReported);
  EXPECT_EQ(phase, Phase::kSavingEarly);
  EXPECT_EQ(after(phase, JobEvent::kOutcome, kComplete), Phase::kEnding);
}

TEST(Phases, AJobNeverGoesBack) {
  for (const ResultFacts& facts : kAllFacts) {
    for (const JobEvent event : all_events()) {
      for (const Phase phase : all_phases()) {
        EXPECT_GE(after(phase, event, facts), phase) << static_cast<int>(event);
      }
    }
  }
}

TEST(Phases, EveryEventCountsSomewhere) {
  for (const JobEvent event : all_events()) {
    bool counts = false;
    for (const ResultFacts& facts : kAllFacts) {
      for (const Reaction reaction : reactions(event, facts)) {
        counts = counts || reaction != kIgnore;
      }
    }
    EXPECT_TRUE(counts) << static_cast<int>(event);
  }
}

TEST(Phases, OnceTheOutcomeIsDecidedNothingElseCanDecideIt) {
  for (const JobEvent event : {JobEvent::kTrouble, JobEvent::kVerdict, JobEvent::kMpirunGaveUp, JobEvent::kMpirunDone,
                               JobEvent::kMpirunFailed, JobEvent::kFilesComplete, JobEvent::kReportEnd,
                               JobEvent::kDataset, JobEvent::kDataServerExit, JobEvent::kHeld, JobEvent::kOutcome}) {
    for (const Phase phase : {Phase::kEnding, Phase::kClosing, Phase::kWaitingForDisk}) {
      for (const ResultFacts& facts : kAllFacts) {
        EXPECT_EQ(reaction_to(event, phase, facts), kIgnore) << static_cast<int>(event);
      }
    }
  }
}

// The order of the phases is: running, asking hosts, draining, saving, saving early, ending, closing, waiting for disk.

TEST(Phases, OnlyDeadlinesCountWhileProcessesEnd) {
  EXPECT_THAT(reactions(JobEvent::kTick, kReported),
              ElementsAre(kWatch, kWatch, kWatchDrain, kWatch, kWatchDrain, kWatchEnd, kIgnore, kIgnore));
}

TEST(Phases, TheFirstSignalSavesWhatThereIsAndTheSecondEndsTheJob) {
  EXPECT_THAT(reactions(JobEvent::kEndSignal, kReported),
              ElementsAre(kSaveEarly, kSaveEarly, kEndUnsaved, kSaveEarly, kEndUnsaved, kKill, kIgnore, kLeave));
  EXPECT_EQ(after(Phase::kRunning, JobEvent::kEndSignal, kReported), Phase::kSavingEarly);
  EXPECT_EQ(after(Phase::kSaving, JobEvent::kEndSignal, kReported), Phase::kSavingEarly);
  EXPECT_EQ(reaction_to(JobEvent::kEndSignal, Phase::kRunning, kInferred), kSaveEarly);
  EXPECT_EQ(reaction_to(JobEvent::kEndSignal, Phase::kAskingHosts, kTrained), kDrain);
  EXPECT_EQ(reaction_to(JobEvent::kEndSignal, Phase::kDraining, kTrained), kEndUnsaved);
}

TEST(Phases, ASignalEndsAJobWithoutAStepAtOnce) {
  for (const Phase phase : {Phase::kRunning, Phase::kAskingHosts}) {
    EXPECT_EQ(reaction_to(JobEvent::kEndSignal, phase, kNothingYet), kEndUntrained);
  }
}

TEST(Phases, ASignalDoesNotSpoilACompleteJob) {
  EXPECT_THAT(
      reactions(JobEvent::kEndSignal, kComplete),
      ElementsAre(kEndComplete, kEndComplete, kEndComplete, kEndComplete, kEndComplete, kKill, kIgnore, kLeave));
}

TEST(Phases, CheckpointsAreTakenWhileTheJobTrains) {
  EXPECT_THAT(reactions(JobEvent::kCheckpointTime, kTrained),
              ElementsAre(kTake, kTake, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
  EXPECT_EQ(reaction_to(JobEvent::kCheckpointTime, Phase::kRunning, kReported), kIgnore);
  EXPECT_EQ(reaction_to(JobEvent::kCheckpointTime, Phase::kRunning, kNothingYet), kIgnore);
}

TEST(Phases, ARequestForACheckpointIsAlwaysAnswered) {
  EXPECT_THAT(reactions(JobEvent::kCheckpointSignal, kTrained),
              ElementsAre(kTake, kTake, kRefuse, kTake, kRefuse, kRefuse, kRefuse, kRefuse));
  for (const Reaction reaction : reactions(JobEvent::kCheckpointSignal, kNothingYet)) {
    EXPECT_EQ(reaction, kRefuse);
  }
}

TEST(Phases, InstancesLearnTheDatasetUntilTheJobShallEnd) {
  EXPECT_THAT(reactions(JobEvent::kDataset, kNothingYet),
              ElementsAre(kTake, kTake, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
}

TEST(Phases, OnlyAJobThatIsAskedToStopSaysWhere) {
  EXPECT_THAT(reactions(JobEvent::kHeld, kTrained),
              ElementsAre(kIgnore, kIgnore, kTake, kIgnore, kTake, kIgnore, kIgnore, kIgnore));
}

TEST(Phases, ReportsAreKeptToTheEndButNotShown) {
  EXPECT_THAT(reactions(JobEvent::kReportItem, kTrained),
              ElementsAre(kTake, kTake, kTake, kTake, kTake, kKeep, kKeep, kKeep));
}

TEST(Phases, TroubleCountsAsLongAsProcessesAreNeeded) {
  EXPECT_THAT(reactions(JobEvent::kTrouble, kTrained),
              ElementsAre(kJudge, kJudge, kJudge, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
}

TEST(Phases, AVerdictOnAJobWithAllResultsIsOnlyANote) {
  EXPECT_THAT(reactions(JobEvent::kVerdict, kTrained),
              ElementsAre(kTell, kTell, kTell, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
  EXPECT_THAT(reactions(JobEvent::kVerdict, kReported),
              ElementsAre(kSaveAlone, kSaveAlone, kSaveAlone, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
  EXPECT_EQ(after(Phase::kAskingHosts, JobEvent::kVerdict, kReported), Phase::kSaving);
  EXPECT_EQ(after(Phase::kDraining, JobEvent::kVerdict, kReported), Phase::kSavingEarly);
}

TEST(Phases, HostsAreAskedOnceWhenMpirunGivesUp) {
  EXPECT_EQ(after(Phase::kRunning, JobEvent::kMpirunGaveUp), Phase::kAskingHosts);
  EXPECT_EQ(after(Phase::kDraining, JobEvent::kMpirunGaveUp), Phase::kDraining);
  EXPECT_THAT(reactions(JobEvent::kMpirunGaveUp, kNothingYet),
              ElementsAre(kAskHosts, kIgnore, kAskHosts, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
  for (const JobEvent event : {JobEvent::kMpirunDone, JobEvent::kMpirunFailed}) {
    EXPECT_EQ(reaction_to(event, Phase::kAskingHosts, kNothingYet), kIgnore);
  }
}

TEST(Phases, TheEndOfMpirunIsExplainedUnlessTheResultsAreThere) {
  EXPECT_THAT(reactions(JobEvent::kMpirunDone, kReported),
              ElementsAre(kSaveAlone, kSaveAlone, kSaveAlone, kSaveAlone, kSaveAlone, kIgnore, kIgnore, kIgnore));
  EXPECT_THAT(reactions(JobEvent::kMpirunFailed, kReported),
              ElementsAre(kExplain, kIgnore, kExplain, kSaveAlone, kSaveAlone, kIgnore, kIgnore, kIgnore));
  EXPECT_EQ(reaction_to(JobEvent::kMpirunDone, Phase::kRunning, kTrained), kExplain);
}

TEST(Phases, TheDataServerIsMissedUntilTheResultsAreThere) {
  EXPECT_THAT(reactions(JobEvent::kDataServerExit, kTrained),
              ElementsAre(kTell, kTell, kTell, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore));
  for (const Reaction reaction : reactions(JobEvent::kDataServerExit, kReported)) {
    EXPECT_EQ(reaction, kIgnore);
  }
}

}  // namespace
}  // namespace poprun::phases_test
