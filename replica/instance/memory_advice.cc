#include "replica/instance/memory_advice.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "replica/instance/job.h"
#include "replica/instance/profile.h"
#include "replica/instance/remedies.h"

namespace poprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTrialsMax = 40;
constexpr std::size_t kTrialsMin = 8;
constexpr std::size_t kEffortMax = 6'000'000;     // All trials'; some 10 s.
constexpr std::size_t kCombinationsMax = 6;       // Compiled because of what their parts do alone.
constexpr std::uint64_t kWorthwhilePercent = 98;  // Or less of the job's memory, for these parts.

/// Remedies by their places in the table, each with the place of its setting.
using Remedies = std::map<std::size_t, std::size_t>;

/// What a job needs, with some remedies or none.
struct Trial {
  std::string options;
  std::uint64_t tile;  ///< Bytes of the fullest tile.
  bool fits;
  double step_seconds;    ///< Device time.
  double sample_seconds;  ///< A step's device time by its samples.
};

/// What compiling a Program costs: operators for each kind of tiles, whose places are planned
/// apart.
std::size_t effort_of(const Program& program) {
  std::size_t kinds = 0;
  for (const proto::IpuMemory& memory : program.memory()) {
    kinds += memory.tile_classes();
  }
  return kinds * program.operator_count() / static_cast<std::size_t>(program.memory_size());
}

std::ptrdiff_t idle_ipus(const Program& program) {
  return std::ranges::count(program.memory(), 0U, &proto::IpuMemory::images_peak);
}

Trial trial_of(const ChangedJob& job, const Program& program) {
  const proto::IpuMemory& most = fullest(program);
  const JobLength length = job_length(job.config, job.dataset).value_or(JobLength{});
  const proto::DeviceTime time = device_time(program, job.config, length);
  return {job.options(), most.fullest_tile_peak(), fits(most), time.step_seconds(),
          1 / time.samples_per_second()};
}

/// Why remedies were not tried.
enum class LeftOut : std::uint8_t { kNone, kByLimit, kForLackOfTime };

/// Compiles a job with remedies, as long as there is time.
class Trials {
 public:
  Trials(const Program& program, ChangedJob job, std::vector<Remedy> table,
         std::shared_ptr<onnx_import::JobModel> onnx, Clock::time_point until)
      : job_(std::move(job)),
        table_(std::move(table)),
        onnx_(std::move(onnx)),
        until_(until),
        limit_(program.memory(0).bytes_per_tile()),
        idle_(idle_ipus(program)),
        as_it_is_(trial_of(job_, program)),
        left_(std::clamp(kEffortMax / std::max<std::size_t>(1, effort_of(program)), kTrialsMin,
                         kTrialsMax)) {}

  /// Nothing where the job cannot be changed so, or there is no time to see; nor without remedies.
  const std::optional<Trial>& of(const Remedies& remedies) {
    static const std::optional<Trial> kUntried;
    if (remedies.empty()) {
      return kUntried;
    }
    if (const auto known = known_.find(remedies); known != known_.end()) {
      return known->second;
    }
    const bool is_late = Clock::now() >= until_;
    if (left_ == 0 || is_late) {
      left_out_ = is_late ? LeftOut::kForLackOfTime : LeftOut::kByLimit;
      return kUntried;
    }
    --left_;
    return known_.emplace(remedies, compile(remedies)).first->second;
  }

  bool fits(const Remedies& remedies) {
    const std::optional<Trial>& trial = of(remedies);
    return trial && trial->fits;
  }

