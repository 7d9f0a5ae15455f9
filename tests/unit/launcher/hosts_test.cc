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
}

TEST(HostList, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("a,,b"), "'' is no host name; lists look like node0,node1:4 or node[0-2,4]");
  EXPECT_EQ(error_of("a,a:2"), "host a is listed twice; use a:N for N instances on it");
  EXPECT_EQ(error_of("a:0"), "a:0: slots after the colon must be an integer from 1 to 65536");
  EXPECT_THAT(error_of("a[3-1]"), HasSubstr("[3-1] is no rising range"));
  EXPECT_THAT(error_of("a[0-99999]"), HasSubstr("no rising range of at most 4096"));
  EXPECT_THAT(error_of("a[0-2"), HasSubstr("is no host name"));
  EXPECT_THAT(error_of("a;reboot"), HasSubstr("is no host name"));
  EXPECT_THAT(error_of("-x"), HasSubstr("is no host name"));
  EXPECT_THAT(error_of(""), HasSubstr("is no host name"));
}

TEST(Hostfile, ReadsOneHostALineWithSlotsAndComments) {
  EXPECT_EQ(*parse_hostfile("f", "# two\nnode0 slots=4\n\n  node1   # last\r\n"),
            (Hosts{{"node0", 4}, {"node1"}}));
}

TEST(Hostfile, SaysWhichLineIsWrong) {
  EXPECT_EQ(parse_hostfile("f", "a\nb max=3\n").error().message,
            "f:2: a line is `HOST` or `HOST slots=N`");
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
