#include "launcher/placement/placement.h"

#include <gmock/gmock.h>

#include "launcher/placement/own_address.h"

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
  EXPECT_EQ(
      placement.error().message,
      "8 instances need 8 slots, but the 2 listed hosts have 3; list more hosts or slots, omit "
      "the slots to spread evenly, or lower --num-instances");
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
            "bob@a and b without a user: mpirun logs in as one user everywhere; give all hosts the "
            "same user, or none and set `User` for each in ~/.ssh/config");
}

TEST(Subnet, NeedsAnAddressOfThisMachine) {
  EXPECT_EQ(own_address_in("127.0.0.0/8"), "127.0.0.1");
  EXPECT_TRUE(own_address_in("0.0.0.0/0"));
  const auto none = own_address_in("255.255.255.255/32");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message,
              AllOf(StartsWith("--host-subnet = 255.255.255.255/32: " + machine_name() +
                               " has no address in it; its addresses: "),
                    HasSubstr("127.0.0.1")));
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
