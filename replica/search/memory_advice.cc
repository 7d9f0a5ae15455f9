#include "replica/search/memory_advice.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/compile.h"
#include "replica/report/tile_contents.h"
#include "replica/search/remedies.h"
#include "replica/search/trials.h"

namespace poprun {
namespace {

constexpr double kEachCosts = 1.1;                // Each further remedy weighs as much as 10 % device time.
constexpr std::size_t kCombinationsMax = 6;       // Combinations to compile, chosen by the effect of each remedy.
constexpr std::uint64_t kWorthwhilePercent = 98;  // A remedy alone must reduce the job's memory below this.

/// Returns `others` with the mildest setting of `remedy` that makes the job fit.
std::optional<Remedies> mildest(Trials& trials, Remedies others, std::size_t remedy) {
  const std::size_t settings = trials.table()[remedy].settings.size();
  const auto with = [&](std::size_t setting) {
    others[remedy] = setting;
    return others;
  };
  if (!trials.table()[remedy].by_halves) {
    for (std::size_t setting = 0; setting < settings && trials.of(with(setting)); ++setting) {
      if (trials.fits(others)) {
        return others;
      }
    }
    return std::nullopt;  // If a setting is impossible, for example with too few layers, stronger ones are too.
  }
  std::size_t last = settings - 1;
  while (last > 0 && !trials.of(with(last))) {
    --last;  // The setting is impossible: for example, the model has too few layers for so many phases.
  }
  if (!trials.fits(with(last))) {
    return std::nullopt;
  }
  std::size_t low = 0;
  for (std::size_t high = last; low < high;) {
    const std::size_t middle = low + (high - low) / 2;
    trials.fits(with(middle)) ? high = middle : low = middle + 1;
  }
  return with(low);
}

/// Drops remedies that are not needed and makes the rest as mild as possible, starting with the most expensive one.
Remedies milder(Trials& trials, Remedies remedies) {
  const Remedies all = remedies;
  for (auto it = all.rbegin(); it != all.rend() && remedies.size() > 1; ++it) {
    Remedies fewer = remedies;
    fewer.erase(it->first);
    if (trials.fits(fewer)) {
      remedies = fewer;
    }
  }
  const Remedies needed = remedies;
  for (auto it = needed.rbegin(); it != needed.rend(); ++it) {
    remedies = mildest(trials, remedies, it->first).value_or(remedies);
  }
  return remedies;
}

/// The expected effect of several remedies, if each changes memory and time by the same factor as it does alone.
struct Expectation {
  Remedies remedies;
  double tile = 1;  ///< Relative to the tile and the time of the unchanged job.
  double time = 1;
};

/// Returns all combinations of `all`. First come those that are expected to fit, the fastest first, with a time penalty
/// for each remedy. Then come all other combinations, those with the smallest expected shortage first.
std::vector<Remedies> by_promise(Trials& trials, const Remedies& all) {
  std::vector<Expectation> expected{{}};
  for (const auto& remedy : all) {
    const Trial& trial = *trials.of({remedy});
    const std::size_t before = expected.size();
    for (std::size_t i = 0; i < before; ++i) {
      Expectation with = expected[i];
      with.remedies.insert(remedy);
      with.tile *= static_cast<double>(trial.tile) / static_cast<double>(trials.as_it_is().tile);
      with.time *= trial.sample_seconds / trials.as_it_is().sample_seconds;
      expected.push_back(std::move(with));
    }
  }
  std::erase_if(expected, [&](const Expectation& one) { return one.remedies.size() < 2; });
  const double limit = static_cast<double>(trials.limit()) / static_cast<double>(trials.as_it_is().tile);
  std::ranges::stable_sort(expected, {}, [&](const Expectation& one) {
    const bool fits = one.tile <= limit;
    const auto number = static_cast<double>(one.remedies.size());
    return std::pair{!fits, fits ? one.time * std::pow(kEachCosts, number) : one.tile};
  });
  std::vector<Remedies> combinations;
  for (Expectation& one : expected) {
    combinations.push_back(std::move(one.remedies));
  }
  return combinations;
}

/// Returns `remedies` with one more remedy, in the setting that needs the least memory, or nothing if no remedy helps.
/// A remedy that has no effect on its own may help now, because a different step needs the most memory.
std::optional<Remedies> with_one_more(Trials& trials, const Remedies& remedies) {
  std::optional<Remedies> best;
  for (std::size_t r = 0; r < trials.table().size(); ++r) {
    if (remedies.contains(r) || trials.table()[r].is_last_resort) {
      continue;
    }
    Remedies more = remedies;
    for (std::size_t setting = 0; setting < trials.table()[r].settings.size(); ++setting) {
      more[r] = setting;
      const std::optional<Trial>& trial = trials.of(more);
      if (!trial) {
        break;
      }
      if (trial->tile < trials.of(best.value_or(remedies))->tile) {
        best = more;
      }
      if (trial->fits) {
        return best;
      }
    }
  }
  return best;
}

bool is_ordinary(const Trials& trials, const Remedies& remedies) {
  return std::ranges::none_of(remedies, [&](const auto& one) { return trials.table()[one.first].is_last_resort; });
}

/// Returns the closest attempt so far, without last resorts.
std::optional<Remedies> nearest(const Trials& trials) {
  return trials.smallest([&](const Remedies& remedies) { return is_ordinary(trials, remedies); });
}

/// Returns the fastest of the tried combinations of a few remedies that make the job fit. Tries the most promising
/// combinations of `alone`, then adds one remedy at a time to the closest attempt, and then adds a last resort.
std::optional<Remedies> combined(Trials& trials, const std::vector<Remedies>& alone) {
  Remedies strong;
  for (const Remedies& one : alone) {
    if (100 * trials.of(one)->tile < kWorthwhilePercent * trials.as_it_is().tile) {
      strong.insert(one.begin(), one.end());
    }
  }
  std::vector<Remedies> combinations = by_promise(trials, strong);
  combinations.resize(std::min(combinations.size(), kCombinationsMax));
  for (const Remedies& remedies : combinations) {
    if (trials.fits(remedies)) {
      return trials.fastest(milder(trials, remedies));
    }
  }
  std::optional<Remedies> closest = nearest(trials);
  for (std::optional<Remedies> more = closest; more; more = with_one_more(trials, *closest)) {
    closest = more;
    if (trials.fits(*more)) {
      return trials.fastest(milder(trials, *more));
    }
  }
  for (std::size_t r = 0; closest && r < trials.table().size(); ++r) {
    if (trials.table()[r].is_last_resort) {
      if (const auto fits = mildest(trials, *closest, r)) {
        return milder(trials, *fits);  // Not trials.fastest, which might learn from less data.
      }
    }
  }
  return std::nullopt;
}

/// The kinds of tensors and code on the fullest tile at its peak, the largest first.
class Occupants {
 public:
  explicit Occupants(const Program& program) {
    const proto::IpuMemory& memory = fullest(program);
    if (!memory.has_layout()) {
      return;
    }
    const std::uint32_t tile = memory.fullest_tile();
    std::map<std::string_view, std::int64_t> bytes;
    for (const HeldBytes& held : held_on_tile(memory, tile, liveness_of_tile(memory, tile).worst_step())) {
      bytes[kind_of(program, memory.layout().claims(held.claim))] += held.bytes.count();
    }
    kinds_.assign(bytes.begin(), bytes.end());
    std::ranges::stable_sort(kinds_, std::greater(), &Kind::second);
  }

