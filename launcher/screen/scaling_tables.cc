#include "launcher/screen/scaling_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/screen/job_rows.h"
#include "launcher/screen/profile_tables.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::uint64_t kComparedIpusMax = 128;  ///< Largest number of IPUs of a result in deploy/validate.

using Jobs = std::vector<const proto::ScaledJob*>;

Jobs jobs_of(const proto::ScaleAnswer& answer, std::string_view scaling) {
  Jobs jobs;
  for (const proto::ScaledJob& job : answer.jobs()) {
    if (job.scaling() == scaling) {
      jobs.push_back(&job);
    }
  }
  return jobs;
}

/// Formats a part of a step in percent; "-" if there is none.
std::string share(double part, double whole) {
  const double percent = 100 * part / whole;
  return part <= 0 ? "-" : percent < 0.1 ? "<0.1" : fmt::format("{:.1f}", percent);
}

std::string row_text(const proto::ScaledJob& job) {
  std::string text = fmt::format("{:>8}{:>8}", grouped(job.replicas()), grouped(job.ipus()));
  if (!job.refusal().empty()) {
    return text + fmt::format("  {}\n", job.refusal());
  }
  const double step = job.step_seconds();
  text +=
      fmt::format("{:>14}{:>11}{:>11}{:>7.3f}{:>6}{:>5}{:>5}{:>5}\n", grouped(job.batch_sizes().global_batch_size()),
                  duration_text(step), rate_number(job.samples_per_second()), job.efficiency(),
                  share(job.all_reduce_seconds(), step), share(job.copy_seconds(), step),
                  share(job.host_seconds(), step), share(job.idle_seconds(), step));
  return text;
}

/// Returns the memory of the fullest IPU, on one line for consecutive jobs that need the same.
std::string memory_lines(const Jobs& jobs) {
  std::string text;
  const auto peak = [](const proto::ScaledJob& job) { return mebibytes_text(job.peak_bytes()); };
  for (std::size_t first = 0; first < jobs.size();) {
    std::size_t last = first;
    while (last + 1 < jobs.size() && peak(*jobs[last + 1]) == peak(*jobs[first]) &&
           jobs[last + 1]->fits() == jobs[first]->fits()) {
      ++last;
    }
    const std::string range = last == first ? counted(jobs[first]->replicas(), "replica")
                                            : fmt::format("{} to {} replicas", grouped(jobs[first]->replicas()),
                                                          grouped(jobs[last]->replicas()));
    text += fmt::format("{}{}: {} of {}{}\n", first == 0 ? "memory of the fullest IPU with " : "  with ", range,
                        peak(*jobs[first]), mebibytes_text(jobs[first]->capacity_bytes()),
                        jobs[first]->fits() ? "" : ", which does not fit");
    first = last + 1;
  }
  return text;
}

std::string energy_text(double kilowatt_hours) {
  return kilowatt_hours < 100 ? fmt::format("{:.3g}", kilowatt_hours)
                              : grouped(static_cast<std::uint64_t>(std::llround(kilowatt_hours)));
}

/// Returns a table of the whole jobs, with energy and cost if power and price are known.
std::string runs_table(const Jobs& jobs) {
  const auto any = [&jobs](double (proto::ScaledJob::*figure)() const) {
    return std::ranges::any_of(jobs, [&](const proto::ScaledJob* job) { return (job->*figure)() > 0; });
  };
  const bool has_energy = any(&proto::ScaledJob::run_kilowatt_hours);
  const bool has_cost = any(&proto::ScaledJob::run_cost);
  if (!any(&proto::ScaledJob::run_seconds)) {
    return "";
  }
  std::string text =
      fmt::format("the whole job:\n{:>8}{:>14}{:>14}{}{}\n", "replicas", "steps", "device time",
                  has_energy ? fmt::format("{:>18}", "energy") : "", has_cost ? fmt::format("{:>16}", "cost") : "");
  for (const proto::ScaledJob* job : jobs) {
    const bool runs = job->steps() > 0;
    text += fmt::format("{:>8}{:>14}{:>14}{}{}\n", grouped(job->replicas()), runs ? grouped(job->steps()) : "-",
                        runs ? run_time_text(job->run_seconds()) : "-",
                        has_energy ? fmt::format("{:>14} kWh", energy_text(job->run_kilowatt_hours())) : "",
                        has_cost ? fmt::format("{:>16.2f}", job->run_cost()) : "");
  }
  return text;
}

/// Returns the distributions of steps with --what-if; empty without it.
std::string disturbed_table(const Jobs& jobs) {
  if (!std::ranges::any_of(jobs, [](const proto::ScaledJob* job) { return job->has_disturbed(); })) {
    return "";
  }
  std::string text = fmt::format(
      "with --what-if, which samples/s, effic. and device time include:\n{:>8}{:>11}{:>11}{:>11}{:>11}{:>14}{:>10}\n",
      "replicas", "median", "90 %", "99 %", "slowest", "lost", "repeated");
  for (const proto::ScaledJob* job : jobs) {
    const proto::DisturbedTime& time = job->disturbed();
    text += fmt::format("{:>8}{:>11}{:>11}{:>11}{:>11}{:>14}{:>10}\n", grouped(job->replicas()),
                        duration_text(time.median_step_seconds()), duration_text(time.step_seconds_90()),
                        duration_text(time.step_seconds_99()), duration_text(time.slowest_step_seconds()),
                        time.losses() > 0 ? run_time_text(time.lost_seconds()) : "-",
                        time.losses() > 0 ? grouped(time.repeated_steps()) : "-");
  }
  return text;
}

std::string table(const Jobs& jobs, const std::string& title) {
  std::string text = fmt::format("# {}\n{:>8}{:>8}{:>14}{:>11}{:>11}{:>7}{:>6}{:>5}{:>5}{:>5}\n", title, "replicas",
                                 "IPUs", "batch", "step", "samples/s", "effic.", "exch.", "copy", "host", "idle");
  Jobs compiled;
  for (const proto::ScaledJob* job : jobs) {
    text += row_text(*job);
    if (job->refusal().empty()) {
      compiled.push_back(job);
    }
  }
  return text + memory_lines(compiled) + runs_table(compiled) + disturbed_table(compiled);
}

}  // namespace

std::string scaling_tables(const proto::ScaleAnswer& answer, const std::string& ipu) {
  const Jobs weak = jobs_of(answer, "weak");
  const Jobs strong = jobs_of(answer, "strong");
  if (weak.empty()) {
    return "";
  }
  std::string text = table(weak, "weak scaling: each replica keeps its batch");
  if (!strong.empty()) {
    text += "\n" + table(strong, "strong scaling: all replicas together keep the batch of the first row");
  }
  const bool is_beyond = weak.back()->ipus() > kComparedIpusMax && weak.back()->compared_error() > 0;
  return text +
         fmt::format(
             "\nexch., copy, host, idle: percent of the step in which an IPU waits for exchanges\nwith other replicas, "
             "for copies between IPUs, for the host or Streaming Memory,\nand for other IPUs. effic.: samples/s of a "
             "replica, compared with the first row.\n{}{}\n",
             device_clock_text(ipu, weak.front()->compared_error()),
             is_beyond ? fmt::format(", but only up to {} IPUs", kComparedIpusMax) : "");
}

}  // namespace poprun::launcher
