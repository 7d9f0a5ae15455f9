#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/config_file.h"
#include "launcher/placement/addresses.h"
#include "launcher/placement/hosts.h"
#include "launcher/placement/mca_parameters.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {
namespace {

std::string names_of(std::span<const Host> hosts) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  std::ranges::transform(hosts.first(std::min(kShown, hosts.size())), std::back_inserter(names), &Host::name);
  return fmt::format("{}{}", fmt::join(names, ", "), hosts.size() > kShown ? ", ..." : "");
}

/// Parses Slurm's counts per node: `2(x3),1` stands for 2, 2, 2, 1. Returns no counts if `text` has another format.
std::vector<std::uint32_t> counts_of(std::string_view text) {
  std::vector<std::uint32_t> counts;
  while (!text.empty()) {
    const auto take = [&text](std::uint32_t& value) {
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
      return error == std::errc{};
    };
    std::uint32_t count = 0;
    std::uint32_t times = 1;
    if (!take(count)) {
      return {};
    }
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      if (!take(times) || !text.starts_with(')') || times > 4096) {
        return {};
      }
      text.remove_prefix(1);
    }
    counts.insert(counts.end(), times, count);
    if (!text.empty() && text.front() != ',') {
      return {};
    }
    text.remove_prefix(text.empty() ? 0 : 1);
  }
  return counts;
}

struct SlurmJob {
  std::string number;
  std::vector<Host> hosts;
};

Result<std::optional<SlurmJob>> slurm_job() {
  const auto number = variable({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!number) {
    return std::optional<SlurmJob>{};
  }
  const auto list = variable({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const Result<std::vector<Host>> hosts = list ? parse_host_list(*list) : fail(ErrorCode::kUsage, "it is not set");
  if (!hosts) {
    return fail(ErrorCode::kHostResources,
                fmt::format("SLURM_JOB_ID = {} says that this is a Slurm job, but "
                            "SLURM_JOB_NODELIST does not list its hosts ({}); outside of Slurm, "
                            "`unset SLURM_JOB_ID SLURM_JOBID`",
                            *number, hosts.error().message));
  }
  return std::optional(SlurmJob{*number, *hosts});
}

/// Uses Slurm's tasks as slots if there is one task per instance. Any other number may be a default, or one task per
/// processor.
void take_tasks(SlurmJob& job, std::uint32_t instances) {
  const std::vector<std::uint32_t> tasks =
      counts_of(variable({"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"}).value_or(""));
  std::uint64_t sum = 0;
  for (const std::uint32_t count : tasks) {
    sum += count;
  }
  if (tasks.size() == job.hosts.size() && sum == instances) {
    for (std::size_t h = 0; h < tasks.size(); ++h) {
      job.hosts[h].slots = tasks[h];
    }
  }
}

bool all_here(std::span<const Host> hosts) {
  return std::ranges::all_of(look_up(hosts), &KnownHost::is_this_machine);
}

Result<JobHosts> hosts_of_slurm(SlurmJob job, std::uint32_t instances) {
  const bool reached = in_path("srun").has_value();
  if (!reached && !all_here(job.hosts)) {
    return fail(ErrorCode::kHostResources,
                fmt::format("SLURM_JOB_ID = {} says that this is a Slurm job on {}, but srun, which is "
                            "needed to reach its hosts, is not in PATH; `unset SLURM_JOB_ID SLURM_JOBID` "
                            "to run on this machine alone, or use -H to name hosts that ssh can reach",
                            job.number, names_of(job.hosts)));
  }
  take_tasks(job, instances);
  return JobHosts{
      .hosts = job.hosts, .source = fmt::format("Slurm job {}", job.number), .slurm_job = reached ? job.number : ""};
}

/// Returns the hosts that the user named, under the names that Slurm uses for them.
Result<JobHosts> named_hosts_in_slurm(std::vector<Host> hosts, const SlurmJob& job) {
  for (Host& host : hosts) {
    const auto is_it = [&](const Host& node) { return same_host(node.name, host.name); };
    auto node = std::ranges::find_if(job.hosts, is_it);
    if (node == job.hosts.end()) {
      if (const auto address = address_of(host.name)) {
        node = std::ranges::find_if(job.hosts, [&](const Host& other) { return address_of(other.name) == address; });
      }
    }
    if (node != job.hosts.end()) {
      host.name = node->name;
    } else if (!all_here({&host, 1})) {
      return fail(ErrorCode::kUsage,
                  fmt::format("host {} does not belong to Slurm job {}, whose hosts are {}; use these, or `unset "
                              "SLURM_JOB_ID SLURM_JOBID` to reach other hosts by ssh",
                              host.name, job.number, names_of(job.hosts)));
    }
  }
  return JobHosts{.hosts = std::move(hosts), .slurm_job = job.number};
}

/// Reads Grid Engine's file, with `HOST SLOTS QUEUE PROCESSORS` per line. Returns nothing outside of a Grid Engine job.
Result<std::optional<JobHosts>> hosts_of_grid_engine() {
  const auto file = variable({"PE_HOSTFILE"});
  const auto job = variable({"JOB_ID"});
  if (!file || !job || !variable({"SGE_ROOT"}) || !variable({"ARC"})) {
    return std::optional<JobHosts>{};
  }
  std::ifstream lines(*file);
  if (!lines.is_open()) {
    return fail(ErrorCode::kHostResources,
                fmt::format("PE_HOSTFILE = {} says that this is a Grid Engine job, but the file "
                            "cannot be read; outside of Grid Engine, `unset PE_HOSTFILE`",
                            *file));
  }
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string host;
    std::uint32_t slots = 0;
    if (words >> host >> slots) {
      text += fmt::format("{} slots={}\n", host, slots);
    }
  }
  POPRUN_ASSIGN(std::vector<Host> hosts, parse_hostfile(*file, text));
  return std::optional(JobHosts{.hosts = std::move(hosts), .source = fmt::format("Grid Engine job {}", *job)});
}

/// Returns whether a hostfile contains more than comments.
bool lists_hosts(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] != '#') {
      return true;
    }
  }
  return false;
}

