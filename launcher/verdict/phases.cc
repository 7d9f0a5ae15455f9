#include "launcher/verdict/phases.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

namespace poprun::launcher {
namespace {

enum class If : std::uint8_t { kAlways, kTrained, kReported, kComplete };

struct Row {
  JobEvent event;
  If condition;
  std::array<Reaction, kNumPhases> reactions;  ///< Indexed by phase.
};

/// Returns the table. For each event, the first row whose condition holds applies. In kSaving and kSavingEarly, the
/// report has arrived, so the cells of these phases have no effect below a kReported row of the same event.
std::span<const Row> table() {
  using enum JobEvent;
  using enum If;
  using enum Reaction;
  constexpr Reaction kNo = kIgnore;
  // clang-format off
  static constexpr Row kRows[] = {
    //                              Running        AskingHosts    Draining      Saving        SavingEarly   Ending     Closing       WaitForDisk
    {kTick,             kAlways,   {kWatch,        kWatch,        kWatchDrain,  kWatch,       kWatchDrain,  kWatchEnd, kNo,          kNo}},
    {kEndSignal,        kComplete, {kEndComplete,  kEndComplete,  kEndComplete, kEndComplete, kEndComplete, kKill,     kNo,          kLeave}},
    {kEndSignal,        kReported, {kSaveEarly,    kSaveEarly,    kEndUnsaved,  kSaveEarly,   kEndUnsaved,  kKill,     kNo,          kLeave}},
    {kEndSignal,        kTrained,  {kDrain,        kDrain,        kEndUnsaved,  kNo,          kNo,          kKill,     kNo,          kLeave}},
    {kEndSignal,        kAlways,   {kEndUntrained, kEndUntrained, kEndUnsaved,  kNo,          kNo,          kKill,     kNo,          kLeave}},
    {kCheckpointSignal, kTrained,  {kTake,         kTake,         kRefuse,      kTake,        kRefuse,      kRefuse,   kRefuse,      kRefuse}},
    {kCheckpointSignal, kAlways,   {kRefuse,       kRefuse,       kRefuse,      kRefuse,      kRefuse,      kRefuse,   kRefuse,      kRefuse}},
    {kCheckpointTime,   kReported, {kNo,           kNo,           kNo,          kNo,          kNo,          kNo,       kNo,          kNo}},
    {kCheckpointTime,   kTrained,  {kTake,         kTake,         kNo,          kNo,          kNo,          kNo,       kNo,          kNo}},
    {kDataset,          kAlways,   {kTake,         kTake,         kNo,          kNo,          kNo,          kNo,       kNo,          kNo}},
    {kHeld,             kAlways,   {kNo,           kNo,           kTake,        kNo,          kTake,        kNo,       kNo,          kNo}},
    {kReportItem,       kAlways,   {kTake,         kTake,         kTake,        kTake,        kTake,        kKeep,     kKeep,        kKeep}},
    {kReportEnd,        kAlways,   {kTake,         kTake,         kTake,        kTake,        kTake,        kNo,       kNo,          kNo}},
    {kFilesComplete,    kAlways,   {kNo,           kNo,           kNo,          kEndComplete, kEndComplete, kNo,       kNo,          kNo}},
    {kTrouble,          kAlways,   {kJudge,        kJudge,        kJudge,       kNo,          kNo,          kNo,       kNo,          kNo}},
    {kVerdict,          kReported, {kSaveAlone,    kSaveAlone,    kSaveAlone,   kNo,          kNo,          kNo,       kNo,          kNo}},
    {kVerdict,          kAlways,   {kTell,         kTell,         kTell,        kNo,          kNo,          kNo,       kNo,          kNo}},
    {kMpirunGaveUp,     kAlways,   {kAskHosts,     kNo,           kAskHosts,    kNo,          kNo,          kNo,       kNo,          kNo}},
    {kMpirunDone,       kReported, {kSaveAlone,    kSaveAlone,    kSaveAlone,   kSaveAlone,   kSaveAlone,   kNo,       kNo,          kNo}},
    {kMpirunDone,       kAlways,   {kExplain,      kNo,           kExplain,     kNo,          kNo,          kNo,       kNo,          kNo}},
    {kMpirunFailed,     kAlways,   {kExplain,      kNo,           kExplain,     kSaveAlone,   kSaveAlone,   kNo,       kNo,          kNo}},
    {kDataServerExit,   kReported, {kNo,           kNo,           kNo,          kNo,          kNo,          kNo,       kNo,          kNo}},
    {kDataServerExit,   kAlways,   {kTell,         kTell,         kTell,        kNo,          kNo,          kNo,       kNo,          kNo}},
    {kOutcome,          kAlways,   {kEnd,          kEnd,          kEnd,         kEnd,         kEnd,         kNo,       kNo,          kNo}},
    {kProcessesGone,    kAlways,   {kNo,           kNo,           kNo,          kNo,          kNo,          kClose,    kNo,          kNo}},
    {kDiskTime,         kAlways,   {kNo,           kNo,           kNo,          kNo,          kNo,          kNo,       kWaitForDisk, kLeave}},
  };
  // clang-format on
  return kRows;
}

bool holds(If condition, const ResultFacts& facts) {
  switch (condition) {
    case If::kAlways:
      return true;
    case If::kTrained:
      return facts.trained;
    case If::kReported:
      return facts.reported;
    case If::kComplete:
      return facts.complete;
  }
  return false;
}

}  // namespace

Reaction reaction_to(JobEvent event, Phase phase, const ResultFacts& facts) {
  const std::span<const Row> rows = table();
  const auto row = std::ranges::find_if(
      rows, [&](const Row& candidate) { return candidate.event == event && holds(candidate.condition, facts); });
  return row == rows.end() ? Reaction::kIgnore : row->reactions.at(static_cast<std::size_t>(phase));
}

Phase phase_after(Phase phase, Reaction reaction) {
  if (phase == Phase::kDraining && reaction == Reaction::kSaveAlone) {
    return Phase::kSavingEarly;
  }
  constexpr std::pair<Reaction, Phase> kEntered[] = {{Reaction::kAskHosts, Phase::kAskingHosts},
                                                     {Reaction::kDrain, Phase::kDraining},
                                                     {Reaction::kSaveAlone, Phase::kSaving},
                                                     {Reaction::kSaveEarly, Phase::kSavingEarly},
                                                     {Reaction::kEnd, Phase::kEnding},
                                                     {Reaction::kClose, Phase::kClosing},
                                                     {Reaction::kWaitForDisk, Phase::kWaitingForDisk}};
  const auto* const entered = std::ranges::find(kEntered, reaction, &std::pair<Reaction, Phase>::first);
  return entered == std::end(kEntered) ? phase : std::max(phase, entered->second);  // Phases only advance.
}

}  // namespace poprun::launcher
