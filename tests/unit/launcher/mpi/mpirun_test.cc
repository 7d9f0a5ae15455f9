#include "launcher/mpi/mpirun.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::mpirun_test {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::Pair;
using Args = std::vector<std::string>;

MpirunCommand compose(const Args& args, bool as_root) {
  Args all = args;
  all.emplace_back("train.cfg");
  const auto options = parse_options(all, "");
  return compose_mpirun(*options, *place(*options), "/opt/bin/poprun-emu-replica", as_root);
}

TEST(Mpirun, GetsOneContextAnInstanceWithPoprunsVariables) {
  const MpirunCommand command =
      compose({"-n", "8", "--num-instances", "4", "-H", "node[0-1]", "--mpi-global-args=--mca a b",
               "--mpi-local-args=-x 'C=1 2'", "--instance-mpi-local-args", "2:-x D=3"},
              false);

  const auto context = [](const std::string& host, const std::string& offset, const std::string& local,
                          const std::string& own = "") {
    return "-np 1 --host " + host +
           " -x POPDIST_NUM_TOTAL_REPLICAS=8 -x POPDIST_NUM_IPUS_PER_REPLICA=1 -x "
           "POPDIST_NUM_LOCAL_REPLICAS=2"
           " -x POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1 -x POPDIST_REPLICA_INDEX_OFFSET=" +
           offset + " -x POPDIST_LOCAL_INSTANCE_INDEX=" + local +
           " -x POPRUN_EMU_LOG_LEVEL=info -x OMP_NUM_THREADS=1 -x POPRUN_EMU_COORDINATOR"
           " -x HWLOC_COMPONENTS=-linuxpci,-pci -x HWLOC_PLUGINS_PATH=/dev/null"
           " -x 'C=1 2'" +
           own + " /opt/bin/poprun-emu-replica";
  };
  EXPECT_EQ(shell_line({command.arguments, {}, {}, {}}),
            "mpirun --tag-output --mca a b " + context("node0", "0", "0") + " : " + context("node0", "2", "1") + " : " +
                context("node1", "4", "0", " -x D=3") + " : " + context("node1", "6", "1"));
}

TEST(Mpirun, DoesNotSpinBindOrProbe) {
  const MpirunCommand command = compose({"-n", "2"}, false);

  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_mpi_yield_when_idle", "1")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_hwloc_base_binding_policy", "none")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_rmaps_base_oversubscribe", "1")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_pml", "ob1")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_btl", "self,vader,tcp")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_btl_vader_single_copy_mechanism", "none")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_oob_tcp_keepalive_time", "5")));
  EXPECT_THAT(command.environment, Contains(Pair("PATH", "/usr/local/bin:/usr/bin:/bin")));
}

TEST(Mpirun, SeesNoHostsButThoseOfItsCommand) {
  const MpirunCommand command =
      compose({"-n", "2", "-H", "node0,localhost", "--mpi-global-args=--mca orte_default_hostfile f"}, false);

  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_ras", "^slurm,gridengine,tm,lsf,alps")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_plm", "rsh")));
  EXPECT_THAT(command.arguments, Not(Contains("orte_default_hostfile")));
  EXPECT_THAT(command.arguments, Contains("localhost"));
}

/// Returns the value that the launcher sets for `name` in mpirun's environment.
std::string value_of(const MpirunCommand& command, const std::string& name) {
  const auto at = std::ranges::find(command.environment, name, &Variable::first);
  return at == command.environment.end() ? "(none)" : at->second;
}

MpirunCommand here(const std::string& replica, const std::string& slurm_job = "") {
  const auto options = parse_options(Args{"-n", "2", "-H", "node0,node1", "train.cfg"}, "");
  Placement placement = *place(options->config.topology(), *parse_host_list("node0,node1"));
  placement.slurm_job = slurm_job;
  return mpirun_here(*options, placement, replica);
}