  [[nodiscard]] const std::vector<Remedy>& table() const { return table_; }
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] const Trial& as_it_is() const { return as_it_is_; }
  [[nodiscard]] LeftOut left_out() const { return left_out_; }

  /// The first by `key` of all that were tried and are accepted; nothing where none was.
  template <typename Key, typename Accept>
  [[nodiscard]] std::optional<Remedies> first(Key key, Accept accept) const {
    const std::pair<const Remedies, std::optional<Trial>>* best = nullptr;
    for (const auto& tried : known_) {
      if (tried.second && accept(tried.first, *tried.second) &&
          (best == nullptr || key(tried) < key(*best))) {
        best = &tried;
      }
    }
    return best == nullptr ? std::nullopt : std::optional(best->first);
  }

  /// What needs the least memory of all that were tried and are accepted, with as few remedies as
  /// can be.
  template <typename Accept>
  [[nodiscard]] std::optional<Remedies> smallest(Accept accept) const {
    return first(
        [](const auto& tried) {
          return std::pair{tried.second->tile, tried.first.size()};
        },
        [&](const Remedies& remedies, const Trial& /*trial*/) { return accept(remedies); });
  }

  /// What takes the least device time of all that were tried and fit, with at most as many remedies
  /// as `like`, which fits.
  [[nodiscard]] Remedies fastest(const Remedies& like) const {
    return *first(
        [](const auto& tried) {
          return std::tuple{tried.second->sample_seconds, tried.first.size(), tried.second->tile};
        },
        [&](const Remedies& remedies, const Trial& trial) {
          return remedies.size() <= like.size() && trial.fits;
        });
  }

 private:
  [[nodiscard]] std::optional<Trial> compile(const Remedies& remedies) const {
    ChangedJob job = job_;
    for (const auto& [remedy, setting] : remedies) {
      table_[remedy].settings[setting](job);
    }
    if (!job.is_consistent()) {
      return std::nullopt;
    }
    const Result<CompileOptions> options = compile_options(job.config, job.dataset, onnx_);
    const Result<Program> program =
        options ? plan_program(*options) : tl::unexpected<Error>{options.error()};
    // More IPUs than the model has layers for are no remedy.
    if (!program || idle_ipus(*program) > idle_) {
      return std::nullopt;
    }
    return trial_of(job, *program);
  }

  ChangedJob job_;
  std::vector<Remedy> table_;
  std::shared_ptr<onnx_import::JobModel> onnx_;
  Clock::time_point until_;
  std::uint64_t limit_;  ///< Bytes of a tile.
  std::ptrdiff_t idle_;  ///< IPUs that the job itself leaves idle.
  Trial as_it_is_;
  std::size_t left_;
  LeftOut left_out_ = LeftOut::kNone;
  std::map<Remedies, std::optional<Trial>> known_;
};

/// The mildest setting of `remedy` with which the job and `others` fit.
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
    return std::nullopt;  // What cannot be done at all, as for lack of layers, cannot go further.
  }
  std::size_t last = settings - 1;
  while (last > 0 && !trials.of(with(last))) {
    --last;  // More phases than the model can be cut into.
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

/// Leaves out what is not needed and makes the rest as mild as possible, the dearest first.
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

/// What remedies are expected to do together, if each changes memory and time by the same factor as
/// alone.
struct Expectation {
  Remedies remedies;
  double tile = 1;  ///< As parts of the tile and of the time that the job takes as it is.
  double time = 1;
};

/// All combinations of some of `all`: those that promise to fit, small ones first, of equal size
/// those that promise to be fast; then the others, those that promise to lack least first.
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
  const double limit =
      static_cast<double>(trials.limit()) / static_cast<double>(trials.as_it_is().tile);
  std::ranges::stable_sort(expected, {}, [&](const Expectation& one) {
    const bool fits = one.tile <= limit;
    return std::tuple{!fits, fits ? one.remedies.size() : 0, fits ? one.time : one.tile};
  });
  std::vector<Remedies> combinations;
  for (Expectation& one : expected) {
    combinations.push_back(std::move(one.remedies));
  }
  return combinations;
}

/// `remedies` with one more, in the setting that needs the least memory; nothing where none helps.
/// A remedy that does nothing alone may do something now that another step is the worst.
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
  return std::ranges::none_of(
      remedies, [&](const auto& one) { return trials.table()[one.first].is_last_resort; });
}

/// What comes closest of all that was tried, without last resorts.
std::optional<Remedies> nearest(const Trials& trials) {
  return trials.smallest([&](const Remedies& remedies) { return is_ordinary(trials, remedies); });
}

/// Few remedies that fit together and take the least device time of those that there is time to
/// try: first those of `alone` that promise most, then what comes closest with more and more of the
/// others, then with a last resort.
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
        return milder(trials, *fits);  // A faster one would learn from less data.
      }
    }
  }
  return std::nullopt;
}

/// The remedies that are no last resorts, in the order in which to try them: there may not be time
/// for all, and one that adds memory is the likeliest to help a job that needs twice as much.
std::vector<std::size_t> in_turn(const Trials& trials) {
  std::vector<std::size_t> all;
  for (std::size_t r = 0; r < trials.table().size(); ++r) {
    if (!trials.table()[r].is_last_resort) {
      all.push_back(r);
    }
  }
  if (trials.as_it_is().tile > 2 * trials.limit()) {
    std::ranges::stable_partition(all,
                                  [&](std::size_t r) { return trials.table()[r].adds_memory; });
  }
  return all;
}

/// What each remedy does alone: the mildest setting that fits, otherwise the one that needs least.
/// Without those that need no less than the job as it is.
std::vector<Remedies> alone(Trials& trials) {
  std::vector<Remedies> found;
  for (const std::size_t r : in_turn(trials)) {
    std::optional<Remedies> best = mildest(trials, {}, r);
    if (!best) {
      best = trials.smallest(
          [r](const Remedies& tried) { return tried.size() == 1 && tried.begin()->first == r; });
    }
    if (best && trials.of(*best)->tile < trials.as_it_is().tile) {
      found.push_back(*best);
    }
  }
  return found;
}

