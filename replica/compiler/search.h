#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "replica/base/error.h"

/// Settles open options by trial compilations, for the compiler itself (automatic.h) and for the advice on a job that
/// does not fit (search/memory_advice.h). The implementation is in this header.
namespace poprun {

/// A setting that can be changed in one or more ways. `Trial` must have a type `Settings` for the settings that it
/// tried, and a function `lacking()` that returns the distance from the goal: at most 0 if the goal is reached.
template <typename Trial>
struct Choice {
  /// Returns the settings to try next, or nothing if there is no further proposal. On the first call, `latest` is the
  /// trial that the choice starts from. On later calls, it is the result of the previous proposal, or null if the
  /// proposed settings were impossible.
  std::function<std::optional<typename Trial::Settings>(const Trial* latest)> next;

  /// Whether to keep the latest trial even if an earlier one is nearer to the goal, because further choices build on
  /// it. Otherwise, the trial nearest to the goal is kept, or the first of several that tie.
  bool keeps_latest = false;
};

/// Returns a choice with one proposal: what `settings` returns for the trial that the choice starts from.
template <typename Trial, typename MakeSettings>
Choice<Trial> single(MakeSettings settings, bool keeps_latest = false) {
  return {[settings = std::move(settings),
           proposed = false](const Trial* latest) mutable -> std::optional<typename Trial::Settings> {
            return std::exchange(proposed, true) ? std::nullopt : std::optional(settings(*latest));
          },
          keeps_latest};
}

/// Tries the choices in order, each starting from the trial kept so far, until the goal is reached or no proposals
/// remain. `attempt` tries the given settings and returns the Trial. Errors: kBug from `attempt`; any other error from
/// it means that the settings are impossible.
template <typename Trial, typename Attempt>
Result<Trial> search(Trial start, std::vector<Choice<Trial>> choices, const Attempt& attempt) {
  Trial best = std::move(start);
  for (Choice<Trial>& choice : choices) {
    std::optional<Trial> other;  // The latest trial, unless it is the best one.
    for (const Trial* latest = &best; best.lacking() > 0;) {
      const std::optional<typename Trial::Settings> settings = choice.next(latest);
      if (!settings) {
        break;
      }
      Result<Trial> trial = attempt(*settings);
      if (!trial && trial.error().code == ErrorCode::kBug) {
        return trial;
      }
      if (!trial) {
        latest = nullptr;
      } else if (choice.keeps_latest || trial->lacking() < best.lacking()) {
        best = *std::move(trial);
        latest = &best;
      } else {
        other = *std::move(trial);
        latest = &*other;
      }
    }
  }
  return best;
}

}  // namespace poprun
