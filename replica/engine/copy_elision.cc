#include "replica/engine/copy_elision.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "replica/machine/machine.h"

namespace poprun {
namespace {

// Rounds of a repeat to walk through. Each later round comes after an equal one, as the second does.
constexpr std::uint32_t kRounds = 2;

struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  [[nodiscard]] bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  [[nodiscard]] bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
};

enum class Touch : std::uint8_t { kReads, kWrites, kReleases };

/// What an event does to a tensor.
struct Access {
  std::size_t event = 0;  ///< Index of the event.
  std::uint32_t tensor = 0;
  Touch touch = Touch::kReads;
};

/// A step that ran, in the order of all steps.
struct Event {
  const proto::Step* step = nullptr;
  const proto::Step* call = nullptr;  ///< The call in which it ran, or null.
  std::vector<Access> accesses;
};

/// The events of a call: [first, end).
struct CallEvents {
  const proto::Step* step = nullptr;
  std::size_t first = 0;
  std::size_t end = 0;
};

/// A run of a copy step, and the last call before it in the same list of steps.
struct CopyRun {
  std::size_t event = 0;
  std::optional<CallEvents> after;
};

/// A pair of tensors that a step copies.
struct CopiedPair {
  const proto::Step* step = nullptr;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

/// Events [first, last], during which the image of a tensor lies in that of another.
struct Stay {
  std::size_t last = 0;
  std::uint32_t tensor = 0;
  std::uint32_t place = 0;
};

class Elision {
 public:
  Elision(const Program& program, const HostImages& images, const std::set<std::uint32_t>& views)
      : program_(program), images_(images), views_(views), groups_(static_cast<std::size_t>(program.tensors_size())) {
    std::iota(groups_.begin(), groups_.end(), 0U);
    for (const proto::Function& function : program.functions()) {
      join_views(function.steps());
    }
    for (std::uint32_t tensor = 0; tensor < groups_.size(); ++tensor) {
      members_[group_of(tensor)].push_back(tensor);
      const proto::Tensor& t = program.tensors(static_cast<int>(tensor));
      if (t.always_live() || is_remote(t) || images.is_shared(tensor)) {
        fixed_.insert(group_of(tensor));
      }
    }
    run_all();
  }

  ImageMoves find() {
    for (const CopiedPair& pair : pairs_) {
      if (!elide_result(pair)) {
        elide_argument(pair);
      }
    }
    return_others();
    return std::move(moves_);
  }

 private:
  // A group consists of tensors that share an image because they are views of each other. It is named by one of them.
  [[nodiscard]] std::uint32_t group_of(std::uint32_t tensor) const {
    while (groups_[tensor] != tensor) {
      tensor = groups_[tensor];
    }
    return tensor;
  }

  void join_views(const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const proto::Step& step : steps) {
      join_views(step.repeat().steps());
      if (!views_.contains(step.number())) {
        continue;
      }
      for (const std::uint32_t input : step.execute().inputs()) {
        for (const std::uint32_t output : step.execute().outputs()) {
          groups_[group_of(output)] = group_of(input);
        }
      }
    }
  }

  /// Runs the functions that no other function calls, since these are the ones that the host runs.
  void run_all() {
    std::set<std::string> called;
    for (const proto::Function& function : program_.functions()) {
      find_called(function.steps(), called);
    }
    for (const proto::Function& function : program_.functions()) {
      if (!called.contains(function.name())) {
        run(function.steps(), nullptr);
        events_.emplace_back();  // Anything may happen between two functions.
      }
    }
  }

  static void find_called(const google::protobuf::RepeatedPtrField<proto::Step>& steps, std::set<std::string>& called) {
    for (const proto::Step& step : steps) {
      find_called(step.repeat().steps(), called);
      if (step.has_call()) {
        called.insert(step.call().function());
      }
    }
  }

  void run(const google::protobuf::RepeatedPtrField<proto::Step>& steps, const proto::Step* call) {
    std::optional<CallEvents> last_call;
    for (const proto::Step& step : steps) {
      for (std::uint32_t round = 0; round < std::min(step.repeat().count(), kRounds); ++round) {
        run(step.repeat().steps(), call);
      }
      if (step.has_call()) {
        last_call = CallEvents{&step, events_.size(), 0};
        run(find_function(program_, step.call().function())->steps(), &step);
        last_call->end = events_.size();
      }
      if (step.has_copy()) {
        record_copy(step, last_call);
      }
      record(step, call);
    }
  }

  void record_copy(const proto::Step& step, const std::optional<CallEvents>& last_call) {
    const proto::Copy& copy = step.copy();
    std::vector<CopyRun>& runs = copies_[step.number()];
    for (int k = 0; runs.empty() && k < copy.from_size(); ++k) {
      if ((copy.from_entries().empty() || copy.from_entries(k) < 0) &&
          (copy.to_entries().empty() || copy.to_entries(k) < 0)) {
        pairs_.push_back({&step, copy.from(k), copy.to(k)});
      }
    }
    runs.push_back({events_.size(), last_call});
  }

