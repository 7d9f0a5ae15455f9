#include "launcher/placement/hosts.h"

#include <gmock/gmock.h>

namespace poprun::launcher::hosts_test {
namespace {

using ::testing::HasSubstr;
using Hosts = std::vector<Host>;

std::string error_of(std::string_view list) {
  const auto hosts = parse_host_list(list);
  return hosts ? "no error" : hosts.error().message;
}

TEST(HostList, ReadsNamesSlotsAndRanges) {
  EXPECT_EQ(*parse_host_list("node0,node1:4"), (Hosts{{"node0", 0}, {"node1", 4}}));
  EXPECT_EQ(*parse_host_list("host[0-2,4]"), (Hosts{{"host0"}, {"host1"}, {"host2"}, {"host4"}}));
  EXPECT_EQ(*parse_host_list("n[08-10]-ib:2,x.y"), (Hosts{{"n08-ib", 2}, {"n09-ib", 2}, {"n10-ib", 2}, {"x.y"}}));
  EXPECT_EQ(*parse_host_list("a, b:2 ,c"), (Hosts{{"a"}, {"b", 2}, {"c"}}));
  EXPECT_EQ(*parse_host_list("r[0-1]n[1-2]"), (Hosts{{"r0n1"}, {"r0n2"}, {"r1n1"}, {"r1n2"}}));
  EXPECT_EQ(*parse_host_list("bob@n[0-1]:2"), (Hosts{{"n0", 2, "bob"}, {"n1", 2, "bob"}}));
}

TEST(HostList, SaysWhatIsWrong) {
  EXPECT_EQ(
      error_of("a,,b"),
      "'' is not a host name; write lists such as node0,node1:4 or node[0-2,4], with user@ before a host if needed");
  EXPECT_EQ(error_of("a,a:2"), "host a is listed twice; use a:N for N instances on it");
  EXPECT_EQ(error_of("a:0"), "a:0: the slots after the colon must be an integer from 1 to 65536");
  EXPECT_THAT(error_of("a[3-1]"), HasSubstr("[3-1] is not a list of ascending ranges"));
  EXPECT_THAT(error_of("a[0-99999]"), HasSubstr("not a list of ascending ranges of at most 4096"));
  EXPECT_THAT(error_of("a[0-2"), HasSubstr("is not a host name"));
  EXPECT_THAT(error_of("a;reboot"), HasSubstr("is not a host name"));
  EXPECT_THAT(error_of("-x"), HasSubstr("is not a host name"));
  EXPECT_THAT(error_of("@a"), HasSubstr("'@a' is not a host name"));
  EXPECT_THAT(error_of("a b@c"), HasSubstr("is not a host name"));
  EXPECT_EQ(error_of("fe80::1"),
            "'fe80::1' is an IPv6 address, which is not supported; give the host's name or IPv4 "
            "address");
  EXPECT_THAT(error_of(""), HasSubstr("is not a host name"));
}

TEST(Hostfile, ReadsOneHostALineWithSlotsAndComments) {
  EXPECT_EQ(*parse_hostfile("f", "# two\nnode0 slots=4\n\n  node1   # last\r\n"), (Hosts{{"node0", 4}, {"node1"}}));
}

TEST(Hostfile, ReadsWhatOpenMpiWritesThere) {
  EXPECT_EQ(*parse_hostfile("f", "bob@a slots=2 max_slots=4\nb max-slots=3\nc slots = 5 username=al\n"),
            (Hosts{{"a", 2, "bob"}, {"b", 3}, {"c", 5, "al"}}));
  const auto error = [](const char* text) { return parse_hostfile("f", text).error().message; };
  EXPECT_EQ(error("a slots=5 max_slots=4\n"), "f:1: slots=5 is more than max_slots=4");
  EXPECT_EQ(error("a slots=x\n"), "f:1: slots=x: slots must be an integer from 1 to 65536");
}

TEST(Hostfile, AddsTheSlotsOfAHostThatIsListedAgain) {
  EXPECT_EQ(*parse_hostfile("f", "a\na\nb\na\n"), (Hosts{{"a", 3}, {"b"}}));
  EXPECT_EQ(*parse_hostfile("f", "a slots=2\na slots=4\n"), (Hosts{{"a", 6}}));
}

TEST(Hostfile, ReadsWhatMpichWritesThere) {
  EXPECT_EQ(*parse_hostfile("f", "a:2\nb.x:4 # last\n"), (Hosts{{"a", 2}, {"b.x", 4}}));
  EXPECT_THAT(parse_hostfile("f", "a:0\n").error().message, HasSubstr("f:1: a:0: the slots after"));
}

TEST(Hostfile, SaysWhichLineIsWrong) {
  EXPECT_EQ(parse_hostfile("f", "a\nb max=3\n").error().message,
            "f:2: 'max=3' is not supported; a line has the form `[user@]HOST [slots=N] [max_slots=N]` or "
            "`HOST:N`");
  EXPECT_EQ(parse_hostfile("f", "node0\r\n")->at(0).name, "node0");
  EXPECT_EQ(parse_hostfile("f", "# none\n").error().message, "f: the file lists no hosts");
}

TEST(SameHost, IgnoresADomainThatOnlyOneNameHas) {
  EXPECT_TRUE(same_host("node0", "node0.example.org"));
  EXPECT_TRUE(same_host("node0.example.org", "node0"));
  EXPECT_TRUE(same_host("node0.example.org", "node0.example.org"));
  EXPECT_FALSE(same_host("node0.example.org", "node0.example.com"));
  EXPECT_FALSE(same_host("node0", "node01"));
  EXPECT_FALSE(same_host("10.77.0.10", "10.77.0.11"));
  EXPECT_FALSE(same_host("10", "10.77.0.11"));
}

bool is_here(const std::string& name) {
  return look_up(Hosts{{name}}).at(0).is_this_machine;
}

TEST(ThisMachine, IsKnownByItsNamesAndAddresses) {
  EXPECT_TRUE(is_here("localhost"));
  EXPECT_TRUE(is_here("127.0.0.1"));
  EXPECT_TRUE(is_here("127.0.1.1"));
  EXPECT_TRUE(is_here(machine_name()));
  EXPECT_TRUE(is_here(machine_name() + ".example.org"));
  EXPECT_FALSE(is_here("another-" + machine_name()));
  EXPECT_FALSE(is_here("192.0.2.1"));
}

TEST(ThisMachine, IsKnownByTheNameThatSlurmHasForIt) {
  setenv("SLURMD_NODENAME", "n17", 1);
  const std::vector<KnownHost> known = known_by_name(Hosts{{"n17"}, {"n18"}});
  unsetenv("SLURMD_NODENAME");
  EXPECT_TRUE(known[0].is_this_machine);
  EXPECT_FALSE(known[1].is_this_machine);
}

}  // namespace
}  // namespace poprun::launcher::hosts_test
