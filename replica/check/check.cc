#include "replica/check/check.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "replica/base/sha256.h"
#include "replica/check/records.h"
#include "replica/loops/host_streams.h"

namespace poprun {
namespace {

constexpr std::uint64_t kNoStep = std::numeric_limits<std::uint64_t>::max();

/// Adds the run's name to the job's progress. A check never drains, and does not report the speed of replicas.
class RunProgress final : public ProgressSink {
 public:
  RunProgress(ProgressSink& job, std::string run) : job_(job), run_(std::move(run)) {}

  void progress(ReplicaId replica, std::uint64_t step, std::string_view activity) override {
    job_.progress(replica, step, fmt::format("{}: {}", run_, activity));
  }
  void operators(ReplicaId /*replica*/, std::uint64_t /*steps*/, double /*seconds*/) override {}
  void begin_parts(ReplicaId /*replica*/, std::uint64_t /*parts*/) override {}
  [[nodiscard]] bool begin_part(ReplicaId /*replica*/) override { return true; }

 private:
  ProgressSink& job_;
  std::string run_;
};

bool fits(const Program& program) {
  return std::ranges::all_of(program.memory(), [](const proto::IpuMemory& memory) { return poprun::fits(memory); });
}

class Check {
 public:
  Check(const CheckPorts& ports, TrainingOptions options)
      : ports_(ports), options_(std::move(options)), compiler_(ports.compile) {
    options_.dumps.clear();
    options_.evaluate_every_epochs = 0;
  }

  Status run() {
    POPRUN_TRY(share_plan());
    for (std::uint32_t k = 0; k < plan_.runs(); ++k) {
      POPRUN_ASSIGN(const CompiledVariant compiled, share_variant(k));
      POPRUN_ASSIGN(const proto::CheckedRun run, check(compiled));
      if (first()) {
        proto::ReportItem item;
        *item.mutable_checked_run() = run;
        ports_.report(std::move(item));
      }
    }
    return {};
  }

 private:
  /// Returns this replica's shard of a tensor. If nothing is sharded, the count does not matter.
  [[nodiscard]] OwnShard own_shard() const {
    const std::size_t all = ports_.communicator.size();
    const std::size_t count = ports_.sharding_group > 0 ? ports_.sharding_group : all;
    return {count, index_of(ports_.communicator.self()) % count};
  }

  [[nodiscard]] bool first() const { return ports_.communicator.self() == ReplicaId{0}; }

  void tell(const std::string& activity) { ports_.progress.progress(ports_.communicator.self(), 0, activity); }

  Status share_plan() {
    if (first()) {
      tell("planning the check");
      POPRUN_ASSIGN(CheckedVariants planned, ports_.variants());
      variants_ = std::move(planned.variants);
      plan_.set_runs(static_cast<std::uint32_t>(variants_.size()));
      plan_.set_steps(static_cast<std::uint32_t>(options_.total_steps));
      for (const Variant& variant : variants_) {
        plan_.set_ipus(std::max(plan_.ipus(), variant.ipus));
        plan_.add_combinations(to_text(variant));
      }
      for (const Note& note : planned.notes) {
        *plan_.add_notes() = to_proto(note);
      }
      proto::ReportItem item;
      *item.mutable_check_plan() = plan_;
      ports_.report(std::move(item));
    } else {
      tell("waiting for the plan from replica 0");
    }
    std::string bytes = plan_.SerializeAsString();
    POPRUN_TRY(share_bytes(bytes, ReplicaId{0}, ports_.communicator, "plan of the check"));
    if (!plan_.ParseFromString(bytes)) {
      return fail(ErrorCode::kBug, "the plan of the check cannot be parsed");
    }
    return {};
  }

  /// Compiles a variant on replica 0 and sends the same bytes to all replicas.
  Result<CompiledVariant> share_variant(std::uint32_t index) {
    CompiledVariant compiled;
    std::string run;
    std::string program;
    if (first()) {
      tell(fmt::format("compiling the Program for {}", to_text(variants_[index])));
      compiled = compiler_.compile(variants_[index]);
      run = compiled.run.SerializeAsString();
      program = compiled.program.SerializeAsString();
    } else {
      tell("waiting for the next Program from replica 0");
      compiled.name = plan_.combinations(static_cast<int>(index));
    }
    POPRUN_TRY(share_bytes(run, ReplicaId{0}, ports_.communicator, "variant"));
    POPRUN_TRY(share_bytes(program, ReplicaId{0}, ports_.communicator, "Program"));
    if (!compiled.run.ParseFromString(run) || !compiled.program.ParseFromString(program)) {
      return fail(ErrorCode::kBug, fmt::format("the Program of {} B cannot be parsed", program.size()));
    }
    return compiled;
  }

