#include "launcher/mpi/mpirun.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>
#include <pwd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "launcher/options/shell_words.h"
#include "launcher/placement/mca_parameters.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

/// Returns whether mpirun should also distinguish hosts by their domains. It must not do so if the command contains
/// only short names: if its own host's name had a domain, mpirun would not recognise that host.
bool keeps_domains(const Placement& placement) {
  bool only_short_names = !placement.all_local;
  for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
    only_short_names = only_short_names && (placement.is_local[h] || placement.hosts[h].find('.') == std::string::npos);
  }
  return !only_short_names;
}

/// Returns whether the user has told Open MPI which networks to use for messages.
bool chooses_networks(const Options& options) {
  constexpr const char* kParameters[] = {"btl_tcp_if_include", "btl_tcp_if_exclude"};
  return std::ranges::any_of(kParameters, [&](const char* name) {
    return mca_parameter(std::array<std::string, 1>{name}, options.mpirun.global_args).has_value();
  });
}

/// Returns settings of Open MPI, each of which the user can override. Without them, 16 ranks on 2 cores spin, a cut
/// link hangs the job for eight minutes, and Open MPI searches at its start for networks that do not exist. With the
/// oob_* values, Open MPI sends 3 probes, 2 s apart, after 5 s without traffic.
std::vector<Variable> mpi_settings(const Options& options, const Placement& placement, bool as_root) {
  const std::string& ssh_user = placement.ssh_user;
  std::vector<Variable> settings = {
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader,tcp"},
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      {"OMPI_MCA_oob_tcp_keepalive_time", "5"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "2"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "3"},
      {"OMPI_MCA_orte_keep_fqdn_hostnames", keeps_domains(placement) ? "1" : "0"},
      {"OMPI_MCA_ras", "^slurm,gridengine,tm,lsf,alps"},
      {"OMPI_MCA_plm", "rsh"},
      {"OMPI_MCA_plm_rsh_disable_qrsh", "1"},
      // Only the launcher handles signals (process_handle.h): a replica that is starting does not ignore SIGUSR1 yet.
      {"OMPI_MCA_ess_base_forward_signals", "none"},
      // mpirun looks for ssh in PATH, and fails if ssh is not there, even if all ranks are local.
      {"PATH", kDefaultPath},
  };
  if (!ssh_user.empty()) {
    settings.emplace_back("OMPI_MCA_plm_rsh_args", "-l " + ssh_user);
  }
  if (!options.hosts.subnet.empty()) {
    settings.emplace_back("OMPI_MCA_btl_tcp_if_include", options.hosts.subnet);
    settings.emplace_back("OMPI_MCA_oob_tcp_if_include", options.hosts.subnet);
  } else if (placement.all_local && !chooses_networks(options)) {
    settings.emplace_back("OMPI_MCA_btl_tcp_if_include", "lo");
  }
  if (as_root) {
    settings.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    settings.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  return settings;
}

std::vector<Variable> instance_variables(const Options& options, const Placement& placement, std::uint32_t instance) {
  std::uint32_t first_on_host = instance;
  while (first_on_host > 0 && placement.instance_host[first_on_host - 1] == placement.instance_host[instance]) {
    --first_on_host;
  }
  const std::uint32_t local = placement.replicas_per_instance();
  std::vector<Variable> variables = {
      {"POPDIST_NUM_TOTAL_REPLICAS", std::to_string(placement.num_replicas)},
      {"POPDIST_NUM_IPUS_PER_REPLICA", std::to_string(placement.ipus_per_replica)},
      {"POPDIST_NUM_LOCAL_REPLICAS", std::to_string(local)},
      {"POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1"},
      {"POPDIST_REPLICA_INDEX_OFFSET", std::to_string(instance * local)},
      {"POPDIST_LOCAL_INSTANCE_INDEX", std::to_string(instance - first_on_host)},
      {"POPRUN_EMU_LOG_LEVEL", options.verbosity >= 2 ? "debug" : "info"},
      // Bit-identical results require one thread per replica, whatever the user's environment says.
      {"OMP_NUM_THREADS", "1"},
  };
  if (!options.hosts.cpu_isa.empty()) {
    std::string isa = options.hosts.cpu_isa;
    std::ranges::transform(isa, isa.begin(), [](unsigned char c) { return std::toupper(c); });
    variables.emplace_back("ONEDNN_MAX_CPU_ISA", isa);
    if (options.hosts.cpu_isa == "sse41" || options.hosts.cpu_isa == "avx") {
      // glibc's mathematical functions have variants that use FMA, which processors without AVX2 may not support.
      variables.emplace_back("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2");
    }
  }
  return variables;
}

constexpr const char* kAgent = "poprun-emu-remote-shell";

/// Two names of the same parameter. mpirun reports the second name as deprecated.
const std::array<std::string, 2> kRemoteShellParameters = {"plm_rsh_agent", "orte_rsh_agent"};
const std::array<std::string, 1> kHostfileParameter = {"orte_default_hostfile"};

/// Returns the command of a Slurm step with one process on one host. remote_shell.sh appends the host's name.
std::string srun_line(const std::string& job) {
  return fmt::format(
      "srun --jobid={} --quiet --nodes=1 --ntasks=1 --cpu-bind=none --mem=0 --mpi=none --export=ALL --nodelist", job);
}

/// Returns the user's global arguments without those that the launcher handles itself.
std::vector<std::string> global_arguments(const Options& options, const Placement& placement) {
  std::vector<std::string> arguments = without_mca_argument(kHostfileParameter, options.mpirun.global_args);
  return placement.all_local ? arguments : without_mca_argument(kRemoteShellParameters, std::move(arguments));
}

/// Makes Open MPI listen only on the addresses that the job needs (listen_here.cc). `folder` contains our programs.
void listen_here(const Options& options, const Placement& placement, const std::string& folder,
                 MpirunCommand& command) {
  const std::string library = fmt::format("{}/../lib/poprun-emu/poprun-emu-listen.so", folder);
  const bool is_alone = placement.all_local && !chooses_networks(options);
  const std::string where = options.hosts.subnet.empty() && is_alone ? "loopback" : options.hosts.subnet;
  const bool can_be_named = library.find_first_of(" \t:") == std::string::npos;
  if (where.empty() || !can_be_named || access(library.c_str(), R_OK) != 0) {
    return;
  }
  const char* const preloaded = std::getenv("LD_PRELOAD");
  command.environment.emplace_back("LD_PRELOAD", fmt::format("{}{}{}", library, preloaded == nullptr ? "" : ":",
                                                             preloaded == nullptr ? "" : preloaded));
  command.environment.emplace_back("POPRUN_EMU_LISTEN", where);
  if (!placement.all_local) {
    command.environment.emplace_back("POPRUN_EMU_LISTEN_LIBRARY", library);
  }
}

}  // namespace