TEST(Mpirun, ReachesHostsByOurRemoteShellUnderItsPresentNameOnly) {
  const MpirunCommand command = here("/opt/bin/poprun-emu-replica");

  EXPECT_EQ(value_of(command, "OMPI_MCA_plm_rsh_agent"), "/opt/bin/poprun-emu-remote-shell");
  EXPECT_EQ(value_of(command, "OMPI_MCA_orte_rsh_agent"), "(none)") << "is deprecated, and warned of";
  EXPECT_THAT(command.without, Contains("OMPI_MCA_orte_rsh_agent"));
  EXPECT_EQ(value_of(command, "POPRUN_EMU_REMOTE_SHELL"), "ssh");
  EXPECT_EQ(value_of(command, "OMPI_MCA_orte_default_hostfile"), "none");
}

TEST(Mpirun, FindsOurRemoteShellInAFolderWithABlank) {
  const MpirunCommand command = here("/opt/my programs/poprun-emu-replica");

  EXPECT_EQ(value_of(command, "OMPI_MCA_plm_rsh_agent"), "poprun-emu-remote-shell");
  EXPECT_TRUE(value_of(command, "PATH").starts_with("/opt/my programs:"));
}

TEST(Mpirun, ReachesTheHostsOfASlurmJobBySrun) {
  EXPECT_EQ(value_of(here("/opt/bin/poprun-emu-replica", "7"), "POPRUN_EMU_REMOTE_SHELL"),
            "srun --jobid=7 --quiet --nodes=1 --ntasks=1 --cpu-bind=none --mem=0 --mpi=none "
            "--export=ALL --nodelist");
}

TEST(Mpirun, RunsAsRootOnlyWhereTheLauncherIsRoot) {
  EXPECT_THAT(compose({}, true).environment, Contains(Pair("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")));
  EXPECT_THAT(compose({}, false).environment, Not(Contains(Pair("OMPI_ALLOW_RUN_AS_ROOT", "1"))));
}

TEST(Mpirun, LogsInAsTheUserOfTheHosts) {
  EXPECT_THAT(compose({"-H", "bob@a,bob@b", "-n", "2"}, false).environment,
              Contains(Pair("OMPI_MCA_plm_rsh_args", "-l bob")));
  EXPECT_THAT(compose({"-H", "a,b", "-n", "2"}, false).environment,
              Not(Contains(Pair("OMPI_MCA_plm_rsh_args", ::testing::_))));
  const Args both = {"-n", "1", "-H", "bob@a", "--mpi-global-args=--mca plm_rsh_args -v", "train.cfg"};
  EXPECT_EQ(place(*parse_options(both, "")).error().message,
            "bob@HOST and Open MPI's plm_rsh_args cannot be combined; give hosts without a user, and "
            "add `-l bob` to plm_rsh_args");
}

TEST(Mpirun, HoldsEveryInstanceToOneInstructionSet) {
  const auto variables = [](const Args& args) { return compose(args, false).instances.at(0); };
  EXPECT_THAT(variables({"--cpu-isa", "avx512_core"}),
              ::testing::AllOf(Contains(Pair("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")),
                               Not(Contains(Pair("GLIBC_TUNABLES", ::testing::_)))));
  EXPECT_THAT(variables({"--cpu-isa", "sse41"}), Contains(Pair("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2")));
  EXPECT_THAT(variables({}), Not(Contains(Pair("ONEDNN_MAX_CPU_ISA", ::testing::_))));
}

TEST(Mpirun, KeepsBothNetworksToTheGivenSubnet) {
  const MpirunCommand command = compose({"--host-subnet", "127.0.0.0/8"}, false);

  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_btl_tcp_if_include", "127.0.0.0/8")));
  EXPECT_THAT(command.environment, Contains(Pair("OMPI_MCA_oob_tcp_if_include", "127.0.0.0/8")));
}

}  // namespace
}  // namespace poprun::launcher::mpirun_test