  Result<proto::CheckedRun> check(const CompiledVariant& compiled) {
    proto::CheckedRun run = compiled.run;
    if (ports_.certifies && first() && compiled.program.tensors_size() > 0) {
      run.set_program_sha256(sha256_of(bytes_of_program(compiled.program)));
    }
    if (run.verdict() != proto::CheckedRun::UNSPECIFIED) {
      return run;
    }
    if (!fits(compiled.program)) {
      run.set_verdict(proto::CheckedRun::PROVEN);
      run.set_detail("does not fit in the memory of an IPU");
      return run;
    }
    const std::uint64_t digest = digest_of_program(compiled.program);
    if (const auto same = executed_.find(digest); same != executed_.end()) {
      run.set_verdict(same->second.is_equal ? proto::CheckedRun::EQUAL : proto::CheckedRun::DIFFERENT);
      run.set_same_as(same->second.name);
      return run;
    }
    POPRUN_ASSIGN(run, reference_ ? compare(compiled, run) : refer(compiled, run));
    executed_[digest] = {compiled.name, run.verdict() != proto::CheckedRun::DIFFERENT};
    return run;
  }

  Result<proto::CheckedRun> refer(const CompiledVariant& compiled, proto::CheckedRun run) {
    reference_.emplace(Reference{compiled, {}});
    const bool hashes = ports_.certifies && first();
    StateRecord record(compiled.program, own_shard(), hashes ? options_.total_steps : 0);
    POPRUN_TRY(make_record(compiled, options_, record));
    run.set_state_sha256(record.state_sha256());
    reference_->steps.assign(record.steps().begin(), record.steps().end());
    // Measure the time in a second run, without the search for non-finite numbers, as in the other runs.
    StateRecord timed(compiled.program, own_shard());
    POPRUN_TRY(make_record(compiled, unchecked(), timed));
    run.set_verdict(proto::CheckedRun::REFERENCE);
    run.set_wall_step_seconds(timed.step_seconds());
    return run;
  }

  Result<proto::CheckedRun> compare(const CompiledVariant& compiled, proto::CheckedRun run) {
    StateRecord record(compiled.program, own_shard());
    POPRUN_ASSIGN(const LoopResult result, make_record(compiled, unchecked(), record));
    run.set_wall_step_seconds(record.step_seconds());
    POPRUN_ASSIGN(const std::string stray, first_of(result.stray_index, "indices out of range"));
    if (!stray.empty()) {
      run.set_verdict(proto::CheckedRun::DIFFERENT);
      run.set_detail(stray);
      return run;
    }
    const std::optional<StateDifference> mine = first_difference(reference_->steps, record.steps());
    std::uint64_t step = mine ? mine->step : kNoStep;
    std::vector<std::uint64_t> steps(ports_.communicator.size());
    POPRUN_TRY(ports_.communicator.all_gather(std::as_bytes(std::span(&step, 1)),
                                              std::as_writable_bytes(std::span(steps)), "first steps that differ"));
    const auto worst = std::ranges::min_element(steps);
    if (*worst == kNoStep) {
      run.set_verdict(proto::CheckedRun::EQUAL);
      if (ports_.certifies) {
        run.set_values_compared(
            std::accumulate(reference_->steps.begin(), reference_->steps.end(), std::uint64_t{0},
                            [](std::uint64_t sum, const StateDigests& digests) { return sum + digests.size(); }));
      }
      return run;
    }
    const ReplicaId who{static_cast<std::uint32_t>(worst - steps.begin())};
    run.set_verdict(proto::CheckedRun::DIFFERENT);
    POPRUN_ASSIGN(std::string origin, trace(compiled, *worst, who));
    std::string detail =
        mine ? fmt::format("{}, replica {}: {}{}", place_of(mine->step), index_of(who), mine->name, origin) : "";
    POPRUN_TRY(share_bytes(detail, who, ports_.communicator, "what differs"));
    run.set_detail(detail);
    return run;
  }

  [[nodiscard]] bool is_evaluation(std::uint64_t step) const { return step > options_.total_steps; }

  [[nodiscard]] std::string place_of(std::uint64_t step) const {
    return is_evaluation(step) ? fmt::format("evaluation after step {}", options_.total_steps)
                               : fmt::format("step {}", step);
  }

  /// Returns the options of the runs after the reference run. In the reference run, all numbers were finite and all
  /// indices in range. A later run in which that is not so differs from the reference; the check reports the difference
  /// and continues.
  [[nodiscard]] TrainingOptions unchecked() const {
    TrainingOptions options = options_;
    options.engine.check_finite = false;
    options.engine.check_indices = false;
    return options;
  }

  /// Returns the text of the lowest-numbered replica whose text is not empty, or "" if there is none. Collective.
  Result<std::string> first_of(std::string text, std::string_view name) {
    const std::byte has{!text.empty()};
    std::vector<std::byte> all(ports_.communicator.size());
    POPRUN_TRY(ports_.communicator.all_gather(std::span(&has, 1), all, name));
    const auto found = std::ranges::find(all, std::byte{1});
    if (found == all.end()) {
      return std::string();
    }
    const ReplicaId who{static_cast<std::uint32_t>(found - all.begin())};
    POPRUN_TRY(share_bytes(text, who, ports_.communicator, name));
    return text;
  }