  void record(const proto::Step& step, const proto::Step* call) {
    Event& event = events_.emplace_back(Event{&step, call, {}});
    const auto add = [&](const std::vector<std::uint32_t>& tensors, Touch touch) {
      for (const std::uint32_t tensor : tensors) {
        const Access& access = event.accesses.emplace_back(Access{events_.size() - 1, tensor, touch});
        if (touch == Touch::kReleases) {
          continue;
        }
        uses_[group_of(tensor)].push_back(access);
        if (step.execute().divisible() || (!step.has_execute() && !step.has_copy())) {
          fixed_.insert(group_of(tensor));  // Parts of images, and machine operations other than copies, do not move.
        }
      }
    };
    const StepTensors tensors = tensors_of(step);
    if (!views_.contains(step.number())) {
      add(tensors.reads, Touch::kReads);
      add(tensors.writes, Touch::kWrites);
    }
    for (const auto* exchanged : {&tensors.begins_exchange, &tensors.ends_exchange}) {
      add(*exchanged, Touch::kReads);
      add(*exchanged, Touch::kWrites);
    }
    add(ids_of(step.releases()), Touch::kReleases);
    const std::vector<std::uint32_t> completed = ids_of(step.completes());
    reduced_early_.insert(completed.begin(), completed.end());
  }

  /// Elides the copy of a result: from the call before the copy on, its image is where it is copied to.
  bool elide_result(const CopiedPair& pair) {
    const std::uint32_t group = group_of(pair.from);
    const proto::Tensor& target = program_.tensors(static_cast<int>(pair.to));
    const auto is_computed = [&](const Access& use) {
      return use.touch != Touch::kWrites ||
             (events_[use.event].step->has_execute() && events_[use.event].call != nullptr);
    };
    if (!may_move(group, pair.from, pair.to) || !std::ranges::all_of(uses_.at(group), is_computed) ||
        target.always_live() || images_.is_shared(pair.to)) {
      return false;
    }
    const proto::Step* call = nullptr;
    std::map<std::size_t, Stay> stays;
    for (const CopyRun& run : copies_.at(pair.step->number())) {
      if (!run.after || !is_written_in(group, *run.after) || last_read(group, run.event) != run.event ||
          is_touched(own(pair.to), run.after->first, run.event, group, true, pair.to)) {
        return false;
      }
      call = run.after->step;
      stays[run.after->first] = {run.event, pair.from, pair.to};
    }
    if (moved_at_.contains({call->number(), group})) {
      return false;  // It already goes elsewhere.
    }
    elide(pair, pair.from, pair.to, *call, stays);
    return true;
  }

  /// Elides the copy of an argument: until it is written again, its image is where it is copied from.
  void elide_argument(const CopiedPair& pair) {
    const std::uint32_t group = group_of(pair.to);
    const auto is_copied = [&](const Access& use) {
      return use.touch != Touch::kWrites || (use.tensor == pair.to && events_[use.event].step->has_copy());
    };
    if (!may_move(group, pair.to, pair.from) || !std::ranges::all_of(uses_.at(group), is_copied) ||
        reduced_early_.contains(pair.from)) {
      return;
    }
    std::map<std::size_t, Stay> stays;
    for (const CopyRun& run : copies_.at(pair.step->number())) {
      const std::size_t last = last_read(group, run.event);
      if (is_touched(own(pair.from), run.event, last, group, false)) {
        return;
      }
      stays[run.event] = {last, pair.to, pair.from};
    }
    elide(pair, pair.to, pair.from, *pair.step, stays);
  }

  /// Returns whether the image of `tensor`, with its views, may lie in that of `place`.
  [[nodiscard]] bool may_move(std::uint32_t group, std::uint32_t tensor, std::uint32_t place) const {
    const auto t = [this](std::uint32_t id) -> const proto::Tensor& { return program_.tensors(static_cast<int>(id)); };
    return group != group_of(place) && !fixed_.contains(group) && !moved_.contains(group_of(place)) &&
           t(tensor).bytes() == t(place).bytes() && memory_of(program_, t(tensor)) == memory_of(program_, t(place)) &&
           std::ranges::all_of(members_.at(group), [&](std::uint32_t m) { return own(tensor).contains(own(m)); });
  }

  /// Returns the last event that reads a tensor of the group before the next one that writes it.
  [[nodiscard]] std::size_t last_read(std::uint32_t group, std::size_t since) const {
    const std::vector<Access>& uses = uses_.at(group);
    std::size_t last = since;
    for (auto use = std::ranges::upper_bound(uses, since, {}, &Access::event);
         use != uses.end() && use->touch == Touch::kReads && !ends_function_between(last, use->event); ++use) {
      last = use->event;
    }
    return last;
  }

  [[nodiscard]] bool ends_function_between(std::size_t first, std::size_t last) const {
    return std::any_of(events_.begin() + static_cast<std::ptrdiff_t>(first),
                       events_.begin() + static_cast<std::ptrdiff_t>(last),
                       [](const Event& event) { return event.step == nullptr; });
  }

