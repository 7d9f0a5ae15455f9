#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "replica/base/error.h"

/// The loop that settles what nobody has set, by compiling: the compiler's own (automatic.h) and that of the advice on
/// a job that does not fit (search/memory_advice.h). Header only.
namespace poprun {

/// Something that may be set, in one or more ways. `Trial` has the settings that were tried as its type `Settings`, and
/// `lacking()`: what it lacks of the goal, at most 0 once the goal is reached.
template <typename Trial>
struct Choice {
  /// Proposes what to try next, or nothing more. `latest` is what the choice starts from, then what the proposal before
  /// gave; null if that could not be tried.
  std::function<std::optional<typename Trial::Settings>(const Trial* latest)> next;

  /// Whether the latest trial is kept in any case, because further choices build on it. Otherwise the one that lacks
  /// least is kept, and of equal ones the first.
  bool keeps_latest = false;
};

/// A choice with one way to set it: what `settings` returns for the trial that it starts from.
template <typename Trial, typename MakeSettings>
Choice<Trial> single(MakeSettings settings, bool keeps_latest = false) {
  return {[settings = std::move(settings),
           proposed = false](const Trial* latest) mutable -> std::optional<typename Trial::Settings> {
            return std::exchange(proposed, true) ? std::nullopt : std::optional(settings(*latest));
          },
          keeps_latest};
}

/// Tries the choices in their order, each from what was kept so far, until the goal is reached or nothing is left to
/// propose. `attempt` returns the Trial of some settings. Errors: kBug, from `attempt`; its other errors mean that
/// these settings are impossible.
template <typename Trial, typename Attempt>
Result<Trial> search(Trial start, std::vector<Choice<Trial>> choices, const Attempt& attempt) {
  Trial best = std::move(start);
  for (Choice<Trial>& choice : choices) {
    std::optional<Trial> other;  // The latest, unless that is the best.
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