/// Returns the hosts in the file named by Open MPI's parameter orte_default_hostfile or, if it is not set, in the file
/// that Open MPI reads by default.
Result<JobHosts> hosts_by_default(const Options& options) {
  const std::array<std::string, 1> parameter = {"orte_default_hostfile"};
  const auto set = mca_parameter(parameter, options.mpirun.global_args);
  const std::string file = set.value_or(mca_folder() + "/openmpi-default-hostfile");
  if (file == "none" || (!set && !std::ifstream(file).is_open())) {
    return JobHosts{};
  }
  const auto with_source = [&](const Error& error) {
    return Error{error.code, fmt::format("{} (Open MPI's default hostfile{})", error.message,
                                         set ? ", parameter orte_default_hostfile" : "")};
  };
  const Result<std::string> text = read_config_file(file);
  if (!text) {
    return tl::unexpected<Error>{with_source(text.error())};
  }
  if (!lists_hosts(*text)) {
    return JobHosts{};
  }
  Result<std::vector<Host>> hosts = parse_hostfile(file, *text);
  if (!hosts) {
    return tl::unexpected<Error>{with_source(hosts.error())};
  }
  return JobHosts{.hosts = std::move(*hosts), .source = fmt::format("Open MPI's default hostfile {}", file)};
}

/// Rejects mpirun arguments that name hosts, because the launcher itself places the instances.
Status check_mpi_arguments(std::span<const std::string> arguments) {
  constexpr std::array kHostOptions = {"-H",
                                       "-host",
                                       "--host",
                                       "-hostfile",
                                       "--hostfile",
                                       "-machinefile",
                                       "--machinefile",
                                       "-default-hostfile",
                                       "--default-hostfile",
                                       "-rf",
                                       "--rankfile",
                                       "-rankfile"};
  for (const std::string& word : arguments) {
    if (std::ranges::count(kHostOptions, word) > 0) {
      return fail(ErrorCode::kUsage, fmt::format("{} is not allowed among the arguments for mpirun, since poprun-emu "
                                                 "places the instances; give the hosts with --host or --hostfile",
                                                 word));
    }
  }
  return {};
}

}  // namespace

Result<JobHosts> job_hosts(const Options& options, std::uint32_t instances) {
  POPRUN_TRY(check_mpi_arguments(options.mpirun.global_args));
  POPRUN_TRY(check_mpi_arguments(options.mpirun.local_args));
  for (const auto& [instance, arguments] : options.mpirun.instance_local_args) {
    POPRUN_TRY(check_mpi_arguments(arguments));
  }
  std::vector<Host> named;
  if (!options.hosts.lists.empty()) {
    POPRUN_ASSIGN(named, parse_host_list(fmt::format("{}", fmt::join(options.hosts.lists, ","))));
  } else if (!options.hosts.file.empty()) {
    POPRUN_ASSIGN(const std::string text, read_config_file(options.hosts.file));
    POPRUN_ASSIGN(named, parse_hostfile(options.hosts.file, text));
  }
  if (!named.empty() && !in_path("srun")) {
    return JobHosts{.hosts = std::move(named)};
  }
  POPRUN_ASSIGN(std::optional<SlurmJob> slurm, slurm_job());
  if (slurm) {
    return named.empty() ? hosts_of_slurm(std::move(*slurm), instances)
                         : named_hosts_in_slurm(std::move(named), *slurm);
  }
  if (!named.empty()) {
    return JobHosts{.hosts = std::move(named)};
  }
  POPRUN_ASSIGN(std::optional<JobHosts> grid_engine, hosts_of_grid_engine());
  return grid_engine ? std::move(*grid_engine) : hosts_by_default(options);
}

}  // namespace poprun::launcher
