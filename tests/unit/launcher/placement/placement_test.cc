#include "launcher/placement/placement.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include <gmock/gmock.h>

#include "launcher/options/parse.h"
#include "launcher/placement/hosts.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

proto::Topology topology(std::uint32_t replicas, std::uint32_t instances, std::uint32_t ipus = 1) {
  proto::Topology topology;
  topology.set_num_replicas(replicas);
  topology.set_num_instances(instances);
  topology.set_ipus_per_replica(ipus);
  return topology;
}

TEST(Placement, SpreadsInstancesEvenlyAndContiguously) {
  const std::vector<Host> hosts = {{"a"}, {"b"}, {"c"}};

  const auto placement = place(topology(8, 8), hosts);

  ASSERT_TRUE(placement);
  EXPECT_THAT(placement->instance_host, ElementsAre(0, 0, 0, 1, 1, 1, 2, 2));
  EXPECT_FALSE(placement->all_local);
}

TEST(Placement, FillsHostsByTheirSlotsAndDropsUnusedOnes) {
  const std::vector<Host> hosts = {{"a", 4}, {"b", 1}, {"c", 4}, {"d", 4}};

  const auto placement = place(topology(12, 6), hosts);

  ASSERT_TRUE(placement);
  EXPECT_THAT(placement->instance_host, ElementsAre(0, 0, 0, 0, 1, 2));
  EXPECT_THAT(placement->hosts, ElementsAre("a", "b", "c"));
  EXPECT_EQ(placement->replicas_per_instance(), 2U);
  EXPECT_EQ(placement->host_of(placement->instance_of(11)), "c");
}

TEST(Placement, SaysHowManySlotsAreMissing) {
  const std::vector<Host> hosts = {{"a", 2}, {"b"}};

  const auto placement = place(topology(8, 8), hosts);

  ASSERT_FALSE(placement);
  EXPECT_EQ(placement.error().code, ErrorCode::kUsage);
  EXPECT_EQ(placement.error().message,
            "8 instances need 8 slots, but the total on 2 listed hosts is only 3; list more hosts or slots, "
            "omit the slots to spread the instances evenly, or lower --num-instances");
}

TEST(Placement, IsThisMachineWithoutHosts) {
  const auto placement = place(topology(4, 2), {});

  ASSERT_TRUE(placement);
  EXPECT_TRUE(placement->all_local);
  EXPECT_FALSE(placement->hosts_given);
  EXPECT_THAT(placement->hosts, ElementsAre(machine_name()));
}

TEST(Placement, EntersAllOtherHostsAsOneUser) {
  const std::vector<Host> alike = {{"localhost"}, {"a", 0, "bob"}, {"b", 0, "bob"}};
  const std::vector<Host> different = {{"a", 0, "bob"}, {"b"}};

  EXPECT_EQ(place(topology(3, 3), alike)->ssh_user, "bob");
  EXPECT_EQ(place(topology(2, 2), different).error().message,
            "bob@a and b without a user: mpirun uses one login name for all hosts; give all hosts the "
            "same user, or give no user and set `User` per host in ~/.ssh/config");
}

TEST(Subnet, NeedsAnAddressOfThisMachine) {
  EXPECT_EQ(own_address_in("127.0.0.0/8"), "127.0.0.1");
  EXPECT_TRUE(own_address_in("0.0.0.0/0"));
  const auto none = own_address_in("255.255.255.255/32");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, AllOf(StartsWith("--host-subnet = 255.255.255.255/32: " + machine_name() +
                                                     " has no address in this subnet, only "),
                                          HasSubstr("127.0.0.1")));
}

TEST(OwnAddress, IsNeverLoopbackWhileAHostIsElsewhere) {
  const std::vector<Host> hosts = {{"a"}, {"b"}};
  // Debian's /etc/hosts maps a machine's own name to 127.0.1.1. No packet to either address leaves the machine.
  const std::vector<KnownHost> known = {{true, "127.0.1.1"}, {false, "127.0.0.9"}};
  EXPECT_FALSE(own_address(*place(topology(2, 2), hosts, known)).starts_with("127."));
}