std::string remote_shell(const Options& options, const Placement& placement) {
  if (const auto users = mca_parameter(kRemoteShellParameters, options.mpirun.global_args)) {
    return *users;
  }
  return placement.slurm_job.empty() ? "ssh" : srun_line(placement.slurm_job);
}

Status check_room_for_mpi_session(const collectives::SessionPlace& place, std::uint32_t instances) {
  // Open MPI 4.1.4 was measured to need 8,253 KiB for 2 ranks, 8,309 KiB for 16, and 8,509 KiB for 64.
  const Bytes needed{(8300 + 4 * std::int64_t{instances}) * 1024};
  const std::string folder = place.base;
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) {
    return {};  // Open MPI creates a missing folder, or reports why it cannot.
  }
  const Bytes free{static_cast<std::int64_t>(disk.f_bfree * disk.f_frsize)};
  if (free >= needed) {
    return {};
  }
  return fail(
      ErrorCode::kHostResources,
      fmt::format(
          "Open MPI needs {} in {} to start, but only {} is free; make room, or set TMPDIR to a different folder",
          mebibytes_text(static_cast<std::uint64_t>(needed.count())), folder,
          mebibytes_text(static_cast<std::uint64_t>(free.count()))),
      {.shortage = Shortage{.needed = needed, .had = free}});
}