  /// Returns the rank of the largest of `kinds`, or 0 if that kind is at least half as large as the largest of all.
  [[nodiscard]] std::size_t rank_of(const std::vector<std::string_view>& kinds) const {
    for (std::size_t i = 0; i < kinds_.size() && !kinds.empty(); ++i) {
      if (std::ranges::find(kinds, kinds_[i].first) != kinds.end()) {
        return 2 * kinds_[i].second >= kinds_.front().second ? 0 : i;
      }
    }
    return kinds.empty() ? 0 : kinds_.size();
  }

 private:
  using Kind = std::pair<std::string_view, std::int64_t>;
  std::vector<Kind> kinds_;
};

/// Returns all remedies except last resorts, in the order in which to try them, since the budget may not suffice for
/// all. First come those that reduce the largest occupants of the fullest tile, the cheapest first. If the job needs
/// more than twice the available memory, those that add memory come first instead.
std::vector<std::size_t> in_turn(const Trials& trials, const Occupants& occupants) {
  std::vector<std::size_t> all;
  for (std::size_t r = 0; r < trials.table().size(); ++r) {
    if (!trials.table()[r].is_last_resort) {
      all.push_back(r);
    }
  }
  std::ranges::stable_sort(all, {}, [&](std::size_t r) { return occupants.rank_of(trials.table()[r].relieves); });
  if (trials.lacks_much()) {
    std::ranges::stable_partition(all, [&](std::size_t r) { return trials.table()[r].adds_memory; });
  }
  return all;
}

/// Returns each remedy alone, in the mildest setting that fits or, if none fits, in the setting that needs the least
/// memory. Leaves out remedies that do not reduce the job's memory.
std::vector<Remedies> alone(Trials& trials, const Occupants& occupants) {
  std::vector<Remedies> found;
  for (const std::size_t r : in_turn(trials, occupants)) {
    std::optional<Remedies> best = mildest(trials, {}, r);
    if (!best) {
      best = trials.smallest([r](const Remedies& tried) { return tried.size() == 1 && tried.begin()->first == r; });
    }
    if (best && trials.of(*best)->tile < trials.as_it_is().tile) {
      found.push_back(*best);
    }
  }
  return found;
}

/// Returns the change in device time per sample, as "+12 %".
std::string change_text(const Trials& trials, const Trial& trial) {
  return fmt::format("{:+} %", std::llround(100 * (trial.sample_seconds / trials.as_it_is().sample_seconds - 1)));
}

/// Sorts remedies: first those that fit, in order of time, then the others, in order of shortage.
void rank(Trials& trials, std::vector<Remedies>& remedies) {
  std::ranges::stable_sort(remedies, {}, [&](const Remedies& one) {
    const Trial& trial = *trials.of(one);
    return std::pair{!trial.fits, trial.fits ? trial.sample_seconds : static_cast<double>(trial.tile)};
  });
}

/// Returns the table of the ranked remedies `shown`.
std::string table_of(Trials& trials, const std::vector<Remedies>& shown) {
  if (shown.empty()) {
    return "";
  }
  std::string text = "remedies, each compiled:\n  fullest tile          over    device step  per sample\n";
  const auto row = [&](const Trial& trial, const std::string& change, std::string_view options) {
    text += fmt::format("  {:>10} B  {:>12}  {:>13}  {:>10}  {}\n", grouped(trial.tile),
                        trial.fits ? "fits" : fmt::format("{} B", grouped(trial.tile - trials.limit())),
                        duration_text(trial.step_seconds), change, options);
  };
  row(trials.as_it_is(), "", "as it is");
  for (const Remedies& remedies : shown) {
    const Trial& trial = *trials.of(remedies);
    row(trial, change_text(trials, trial), trial.options);
  }
  return text;
}

std::vector<proto::Remedy> as_data(Trials& trials, const std::vector<Remedies>& shown) {
  std::vector<proto::Remedy> data;
  for (const Remedies& remedies : shown) {
    const Trial& trial = *trials.of(remedies);
    proto::Remedy& one = data.emplace_back();
    const ChangedJob job = trials.job_with(remedies);
    one.mutable_options()->Assign(job.changes.begin(), job.changes.end());
    one.set_fits(trial.fits);
    one.set_fullest_tile_bytes(trial.tile);
    one.set_step_seconds(trial.step_seconds);
    one.set_time_per_sample(trial.sample_seconds / trials.as_it_is().sample_seconds);
  }
  return data;
}

/// Returns the advice if `best` fits and `others` more remedies fit as well.
std::string relief(Trials& trials, const Remedies& best, std::size_t others) {
  const Trial& trial = *trials.of(best);
  return fmt::format("it fits with {}{} ({} device time per sample){}{}", trial.options,
                     best.size() > 1 ? " together" : "", change_text(trials, trial),
                     others > 0 ? fmt::format(", or with {} below", counted(others, "other")) : "",
                     trials.has_left_out() ? "; not every remedy was tried" : "");
}

/// Returns the advice if nothing fits.
std::string regret(Trials& trials) {
  std::string text = "nothing that was tried makes it fit";
  const std::optional<Remedies> closest = nearest(trials);
  if (closest && trials.of(*closest)->tile < trials.as_it_is().tile) {
    const Trial& trial = *trials.of(*closest);
    text += fmt::format("; the closest attempt is {}{}, still {} B over", trial.options,
                        closest->size() > 1 ? " together" : "", grouped(trial.tile - trials.limit()));
  }
  if (trials.has_left_out()) {
    text += "; not every remedy was tried";
  }
  return text;
}

/// Returns the remedies as a command line, or an empty string if they cannot be expressed as one.
std::string command_of(const Trials& trials, const Remedies& remedies, const std::vector<std::string>& command) {
  ChangedJob job = trials.job_with(remedies);
  const std::optional<std::vector<std::string>> words = job.command(command);
  return command.empty() || !words ? ""
                                   : fmt::format("the first as a command:\n  poprun-emu {}\n", fmt::join(*words, " "));
}

/// Returns the number of layers between embeddings and head; 0 in a model without them.
std::int64_t encoder_layers(const proto::RunConfig& config, const proto::Dataset& dataset,
                            const std::shared_ptr<onnx_import::JobModel>& onnx) {
  const auto graph =
      compile_options(config, dataset, onnx).and_then([](const CompileOptions& options) { return build_job(options); });
  if (!graph || std::ranges::all_of(graph->layers, &Layer::counted)) {
    return 0;
  }
  return std::ranges::count(graph->layers, true, &Layer::counted);
}

ChangedJob unchanged(const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
                     const std::shared_ptr<onnx_import::JobModel>& onnx) {
  ChangedJob job{config, dataset, encoder_layers(config, dataset, onnx), program.memory(0).bytes_per_tile()};
  for (const proto::IpuMemory& memory : program.memory()) {
    job.tiles.push_back(memory.fullest_tile_peak());
  }
  return job;
}

}  // namespace

MemoryAdvice memory_advice(const Program& program, const proto::RunConfig& config, const proto::Dataset& dataset,
                           const std::shared_ptr<onnx_import::JobModel>& onnx, const AdviceOptions& options) {
  const ChangedJob job = unchanged(program, config, dataset, onnx);
  Trials trials(program, job, remedies_for(job), onnx, options.before_compilation);
  trials.reserve();
  std::vector<Remedies> shown = alone(trials, Occupants(program));
  trials.release();
  rank(trials, shown);
  const auto fitting =
      static_cast<std::size_t>(std::ranges::count_if(shown, [&](const Remedies& one) { return trials.fits(one); }));
  std::optional<Remedies> best = fitting > 0 ? std::optional(shown.front()) : std::nullopt;
  if (fitting == 0) {
    best = combined(trials, shown);
    if (best) {
      shown.insert(shown.begin(), *best);
    }
  }
  MemoryAdvice advice{.sentence = best ? relief(trials, *best, fitting > 0 ? fitting - 1 : 0) : regret(trials),
                      .table = table_of(trials, shown),
                      .remedies = as_data(trials, shown)};
  if (best) {
    advice.table += command_of(trials, *best, options.command);
  }
  return advice;
}

}  // namespace poprun
