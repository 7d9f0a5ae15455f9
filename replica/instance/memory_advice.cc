#include "replica/instance/memory_advice.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "replica/instance/job.h"
#include "replica/instance/remedies.h"

namespace poprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTrialsMax = 40;
constexpr std::size_t kOperatorsMax = 200'000;  // In all trials; some 10 s.

/// Remedies by their places in the table, each with the place of its setting.
using Remedies = std::map<std::size_t, std::size_t>;

struct Trial {
  std::string options;
  std::uint64_t peak;  ///< Bytes of the fullest IPU.
  bool fits;
};

std::ptrdiff_t idle_ipus(const Program& program) {
  return std::ranges::count(program.memory(), 0U, &proto::IpuMemory::peak);
}

/// What the fullest IPU needs.
std::uint64_t most_needed(const Program& program) {
  return static_cast<std::uint64_t>(needed(fullest(program)).count());
}

/// Compiles a job with remedies, as long as there is time.
class Trials {
 public:
  Trials(const Program& program, ChangedJob job, std::vector<Remedy> table,
         std::shared_ptr<onnx_import::JobModel> onnx, Clock::time_point until)
      : job_(std::move(job)),
        table_(std::move(table)),
        onnx_(std::move(onnx)),
        until_(until),
        capacity_(program.memory(0).capacity()),
        idle_(idle_ipus(program)),
        left_(std::clamp<std::size_t>(
            kOperatorsMax / std::max<std::size_t>(1, program.operator_count()), 1, kTrialsMax)) {}