MpirunCommand compose_mpirun(const Options& options, const Placement& placement, const std::string& replica_program,
                             bool as_root) {
  MpirunCommand command{.arguments = {"mpirun", "--tag-output"},
                        .environment = mpi_settings(options, placement, as_root),
                        .without = {},
                        .instances = {}};
  std::vector<std::string>& line = command.arguments;
  const std::vector<std::string> global = global_arguments(options, placement);
  line.insert(line.end(), global.begin(), global.end());
  for (std::uint32_t i = 0; i < placement.num_instances; ++i) {
    if (i > 0) {
      line.emplace_back(":");
    }
    line.insert(line.end(), {"-np", "1"});
    if (placement.hosts_given) {
      // mpirun always recognises its own machine by this name.
      line.insert(line.end(), {"--host", placement.runs_here(i) ? "localhost" : placement.host_of(i)});
    }
    command.instances.push_back(instance_variables(options, placement, i));
    for (const auto& [name, value] : command.instances.back()) {
      line.insert(line.end(), {"-x", fmt::format("{}={}", name, value)});
    }
    // Secrets are left out, because mpirun sends the variables that -x names to its daemons in plain text.
    line.insert(line.end(), {"-x", "POPRUN_EMU_COORDINATOR"});
    // These prevent two tasks that hwloc would perform in each rank: it would read the configuration of all PCI devices
    // (6 ms in a virtual machine), which only Open MPI's drivers for fast networks use, and load plugins for XML, PCI,
    // OpenCL and X11 (5 ms). "linuxpci" is the PCI discovery in hwloc's Linux component. mpirun itself performs both
    // tasks, as its daemons do: otherwise, the daemons would see more than mpirun and send it their whole topologies.
    line.insert(line.end(), {"-x", "HWLOC_COMPONENTS=-linuxpci,-pci", "-x", "HWLOC_PLUGINS_PATH=/dev/null"});
    line.insert(line.end(), options.mpirun.local_args.begin(), options.mpirun.local_args.end());
    if (const auto own = options.mpirun.instance_local_args.find(i); own != options.mpirun.instance_local_args.end()) {
      line.insert(line.end(), own->second.begin(), own->second.end());
    }
    line.push_back(replica_program);
  }
  return command;
}

MpirunCommand mpirun_here(const Options& options, const Placement& placement, const std::string& replica_program) {
  MpirunCommand command = compose_mpirun(options, placement, replica_program, geteuid() == 0);
  std::erase_if(command.environment, [](const Variable& v) { return std::getenv(v.first.c_str()) != nullptr; });
  // This overrides the user's setting, because the launcher has already read the hosts from the default hostfile.
  command.environment.emplace_back("OMPI_MCA_orte_default_hostfile", "none");
  if (std::getenv("HOME") == nullptr && getpwuid(geteuid()) == nullptr) {
    command.environment.emplace_back("HOME", "/");  // mpirun crashes without it.
  }
  const std::string folder = replica_program.substr(0, replica_program.rfind('/'));
  listen_here(options, placement, folder, command);
  if (!placement.all_local) {
    // Our script takes the place of the user's remote shell, and then runs that shell.
    const bool has_blanks = folder.find_first_of(" \t") != std::string::npos;
    command.environment.emplace_back("OMPI_MCA_plm_rsh_agent",
                                     has_blanks ? kAgent : fmt::format("{}/{}", folder, kAgent));
    if (has_blanks) {  // mpirun would cut the agent's path at the blank, so PATH must contain the agent's folder.
      const char* path = std::getenv("PATH");
      std::erase_if(command.environment, [](const Variable& v) { return v.first == "PATH"; });
      command.environment.emplace_back("PATH", fmt::format("{}:{}", folder, path == nullptr ? kDefaultPath : path));
    }
    command.without.emplace_back("OMPI_MCA_orte_rsh_agent");
    command.environment.emplace_back("POPRUN_EMU_REMOTE_SHELL", remote_shell(options, placement));
    // Otherwise, mpirun's daemons would look for our script on their hosts in order to start further daemons.
    command.environment.emplace_back("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
  }
  return command;
}

std::string shell_line(const MpirunCommand& command) {
  std::string line;
  for (const std::string& name : command.without) {
    line += std::getenv(name.c_str()) == nullptr ? "" : fmt::format("env -u {} ", name);
  }
  for (const auto& [name, value] : command.environment) {
    line += fmt::format("{}={} ", name, quote_shell_word(value));
  }
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    line += fmt::format("{}{}", i > 0 ? " " : "", quote_shell_word(command.arguments[i]));
  }
  return line;
}

}  // namespace poprun::launcher