/// Sets environment variables during its lifetime, and unsets those whose value is null.
class Variables {
 public:
  explicit Variables(std::map<std::string, const char*> values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      value == nullptr ? unsetenv(name.c_str()) : setenv(name.c_str(), value, 1);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : before_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

/// A folder that contains host files and a program called srun.
class UnnamedHosts : public ::testing::Test {
 protected:
  UnnamedHosts() : folder_(::testing::TempDir() + "/unnamed-hosts") {
    std::filesystem::create_directories(folder_);
    write("srun", "#!/bin/sh\n");
    std::filesystem::permissions(folder_ + "/srun", std::filesystem::perms::owner_all);
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }

  static Result<JobHosts> hosts(std::vector<std::string> args, std::uint32_t instances = 4) {
    args.emplace_back("train.cfg");
    return job_hosts(*parse_options(args, ""), instances);
  }

  std::string folder_;
  Variables none_{{{"SLURM_JOB_ID", nullptr},
                   {"SLURM_JOBID", nullptr},
                   {"PE_HOSTFILE", nullptr},
                   {"OMPI_MCA_orte_default_hostfile", nullptr}}};
};

TEST_F(UnnamedHosts, AreThoseOfOpenMpisDefaultHostfile) {
  const std::string file = write("hosts", "# two\nnode1 slots=2\nnode2\n");
  const std::vector<Host> two = {{"node1", 2}, {"node2"}};
  {
    const Variables set{{{"OMPI_MCA_orte_default_hostfile", file.c_str()}}};
    EXPECT_EQ(hosts({})->hosts, two);
    EXPECT_EQ(hosts({})->source, "Open MPI's default hostfile " + file);
    EXPECT_EQ(hosts({"-H", "a"})->hosts, std::vector<Host>{{"a"}});
    EXPECT_EQ(hosts({"--mpi-global-args=--mca orte_default_hostfile none"})->hosts, std::vector<Host>{});
  }
  EXPECT_EQ(hosts({"--mpi-global-args=--mca orte_default_hostfile " + file})->hosts, two);
  const std::string parameters = write("params.conf", "orte_default_hostfile = " + file + "\n");
  const Variables set{{{"OMPI_MCA_mca_base_param_files", parameters.c_str()}}};
  EXPECT_EQ(hosts({})->hosts, two);
}

TEST_F(UnnamedHosts, AreNoneIfADefaultHostfileHasOnlyComments) {
  const std::string file = write("empty", "# none\n\n");
  const Variables set{{{"OMPI_MCA_orte_default_hostfile", file.c_str()}}};
  EXPECT_TRUE(hosts({})->hosts.empty());
}

TEST_F(UnnamedHosts, GiveWayToAListThatIsWrittenWithBlanks) {
  const std::string file = write("others", "node1\n");
  const Variables set{{{"OMPI_MCA_orte_default_hostfile", file.c_str()}}};
  const std::vector<Host> three = {{"a"}, {"b", 2}, {"c"}};
  EXPECT_EQ(hosts({"--host", "a,", "b:2,", "c"})->hosts, three);
  EXPECT_EQ(hosts({"-H", "a", ",b:2", ",", "c"})->hosts, three);
}

TEST_F(UnnamedHosts, MayNotReachMpirunBehindTheLaunchersBack) {
  EXPECT_EQ(hosts({"--mpi-global-args=--hostfile f"}).error().message,
            "--hostfile is not allowed among the arguments for mpirun, since poprun-emu places the "
            "instances; give the hosts with --host or --hostfile");
  EXPECT_FALSE(hosts({"--mpi-local-args=-H a"}));
  EXPECT_FALSE(hosts({"--instance-mpi-local-args=0:--host a"}));
}

TEST_F(UnnamedHosts, AreThoseOfTheSlurmJobWithItsTasksAsSlots) {
  const Variables slurm{{{"SLURM_JOB_ID", "7"},
                         {"SLURM_JOB_NODELIST", "n[1-2],gpu-[07-08]"},
                         {"SLURM_TASKS_PER_NODE", "3(x2),1(x2)"},
                         {"PATH", folder_.c_str()}}};
  const auto job = hosts({}, 8);
  EXPECT_EQ(job->hosts, (std::vector<Host>{{"n1", 3}, {"n2", 3}, {"gpu-07", 1}, {"gpu-08", 1}}));
  EXPECT_EQ(job->source, "Slurm job 7");
  EXPECT_EQ(job->slurm_job, "7");
  EXPECT_EQ(hosts({}, 4)->hosts, (std::vector<Host>{{"n1"}, {"n2"}, {"gpu-07"}, {"gpu-08"}}))
      << "spread evenly, since the tasks are not the instances";
  EXPECT_EQ(hosts({"-H", "n2.example.org:4"})->hosts, (std::vector<Host>{{"n2", 4}})) << "by the name that srun knows";
  EXPECT_EQ(hosts({"-H", "n3"}).error().message,
            "host n3 does not belong to Slurm job 7, whose hosts are n1, n2, gpu-07, gpu-08; use "
            "these, or `unset SLURM_JOB_ID SLURM_JOBID` to reach other hosts by ssh");
}

TEST_F(UnnamedHosts, OfASlurmJobNeedSrunUnlessTheyAreThisMachine) {
  Variables slurm{{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"PATH", "/"}}};
  const auto none = hosts({});
  EXPECT_EQ(none.error().code, ErrorCode::kHostResources);
  EXPECT_EQ(none.error().message,
            "SLURM_JOB_ID = 7 says that this is a Slurm job on n1, n2, but srun, which is needed to "
            "reach its hosts, is not in PATH; `unset SLURM_JOB_ID SLURM_JOBID` to run on this machine alone, "
            "or use -H to name hosts that ssh can reach");
  EXPECT_EQ(hosts({"-H", "n3"})->slurm_job, "");
  const Variables here{{{"SLURM_JOB_NODELIST", "localhost"}}};
  EXPECT_EQ(hosts({})->hosts, std::vector<Host>{{"localhost"}});
  const Variables broken{{{"SLURM_JOB_NODELIST", nullptr}, {"SLURM_NODELIST", nullptr}}};
  EXPECT_THAT(hosts({}).error().message, HasSubstr("`unset SLURM_JOB_ID SLURM_JOBID`"));
}

TEST_F(UnnamedHosts, AreThoseOfTheGridEngineJob) {
  const std::string file = write("pe", "n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n");
  const Variables job{{{"SGE_ROOT", "/x"}, {"ARC", "lx"}, {"JOB_ID", "9"}, {"PE_HOSTFILE", file.c_str()}}};
  EXPECT_EQ(hosts({})->hosts, (std::vector<Host>{{"n1", 4}, {"n2", 2}}));
  EXPECT_EQ(hosts({})->source, "Grid Engine job 9");
  const Variables stray{{{"PE_HOSTFILE", "/nowhere"}}};
  EXPECT_EQ(hosts({}).error().message,
            "PE_HOSTFILE = /nowhere says that this is a Grid Engine job, but the file cannot be "
            "read; outside of Grid Engine, `unset PE_HOSTFILE`");
}

TEST(Mpirun, IsRefusedIfItDoesNotBelongToOpenMpi4) {
  EXPECT_TRUE(check_mpirun_version("/x/mpirun", "mpirun (Open MPI) 4.1.4\n\nReport bugs"));
  const auto error = [](const char* answer) { return check_mpirun_version("/x/mpirun", answer).error().message; };
  EXPECT_EQ(error("mpirun (Open MPI) 5.0.3\n"),
            "no replica could be started: /x/mpirun is from Open MPI 5.0.3, but Open MPI 4.1 is "
            "needed; put that version's folder first in PATH (on Debian: apt install openmpi-bin)");
  EXPECT_THAT(error("HYDRA build details:\n    Version: 4.0.2"), HasSubstr("/x/mpirun is from MPICH,"));
  EXPECT_THAT(error("Intel(R) MPI Library for Linux* OS"), HasSubstr("is from Intel MPI,"));
  EXPECT_THAT(error("?"), HasSubstr("is not from Open MPI,"));
}

TEST(Placement, NamesAHostThatIsGivenByTwoNames) {
  const std::vector<std::string> args = {"-n", "2", "-H", "localhost,127.0.0.1", "train.cfg"};
  EXPECT_EQ(place(*parse_options(args, "")).error().message,
            "hosts localhost and 127.0.0.1 are the same machine (127.0.0.1); name it once, with localhost:N for N "
            "instances on it");
}

TEST(OwnAddress, IsTheOneInTheSubnet) {
  Placement placement = *place(topology(2, 2), std::vector<Host>{{"a"}, {"b"}});
  placement.address_in_subnet = "10.1.0.7";
  EXPECT_EQ(own_address(placement), "10.1.0.7");
  EXPECT_EQ(own_address(*place(topology(2, 2), {})), "127.0.0.1");
  EXPECT_EQ(listening_address("10.1.0.7"), "10.1.0.7");
  EXPECT_EQ(listening_address("a-name"), "0.0.0.0") << "which other hosts may resolve differently";
}

TEST(TopologyTable, LooksAsPoprunPrintsIt) {
  EXPECT_EQ(topology_table(*place(topology(8, 2), {})),
            R"( ===========================================
|              poprun topology              |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| ILDs      |               0               |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------
)");
}

TEST(TopologyTable, WidensCellsForLongNamesAndShowsEveryDomain) {
  const std::vector<Host> hosts = {{"a-long-host-name"}, {"b"}};
  EXPECT_EQ(topology_table(*place(topology(4, 4, 32), hosts)),
            R"( ===================================================
|                  poprun topology                  |
|===================================================|
| hosts     | a-long-host-name  |         b         |
|-----------|---------------------------------------|
| ILDs      |         0         |         1         |
|-----------|---------------------------------------|
| instances |    0    |    1    |    2    |    3    |
|-----------|---------------------------------------|
| replicas  |    0    |    1    |    2    |    3    |
 ---------------------------------------------------
)");
}

TEST(TopologyTable, CountsDomainsAsLargeAsTheDevicesAre) {
  Placement placement = *place(topology(4, 1), {});
  placement.ipus_per_link_domain = 2;
  EXPECT_THAT(topology_table(placement), HasSubstr("| ILDs      |   0   |   1   |"));
}

TEST(TopologyTable, OfOneReplicaHoldsItsTitle) {
  EXPECT_EQ(topology_table(*place(topology(1, 1), {})),
            R"( =======================
|    poprun topology    |
|=======================|
| hosts     | localhost |
|-----------|-----------|
| ILDs      |     0     |
|-----------|-----------|
| instances |     0     |
|-----------|-----------|
| replicas  |     0     |
 -----------------------
)");
}

}  // namespace
}  // namespace poprun::launcher