/// "+12 %": how much longer a sample takes.
std::string change_text(const Trials& trials, const Trial& trial) {
  return fmt::format(
      "{:+} %", std::llround(100 * (trial.sample_seconds / trials.as_it_is().sample_seconds - 1)));
}

/// Those that fit first, the fastest first; then the others, those that lack least first.
void rank(Trials& trials, std::vector<Remedies>& remedies) {
  std::ranges::stable_sort(remedies, {}, [&](const Remedies& one) {
    const Trial& trial = *trials.of(one);
    return std::pair{!trial.fits,
                     trial.fits ? trial.sample_seconds : static_cast<double>(trial.tile)};
  });
}

/// `shown`: ranked.
std::string table_of(Trials& trials, const std::vector<Remedies>& shown) {
  if (shown.empty()) {
    return "";
  }
  std::string text =
      "remedies, each compiled:\n  fullest tile          over    device step  a sample\n";
  const auto row = [&](const Trial& trial, const std::string& change, std::string_view options) {
    text +=
        fmt::format("  {:>10} B  {:>12}  {:>13}  {:>8}  {}\n", grouped(trial.tile),
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

std::string_view left_out_text(LeftOut left_out) {
  switch (left_out) {
    case LeftOut::kNone:
      break;
    case LeftOut::kByLimit:
      return "; not every remedy was tried";
    case LeftOut::kForLackOfTime:
      return "; there was no time to try every remedy, a longer --collective-timeout gives more";
  }
  return "";
}

/// What is said where something fits: `best` and `others` more.
std::string relief(Trials& trials, const Remedies& best, std::size_t others) {
  const Trial& trial = *trials.of(best);
  return fmt::format("it fits with {}{} ({} device time a sample){}{}", trial.options,
                     best.size() > 1 ? " together" : "", change_text(trials, trial),
                     others > 0 ? fmt::format(", or with {} below", counted(others, "other")) : "",
                     left_out_text(trials.left_out()));
}

/// What is said where nothing fits.
std::string regret(Trials& trials) {
  const bool is_late = trials.left_out() == LeftOut::kForLackOfTime;
  std::string text = is_late ? "nothing tried in the time available makes it fit, a longer "
                               "--collective-timeout gives more"
                             : "nothing that was tried makes it fit";
  const std::optional<Remedies> closest = nearest(trials);
  if (closest && trials.of(*closest)->tile < trials.as_it_is().tile) {
    const Trial& trial = *trials.of(*closest);
    text +=
        fmt::format("; with {}{} it comes closest: {} B over", trial.options,
                    closest->size() > 1 ? " together" : "", grouped(trial.tile - trials.limit()));
  }
  return text;
}

/// Layers between embeddings and head; 0 in a model without those.
std::int64_t encoder_layers(const proto::RunConfig& config, const proto::Dataset& dataset,
                            const std::shared_ptr<onnx_import::JobModel>& onnx) {
  const auto graph =
      compile_options(config, dataset, onnx).and_then([](const CompileOptions& options) {
        return build_job(options);
      });
  if (!graph || std::ranges::all_of(graph->layers, &Layer::counted)) {
    return 0;
  }
  return std::ranges::count(graph->layers, true, &Layer::counted);
}

}  // namespace

MemoryAdvice memory_advice(const Program& program, const proto::RunConfig& config,
                           const proto::Dataset& dataset,
                           const std::shared_ptr<onnx_import::JobModel>& onnx,
                           Clock::time_point until) {
  const ChangedJob job{config, dataset, encoder_layers(config, dataset, onnx)};
  Trials trials(program, job, remedies_for(job), onnx, until);
  std::vector<Remedies> shown = alone(trials);
  rank(trials, shown);
  const auto fitting = static_cast<std::size_t>(
      std::ranges::count_if(shown, [&](const Remedies& one) { return trials.fits(one); }));
  if (fitting > 0) {
    return {relief(trials, shown.front(), fitting - 1), table_of(trials, shown)};
  }
  if (const auto together = combined(trials, shown)) {
    shown.insert(shown.begin(), *together);
    return {relief(trials, *together, 0), table_of(trials, shown)};
  }
  return {regret(trials), table_of(trials, shown)};
}

Clock::time_point advice_deadline(std::uint32_t collective_timeout_seconds) {
  return Clock::now() + std::chrono::seconds(collective_timeout_seconds) / 4;
}

}  // namespace poprun
