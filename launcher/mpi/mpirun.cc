#include "launcher/mpi/mpirun.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

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
    line.insert(line.end(), {"-x", "POPRUN_EMU_COORDINATOR", "-x", "POPRUN_EMU_TOKEN"});
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
