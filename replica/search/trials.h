#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replica/models/onnx/job_model.h"
#include "replica/program/program.h"
#include "replica/search/remedies.h"

namespace poprun {

/// A set of remedies: maps each remedy's index in the table to the index of its setting.
using Remedies = std::map<std::size_t, std::size_t>;

/// Memory and device time of a job with some remedies, or none.
struct Trial {
  std::string options;
  std::uint64_t tile;  ///< Bytes that the fullest tile needs.
  bool fits;
  double step_seconds;    ///< Device time.
  double sample_seconds;  ///< Device time per sample.
};

/// Compiles a job with remedies, as long as the budget lasts.
class Trials {
 public:
  Trials(const Program& program, ChangedJob job, std::vector<Remedy> table, std::shared_ptr<onnx_import::JobModel> onnx,
         std::function<void()> before_compilation);

  /// Returns the trial, or nothing if these changes are impossible, the budget is spent, or there are no remedies.
  const std::optional<Trial>& of(const Remedies& remedies);

  bool fits(const Remedies& remedies) {
    const std::optional<Trial>& trial = of(remedies);
    return trial && trial->fits;
  }

  [[nodiscard]] const std::vector<Remedy>& table() const { return table_; }
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] const Trial& as_it_is() const { return as_it_is_; }
  [[nodiscard]] bool lacks_much() const { return job_.lacks_much(); }
  [[nodiscard]] bool has_left_out() const { return has_left_out_; }

  /// Reserves a part of the budget for the trials that follow a call of `release`.
  void reserve() { reserved_ = most_ / kPartTogether; }
  void release() { reserved_ = 0; }

  /// Returns the accepted trial with the smallest `key`, or nothing if no trial is accepted.
  template <typename Key, typename Accept>
  [[nodiscard]] std::optional<Remedies> first(Key key, Accept accept) const {
    const std::pair<const Remedies, std::optional<Trial>>* best = nullptr;
    for (const auto& tried : known_) {
      if (tried.second && accept(tried.first, *tried.second) && (best == nullptr || key(tried) < key(*best))) {
        best = &tried;
      }
    }
    return best == nullptr ? std::nullopt : std::optional(best->first);
  }

  /// Returns the accepted trial that needs the least memory, with as few remedies as possible.
  template <typename Accept>
  [[nodiscard]] std::optional<Remedies> smallest(Accept accept) const {
    return first(
        [](const auto& tried) {
          return std::pair{tried.second->tile, tried.first.size()};
        },
        [&](const Remedies& remedies, const Trial& /*trial*/) { return accept(remedies); });
  }

  /// Returns the fastest fitting trial with at most as many remedies as `like`. Requires: `like` fits.
  [[nodiscard]] Remedies fastest(const Remedies& like) const {
    return *first(
        [](const auto& tried) {
          return std::tuple{tried.second->sample_seconds, tried.first.size(), tried.second->tile};
        },
        [&](const Remedies& remedies, const Trial& trial) { return remedies.size() <= like.size() && trial.fits; });
  }

  [[nodiscard]] ChangedJob job_with(const Remedies& remedies) const;

 private:
  static constexpr std::size_t kPartTogether = 3;  // Combinations are allotted one third of the budget.

  [[nodiscard]] std::optional<Trial> compile(const Remedies& remedies);

  ChangedJob job_;
  std::vector<Remedy> table_;
  std::shared_ptr<onnx_import::JobModel> onnx_;
  std::function<void()> before_compilation_;
  std::uint64_t limit_;  ///< Bytes of memory on a tile.
  std::ptrdiff_t idle_;  ///< IPUs that the job itself leaves idle.
  Trial as_it_is_;
  bool is_huge_;                  ///< Each compilation takes seconds, so the budget is never exceeded.
  std::size_t most_;              ///< The budget of compilations.
  std::size_t compilations_ = 0;  ///< Compilations so far.
  std::size_t reserved_ = 0;
  bool is_found_ = false;  ///< The search has ended: `most_` is small, and a trial fits at almost the same speed.
  bool has_left_out_ = false;
  std::map<Remedies, std::optional<Trial>> known_;
};

}  // namespace poprun