  /// Returns whether the call itself, and not one that it makes, writes the group, and no other step since it began.
  [[nodiscard]] bool is_written_in(std::uint32_t group, const CallEvents& call) const {
    const std::vector<Access>& uses = uses_.at(group);
    const auto first = std::ranges::lower_bound(uses, call.first, {}, &Access::event);
    const auto last = std::ranges::lower_bound(uses, call.end, {}, &Access::event);
    return first != last && first->touch == Touch::kWrites &&
           std::all_of(first, last, [&](const Access& use) { return events_[use.event].call == call.step; });
  }

  /// Returns whether events [first, last] write the bytes or, with `or_read`, also read or release them. The group's
  /// own tensors, and `target` in the last event, do not count.
  [[nodiscard]] bool is_touched(const Range& bytes, std::size_t first, std::size_t last, std::uint32_t group,
                                bool or_read, std::optional<std::uint32_t> target = {}) const {
    for (std::size_t e = first; e <= last; ++e) {
      for (const Access& access : events_[e].accesses) {
        if ((access.touch == Touch::kWrites || or_read) && group_of(access.tensor) != group &&
            !(e == last && access.tensor == target) && !is_elided(access) && place_of(access).overlaps(bytes)) {
          return true;
        }
      }
    }
    return false;
  }

  /// Returns whether the access is the end of a copy that was elided.
  [[nodiscard]] bool is_elided(const Access& access) const {
    return access.touch == Touch::kWrites && elided_.contains({events_[access.event].step->number(), access.tensor});
  }

  /// Returns a tensor's bytes at its own place.
  [[nodiscard]] Range own(std::uint32_t tensor) const {
    const std::span<const std::byte> image = images_.of(tensor);
    return {image.data(), image.data() + image.size()};
  }

  /// Returns the bytes that an event accesses. A dead tensor is poisoned at its own place.
  [[nodiscard]] Range place_of(const Access& access) const {
    const Range at_home = own(access.tensor);
    const auto stays = access.touch == Touch::kReleases ? stays_.end() : stays_.find(group_of(access.tensor));
    if (stays == stays_.end()) {
      return at_home;
    }
    const auto after = stays->second.upper_bound(access.event);
    if (after == stays->second.begin() || std::prev(after)->second.last < access.event) {
      return at_home;
    }
    const Stay& stay = std::prev(after)->second;
    const std::byte* begin = own(stay.place).begin + (at_home.begin - own(stay.tensor).begin);
    return {begin, begin + (at_home.end - at_home.begin)};
  }

  void elide(const CopiedPair& pair, std::uint32_t tensor, std::uint32_t place, const proto::Step& before,
             std::map<std::size_t, Stay>& stays) {
    const std::uint32_t group = group_of(tensor);
    stays_[group].merge(stays);
    for (const std::uint32_t member : members_.at(group)) {
      moves_[before.number()].push_back(
          {member, place, static_cast<std::size_t>(own(member).begin - own(tensor).begin)});
    }
    moved_at_.insert({before.number(), group});
    elided_.insert({pair.step->number(), pair.to});
    moved_.insert(group);
    fixed_.insert(group_of(place));
  }

  /// Where a moved group is written without having moved, it returns to its own place.
  void return_others() {
    for (const std::uint32_t group : moved_) {
      for (const Access& use : uses_.at(group)) {
        const Event& event = events_[use.event];
        const proto::Step& before = event.step->has_copy() ? *event.step : *event.call;
        if (use.touch != Touch::kWrites || !moved_at_.insert({before.number(), group}).second) {
          continue;
        }
        for (const std::uint32_t member : members_.at(group)) {
          moves_[before.number()].push_back({member, member, 0});
        }
      }
    }
  }

  const Program& program_;
  const HostImages& images_;
  const std::set<std::uint32_t>& views_;
  std::vector<std::uint32_t> groups_;                            ///< By tensor: another of its group, or itself.
  std::map<std::uint32_t, std::vector<std::uint32_t>> members_;  ///< By group.
  std::set<std::uint32_t> fixed_;                                ///< Groups that must stay in their own places.
  std::set<std::uint32_t> moved_;                                ///< Groups that lie elsewhere at times.
  std::set<std::uint32_t> reduced_early_;                        ///< Tensors that may change between two steps.
  std::vector<Event> events_;
  std::map<std::uint32_t, std::vector<Access>> uses_;     ///< By group, in the order of events.
  std::map<std::uint32_t, std::vector<CopyRun>> copies_;  ///< By step.
  std::vector<CopiedPair> pairs_;
  std::map<std::uint32_t, std::map<std::size_t, Stay>> stays_;  ///< By group and first event.
  std::set<std::pair<std::uint32_t, std::uint32_t>> elided_;    ///< Copy steps with the tensors to which they copy.
  std::set<std::pair<std::uint32_t, std::uint32_t>> moved_at_;  ///< Steps with the groups that move before them.
  ImageMoves moves_;
};

}  // namespace

ImageMoves find_elided_copies(const Program& program, const HostImages& images, const std::set<std::uint32_t>& views) {
  return Elision(program, images, views).find();
}

}  // namespace poprun