  /// Nothing where the job cannot be changed so, or there is no time to see; nor without remedies.
  const std::optional<Trial>& of(const Remedies& remedies) {
    static const std::optional<Trial> kUntried;
    if (remedies.empty()) {
      return kUntried;
    }
    if (const auto known = known_.find(remedies); known != known_.end()) {
      return known->second;
    }
    if (left_ == 0 || Clock::now() >= until_) {
      are_complete_ = false;
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
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] bool are_complete() const { return are_complete_; }

  /// What needs the least memory of all that were tried and are accepted, with as few remedies as
  /// can be; nothing where none was.
  template <typename Accept>
  [[nodiscard]] std::optional<Remedies> smallest(Accept accept) const {
    std::optional<Remedies> best;
    std::pair<std::uint64_t, std::size_t> least;
    for (const auto& [remedies, trial] : known_) {
      if (trial && accept(remedies)) {
        const std::pair needs{trial->peak, remedies.size()};
        if (!best || needs < least) {
          best = remedies;
          least = needs;
        }
      }
    }
    return best;
  }

 private:
  [[nodiscard]] std::optional<Trial> compile(const Remedies& remedies) const {
    ChangedJob job = job_;
    for (const auto& [remedy, setting] : remedies) {
      table_[remedy].settings[setting](job);
    }
    const Result<CompileOptions> options = compile_options(job.config, job.dataset, onnx_);
    const Result<Program> program =
        options ? plan_program(*options) : tl::unexpected<Error>{options.error()};
    // More IPUs than the model has layers for are no remedy.
    if (!program || idle_ipus(*program) > idle_) {
      return std::nullopt;
    }
    const std::uint64_t peak = most_needed(*program);
    return Trial{job.options(), peak, peak <= capacity_};
  }

  ChangedJob job_;
  std::vector<Remedy> table_;
  std::shared_ptr<onnx_import::JobModel> onnx_;
  Clock::time_point until_;
  std::uint64_t capacity_;
  std::ptrdiff_t idle_;  ///< IPUs that the job itself leaves idle.
  std::size_t left_;
  bool are_complete_ = true;
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
  if (!trials.fits(with(settings - 1))) {
    return std::nullopt;
  }
  std::size_t low = 0;
  for (std::size_t high = settings - 1; low < high;) {
    const std::size_t middle = low + (high - low) / 2;
    trials.fits(with(middle)) ? high = middle : low = middle + 1;
  }
  return with(low);
}

/// Leaves out what is not needed and makes the rest as mild as possible, the dearest first.
Remedies milder(Trials& trials, Remedies remedies) {
  const Remedies all = remedies;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
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

/// The first subset of `all` with `size` remedies, cheapest first, that fits.
std::optional<Remedies> fitting_subset(Trials& trials, const Remedies& all, std::size_t size) {
  std::vector<bool> taken(all.size(), false);
  std::fill_n(taken.begin(), size, true);
  do {
    Remedies subset;
    std::size_t place = 0;
    for (const auto& remedy : all) {
      if (taken[place++]) {
        subset.insert(remedy);
      }
    }
    if (trials.fits(subset)) {
      return subset;
    }
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return std::nullopt;
}

/// `all`, or all but one of them, if that fits: two remedies may be at odds, as more IPUs and
/// stages for fewer.
std::optional<Remedies> fitting_together(Trials& trials, const Remedies& all) {
  if (trials.fits(all)) {
    return all;
  }
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    Remedies fewer = all;
    fewer.erase(it->first);
    if (trials.fits(fewer)) {
      return fewer;
    }
  }
  return std::nullopt;
}

/// A small combination that fits. `strongest`: the setting of each remedy that needs the least
/// memory. Where together they do not fit, only a last resort can help.
std::optional<Remedies> combined(Trials& trials, const Remedies& strongest) {
  if (const auto together = fitting_together(trials, strongest)) {
    for (std::size_t size = 2; size < together->size(); ++size) {
      if (const auto subset = fitting_subset(trials, *together, size)) {
        return milder(trials, *subset);
      }
    }
    return milder(trials, *together);
  }
  for (std::size_t r = 0; r < trials.table().size(); ++r) {
    if (trials.table()[r].is_last_resort) {
      if (const auto fits = mildest(trials, strongest, r)) {
        return milder(trials, *fits);
      }
    }
  }
  return std::nullopt;
}

/// What each remedy does alone: the mildest setting that fits, otherwise the one that needs least.
std::vector<Remedies> alone(Trials& trials) {
  std::vector<Remedies> found;
  for (std::size_t r = 0; r < trials.table().size(); ++r) {
    if (trials.table()[r].is_last_resort) {
      continue;
    }
    std::optional<Remedies> best = mildest(trials, {}, r);
    if (!best) {
      best = trials.smallest(
          [r](const Remedies& tried) { return tried.size() == 1 && tried.begin()->first == r; });
    }
    if (best) {
      found.push_back(*best);
    }
  }
  return found;
}

std::string table_of(Trials& trials, const Program& program, const std::vector<Remedies>& shown) {
  std::vector<Trial> rows;
  std::size_t width = 0;
  for (const Remedies& remedies : shown) {
    const Trial& trial = *trials.of(remedies);
    if (trial.peak != most_needed(program)) {  // It would be no news.
      width = std::max(width, trial.options.size());
      rows.push_back(trial);
    }
  }
  if (rows.empty()) {
    return "";
  }
  std::string text =
      fmt::format("{:<{}}  on the fullest IPU\n", "remedies, each compiled:", width + 2);
  for (const Trial& row : rows) {
    text += fmt::format(
        "  {:<{}}  {:>12}, {}\n", row.options, width, mebibytes_text(row.peak),
        row.fits ? std::string{"fits"}
                 : fmt::format("over by {}", mebibytes_text(row.peak - trials.capacity())));
  }
  return text;
}

/// "model.precision half (726.7 MiB)".
std::string shown_text(const Trial& trial, std::size_t remedies) {
  return fmt::format("{}{} ({})", trial.options, remedies > 1 ? " together" : "",
                     mebibytes_text(trial.peak));
}

/// What is said where something fits.
std::string relief(const Trials& trials, const std::string& what) {
  return fmt::format("it fits with {}{}", what,
                     trials.are_complete() ? "" : "; there was no time to try every remedy");
}

/// What is said where nothing fits.
std::string regret(Trials& trials) {
  const std::string_view tried =
      trials.are_complete() ? "that was tried" : "tried in the time available";
  const auto nearest = trials.smallest([&](const Remedies& remedies) {
    return std::ranges::none_of(
        remedies, [&](const auto& one) { return trials.table()[one.first].is_last_resort; });
  });
  if (!nearest) {
    return fmt::format("nothing {} makes it fit", tried);
  }
  const Trial& trial = *trials.of(*nearest);
  return fmt::format("nothing {} makes it fit; with {}{} it comes closest: {} over", tried,
                     trial.options, nearest->size() > 1 ? " together" : "",
                     mebibytes_text(trial.peak - trials.capacity()));
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
  std::vector<std::string> fitting;
  for (const Remedies& one : shown) {
    if (trials.fits(one)) {
      fitting.push_back(shown_text(*trials.of(one), 1));
    }
  }
  if (!fitting.empty()) {
    return {relief(trials, fmt::format("{}", fmt::join(fitting, ", or with "))),
            table_of(trials, program, shown)};
  }
  Remedies strongest;
  for (const Remedies& one : shown) {
    if (trials.of(one)->peak < most_needed(program)) {
      strongest.insert(one.begin(), one.end());
    }
  }
  if (const auto together = combined(trials, strongest)) {
    shown.push_back(*together);
    return {relief(trials, shown_text(*trials.of(*together), together->size())),
            table_of(trials, program, shown)};
  }
  return {regret(trials), table_of(trials, program, shown)};
}

}  // namespace poprun
