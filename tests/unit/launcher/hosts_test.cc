#include "launcher/placement/hosts.h"

#include <gmock/gmock.h>

namespace poprun::launcher {
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
  EXPECT_EQ(*parse_host_list("n[08-10]-ib:2,x.y"),
            (Hosts{{"n08-ib", 2}, {"n09-ib", 2}, {"n10-ib", 2}, {"x.y"}}));
  EXPECT_EQ(*parse_host_list("bob@n[0-1]:2"), (Hosts{{"n0", 2, "bob"}, {"n1", 2, "bob"}}));
}

TEST(HostList, SaysWhatIsWrong) {
  EXPECT_EQ(
      error_of("a,,b"),
      "'' is not a host name; lists look like node0,node1:4 or node[0-2,4], with user@ in front "
      "where needed");
  EXPECT_EQ(error_of("a,a:2"), "host a is listed twice; use a:N for N instances on it");
  EXPECT_EQ(error_of("a:0"), "a:0: slots after the colon must be an integer from 1 to 65536");
  EXPECT_THAT(error_of("a[3-1]"), HasSubstr("[3-1] is not an ascending range"));
  EXPECT_THAT(error_of("a[0-99999]"), HasSubstr("not an ascending range of at most 4096"));
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
  EXPECT_EQ(*parse_hostfile("f", "# two\nnode0 slots=4\n\n  node1   # last\r\n"),
            (Hosts{{"node0", 4}, {"node1"}}));
}

TEST(Hostfile, ReadsWhatOpenMpiWritesThere) {
  EXPECT_EQ(
      *parse_hostfile("f", "bob@a slots=2 max_slots=4\nb max-slots=3\nc slots = 5 username=al\n"),
      (Hosts{{"a", 2, "bob"}, {"b", 3}, {"c", 5, "al"}}));
  const auto error = [](const char* text) { return parse_hostfile("f", text).error().message; };
  EXPECT_EQ(error("a slots=5 max_slots=4\n"), "f:1: slots=5 is more than max_slots=4");
  EXPECT_EQ(error("a slots=x\n"), "f:1: slots=x: slots must be an integer from 1 to 65536");
}

TEST(Hostfile, SaysWhichLineIsWrong) {
  EXPECT_EQ(parse_hostfile("f", "a\nb max=3\n").error().message,
            "f:2: 'max=3' is not supported; a line is `[user@]HOST [slots=N] [max_slots=N]`");
  EXPECT_THAT(parse_hostfile("f", "a\na\n").error().message,
              HasSubstr("f:2: host a is listed twice"));
  EXPECT_EQ(parse_hostfile("f", "\xEF\xBB\xBFnode0\r\n")->at(0).name, "node0");
  EXPECT_EQ(parse_hostfile("f", "# none\n").error().message, "f: lists no host");
}

TEST(ThisMachine, IsKnownByItsNames) {
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_TRUE(is_this_machine(machine_name()));
  EXPECT_FALSE(is_this_machine("another-" + machine_name()));
}

}  // namespace
}  // namespace poprun::launcher
