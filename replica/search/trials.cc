#include "replica/search/trials.h"

#include <algorithm>

#include "replica/compilation/job_inputs.h"
#include "replica/compilation/profile.h"
#include "replica/compiler/automatic.h"

namespace poprun {
namespace {

constexpr std::size_t kCompilationsMax = 160;
constexpr std::size_t kCompilationsMin = 30;     // For a large Program.
constexpr std::size_t kCompilationsMinFar = 10;  // For a large Program that is far from fitting.
constexpr std::size_t kEffortMax = 6'000'000;    // Budget of all compilations: about 10 s.
constexpr std::size_t kKindsHuge = 1'500;        // A Program with more kinds of tiles takes seconds to compile.
constexpr std::size_t kKindsMax = 6'000;         // Budget of all compilations of a huge Program: about 15 s.
constexpr std::size_t kCompilationsMinHuge = 2;  // For a huge Program: one remedy, with less and with more outlining.
constexpr double kCheap = 1.01;                  // Largest factor of device time that counts as free.

/// Returns the number of kinds of tiles on all IPUs; the memory of each kind is planned separately.
std::size_t kinds_of(const Program& program) {
  std::size_t kinds = 0;
  for (const proto::IpuMemory& memory : program.memory()) {
    kinds += memory.tile_classes();
  }
  return kinds;
}

/// Returns the cost of compiling a Program: operators times kinds of tiles.
std::size_t effort_of(const Program& program) {
  return kinds_of(program) * program.operator_count() / static_cast<std::size_t>(program.memory_size());
}

/// Returns the budget of compilations for a job with this Program.
std::size_t most_compilations(const Program& program, bool lacks_much) {
  if (const std::size_t kinds = kinds_of(program); kinds > kKindsHuge) {
    return std::max(kCompilationsMinHuge, kKindsMax / kinds);
  }
  return std::clamp(kEffortMax / std::max<std::size_t>(1, effort_of(program)),
                    lacks_much ? kCompilationsMinFar : kCompilationsMin, kCompilationsMax);
}

std::ptrdiff_t idle_ipus(const Program& program) {
  return std::ranges::count(program.memory(), 0U, &proto::IpuMemory::images_peak);
}

Trial trial_of(const ChangedJob& job, const Program& program) {
  const proto::IpuMemory& most = fullest(program);
  const JobLength length = job_length(job.config, job.dataset).value_or(JobLength{});
  const proto::DeviceTime time = device_time(program, job.config, length);
  return {job.options(), most.fullest_tile_peak(), fits(most), time.step_seconds(), 1 / time.samples_per_second()};
}

}  // namespace

Trials::Trials(const Program& program, ChangedJob job, std::vector<Remedy> table,
               std::shared_ptr<onnx_import::JobModel> onnx, std::function<void()> before_compilation)
    : job_(std::move(job)),
      table_(std::move(table)),
      onnx_(std::move(onnx)),
      before_compilation_(std::move(before_compilation)),
      limit_(program.memory(0).bytes_per_tile()),
      idle_(idle_ipus(program)),
      as_it_is_(trial_of(job_, program)),
      is_huge_(kinds_of(program) > kKindsHuge),
      most_(most_compilations(program, job_.lacks_much())) {}

const std::optional<Trial>& Trials::of(const Remedies& remedies) {
  static const std::optional<Trial> kUntried;
  if (remedies.empty()) {
    return kUntried;
  }
  if (const auto known = known_.find(remedies); known != known_.end()) {
    return known->second;
  }
  if (is_found_ || compilations_ + reserved_ >= most_) {
    has_left_out_ = true;
    return kUntried;
  }
  const auto& trial = known_.emplace(remedies, compile(remedies)).first->second;
  is_found_ =
      most_ <= kCompilationsMin && trial && trial->fits && trial->sample_seconds <= kCheap * as_it_is_.sample_seconds;
  return trial;
}

ChangedJob Trials::job_with(const Remedies& remedies) const {
  ChangedJob job = job_;
  for (const auto& [remedy, setting] : remedies) {
    table_[remedy].settings[setting](job);
  }
  return job;
}

std::optional<Trial> Trials::compile(const Remedies& remedies) {
  const ChangedJob job = job_with(remedies);
  if (!job.is_consistent()) {
    return std::nullopt;
  }
  Result<CompileOptions> options = compile_options(job.config, job.dataset, onnx_);
  const auto count = [this] {
    ++compilations_;
    if (before_compilation_) {
      before_compilation_();
    }
  };
  bool is_cut_short = false;
  const auto may_compile_again = [&] {
    is_cut_short = is_huge_ && compilations_ >= most_;
    return !is_cut_short;
  };
  const CompileObserver observer{.before_compilation = count, .may_compile_again = may_compile_again};
  const Result<Program> program = options ? plan_program(*options, observer) : tl::unexpected<Error>{options.error()};
  if (is_cut_short) {
    has_left_out_ = true;  // With these changes, the job might need less memory than the Program found so far.
    return std::nullopt;
  }
  // IPUs to which the model assigns no layers do not help.
  if (!program || idle_ipus(*program) > idle_) {
    return std::nullopt;
  }
  return trial_of(job, *program);
}

}  // namespace poprun