  /// Describes where replica `who` first computes a different value in step `step`; other replicas get an empty text.
  Result<std::string> trace(const CompiledVariant& compiled, std::uint64_t step, ReplicaId who) {
    TrainingOptions options = unchecked();
    options.total_steps = std::min(step, options_.total_steps);
    options.evaluation_batches = is_evaluation(step) ? options_.evaluation_batches : 0;
    const auto traced = is_evaluation(step) ? ValueTrace::Of::kEvaluation : ValueTrace::Of::kStep;
    const CompiledVariant& plain = reference_->compiled;
    ValueTrace reference(plain.program, options.total_steps, traced);
    ValueTrace other(compiled.program, options.total_steps, traced);
    const bool watches = ports_.communicator.self() == who;
    POPRUN_TRY(run_once(plain, options, watches ? &reference : nullptr));
    POPRUN_TRY(run_once(compiled, options, watches ? &other : nullptr));
    const std::optional<std::string> found = reference.first_difference(other);
    return found ? fmt::format("; the first value that differs is {}", *found) : std::string();
  }

  Result<LoopResult> make_record(const CompiledVariant& compiled, const TrainingOptions& options, StateRecord& record) {
    Result<LoopResult> result = run_once(compiled, options, &record);
    if (result) {
      record.add(result->last_evaluation);
    }
    return result;
  }

  Result<LoopResult> run_once(const CompiledVariant& compiled, const TrainingOptions& options, StepWatcher* watcher) {
    POPRUN_TRY(check_host(compiled.program));
    POPRUN_TRY(allocate(compiled.program));
    poison(compiled.program);
    RunProgress progress(ports_.progress, compiled.name);
    Result<LoopResult> result = TrainingLoop(compiled.program, options,
                                             {.communicator = ports_.communicator,
                                              .progress = progress,
                                              .reporter = nullptr,
                                              .initial_weights = ports_.initial_weights,
                                              .streams = ports_.streams,
                                              .memory = memory_,
                                              .watcher = watcher})
                                    .run();
    if (!result) {
      result.error().message += fmt::format(" (checking {})", compiled.name);
    }
    return result;
  }

  /// Checks that this machine has the additional memory that `program` needs, before any replica touches it.
  Status check_host(const Program& program) {
    Bytes more{0};
    touched_.resize(std::max(touched_.size(), static_cast<std::size_t>(program.memory_size())));
    for (std::size_t ipu = 0; ipu < static_cast<std::size_t>(program.memory_size()); ++ipu) {
      const Bytes touched = bytes_touched(program.memory(static_cast<int>(ipu)));
      more = more + std::max(Bytes{0}, touched - touched_[ipu]);
      touched_[ipu] = std::max(touched_[ipu], touched);
    }
    if (more == Bytes{0}) {
      return {};
    }
    POPRUN_TRY(ports_.check_host(more));
    return ports_.communicator.barrier();
  }

  /// Allocates an arena for each IPU. The memory of a communicator lives as long as the communicator.
  Status allocate(const Program& program) {
    const Bytes capacity = images_capacity(program.memory(0));
    while (memory_.size() < plan_.ipus()) {
      POPRUN_ASSIGN(const std::span<std::byte> bytes, ports_.communicator.allocate(capacity));
      memory_.push_back(bytes);
    }
    return {};
  }

  /// Fills the memory with NaN. Otherwise, an earlier run's values would hide reads of bytes that this run never wrote.
  void poison(const Program& program) {
    for (std::size_t ipu = 0; ipu < static_cast<std::size_t>(program.memory_size()); ++ipu) {
      std::ranges::fill(memory_[ipu].first(program.memory(static_cast<int>(ipu)).images_peak()), std::byte{0xFF});
    }
  }

  struct Reference {
    CompiledVariant compiled;
    std::vector<StateDigests> steps;
  };

  struct Executed {
    std::string name;
    bool is_equal = true;
  };

  const CheckPorts& ports_;
  TrainingOptions options_;
  VariantCompiler compiler_;  ///< Only replica 0 uses this and `variants_`.
  std::vector<Variant> variants_;
  proto::CheckPlan plan_;
  std::vector<std::span<std::byte>> memory_;
  std::vector<Bytes> touched_;  ///< Memory touched so far, for each IPU.
  std::optional<Reference> reference_;
  /// Programs that ran, keyed by digest. A variant that compiles to one of these, such as a different schedule of a
  /// single micro-batch, does not have to run.
  std::map<std::uint64_t, Executed> executed_;
};

}  // namespace

Status run_check(const CheckPorts& ports, TrainingOptions options) {
  return Check(ports, std::move(options)).run();
}

}  // namespace poprun
