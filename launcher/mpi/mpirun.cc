#include "launcher/mpi/mpirun.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "launcher/options/shell_words.h"

namespace poprun::launcher {
namespace {

/// Each only where the user has not set it. Without these, 16 ranks on 2 cores spin, a cut link
/// hangs the job for eight minutes, and start-up probes networks that are not there. Values of
/// oob_*: idle 5 s, then 3 probes 2 s apart.
std::vector<Variable> mpi_settings(const Options& options, const std::string& ssh_user,
                                   bool as_root) {
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
      {"OMPI_MCA_orte_keep_fqdn_hostnames", "1"},
      // Signals are for the launcher (process/signals.h). With a handler that forwards it, replicas
      // would hear SIGUSR1 until they ignore it.
      {"OMPI_MCA_ess_base_forward_signals", "none"},
      // Where it looks for ssh, and fails without, also where all ranks are local.
      {"PATH", "/usr/local/bin:/usr/bin:/bin"},
  };
  if (!ssh_user.empty()) {
    settings.emplace_back("OMPI_MCA_plm_rsh_args", "-l " + ssh_user);
  }
  if (!options.host_subnet.empty()) {
    settings.emplace_back("OMPI_MCA_btl_tcp_if_include", options.host_subnet);
    settings.emplace_back("OMPI_MCA_oob_tcp_if_include", options.host_subnet);
  }
  if (as_root) {
    settings.emplace_back("OMPI_ALLOW_RUN_AS_ROOT", "1");
    settings.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  return settings;
}

std::vector<Variable> instance_variables(const Options& options, const Placement& placement,
                                         std::uint32_t instance) {
  std::uint32_t first_on_host = instance;
  while (first_on_host > 0 &&
         placement.instance_host[first_on_host - 1] == placement.instance_host[instance]) {
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
      // Part of the numerics' promise: one thread a replica, whatever the user's environment says.
      {"OMP_NUM_THREADS", "1"},
  };
  if (!options.cpu_isa.empty()) {
    std::string isa = options.cpu_isa;
    std::ranges::transform(isa, isa.begin(), [](unsigned char c) { return std::toupper(c); });
    variables.emplace_back("ONEDNN_MAX_CPU_ISA", isa);
    if (options.cpu_isa == "sse41" || options.cpu_isa == "avx") {
      // glibc's mathematics has variants for FMA, which no processor below AVX2 is sure to have.
      variables.emplace_back("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2");
    }
  }
  return variables;
}

constexpr const char* kAgent = "poprun-emu-remote-shell";

/// Two names of one parameter.
constexpr std::array kRemoteShellParameters = {"plm_rsh_agent", "orte_rsh_agent"};

/// The value of `name` in a file of Open MPI's parameters; empty where it has none.
std::string value_in_file(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string value;
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find('=');
    const auto trimmed = [](const std::string& text) {
      const std::size_t first = text.find_first_not_of(" \t");
      return first == std::string::npos
                 ? ""
                 : text.substr(first, text.find_last_not_of(" \t") - first + 1);
    };
    if (equals != std::string::npos && trimmed(line.substr(0, equals)) == name) {
      value = trimmed(line.substr(equals + 1));
    }
  }
  return value;
}

/// What the user has mpirun reach other hosts by, looked for where mpirun looks: on its command
/// line, from which it is taken, in the environment, in its files; else ssh.
std::string users_remote_shell(std::vector<std::string>& line) {
  const auto end_of_own = std::ranges::find(line, "-np");
  for (auto at = line.begin(); end_of_own - at >= 3; ++at) {
    const bool names_it =
        std::ranges::find(kRemoteShellParameters, *(at + 1)) != kRemoteShellParameters.end();
    if ((*at == "--mca" || *at == "-mca" || *at == "--gmca" || *at == "-gmca") && names_it) {
      const std::string shell = *(at + 2);
      line.erase(at, at + 3);
      return shell;
    }
  }
  const char* home = std::getenv("HOME");
  for (const char* name : kRemoteShellParameters) {
    if (const char* value = std::getenv(fmt::format("OMPI_MCA_{}", name).c_str())) {
      return value;
    }
    for (const std::string& file : {fmt::format("{}/.openmpi/mca-params.conf", home ? home : ""),
                                    std::string("/etc/openmpi/openmpi-mca-params.conf")}) {
      if (std::string value = value_in_file(file, name); !value.empty()) {
        return value;
      }
    }
  }
  return "ssh";
}

}  // namespace

MpirunCommand compose_mpirun(const Options& options, const Placement& placement,
                             const std::string& replica_program, bool as_root) {
  MpirunCommand command{.arguments = {"mpirun", "--tag-output"},
                        .environment = mpi_settings(options, placement.ssh_user, as_root),
                        .instances = {}};
  std::vector<std::string>& line = command.arguments;
  line.insert(line.end(), options.mpi_global_args.begin(), options.mpi_global_args.end());
  for (std::uint32_t i = 0; i < placement.num_instances; ++i) {
    if (i > 0) {
      line.emplace_back(":");
    }
    line.insert(line.end(), {"-np", "1"});
    if (placement.hosts_given) {
      line.insert(line.end(), {"--host", placement.host_of(i)});
    }
    command.instances.push_back(instance_variables(options, placement, i));
    for (const auto& [name, value] : command.instances.back()) {
      line.insert(line.end(), {"-x", fmt::format("{}={}", name, value)});
    }
    // Not the secrets: mpirun sends to its daemons in plain text what -x names.
    line.insert(line.end(), {"-x", "POPRUN_EMU_COORDINATOR"});
    line.insert(line.end(), options.mpi_local_args.begin(), options.mpi_local_args.end());
    if (const auto own = options.instance_mpi_local_args.find(i);
        own != options.instance_mpi_local_args.end()) {
      line.insert(line.end(), own->second.begin(), own->second.end());
    }
    line.push_back(replica_program);
  }
  return command;
}

MpirunCommand mpirun_here(const Options& options, const Placement& placement,
                          const std::string& replica_program) {
  MpirunCommand command = compose_mpirun(options, placement, replica_program, geteuid() == 0);
  std::erase_if(command.environment,
                [](const Variable& v) { return std::getenv(v.first.c_str()) != nullptr; });
  if (!placement.all_local) {
    // Set also over the user's own, which ours then runs.
    const std::string shell = users_remote_shell(command.arguments);
    const std::string agent = replica_program.substr(0, replica_program.rfind('/') + 1) + kAgent;
    for (const char* name : kRemoteShellParameters) {
      command.environment.emplace_back(fmt::format("OMPI_MCA_{}", name), agent);
    }
    command.environment.emplace_back("POPRUN_EMU_REMOTE_SHELL", shell);
    // Its daemons would look for ours on their hosts, to start others' daemons.
    command.environment.emplace_back("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
  }
  return command;
}

std::string shell_line(const MpirunCommand& command) {
  std::string line;
  for (const auto& [name, value] : command.environment) {
    line += fmt::format("{}={} ", name, quote_shell_word(value));
  }
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    line += fmt::format("{}{}", i > 0 ? " " : "", quote_shell_word(command.arguments[i]));
  }
  return line;
}

}  // namespace poprun::launcher
