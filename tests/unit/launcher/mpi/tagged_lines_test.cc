#include "launcher/mpi/tagged_lines.h"

#include <gmock/gmock.h>

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TagReader, SplitsMpirunsTagFromTheLine) {
  TagReader reader;
  EXPECT_THAT(reader.take("[1,3]<stdout>:hello").lines, ElementsAre(TaggedLine{3, false, "hello"}));
  EXPECT_THAT(reader.take("[12,0]<stderr>:").lines, ElementsAre(TaggedLine{0, true, ""}));
}

TEST(TagReader, LeavesMpirunsOwnLinesAlone) {
  TagReader reader;
  for (const char* line : {"", "[host:12] mca: bad", "[1,x]<stdout>:a", "[1,2]<stdlog>:a", "text [1,2]<stdout>:a"}) {
    const TagReader::Output output = reader.take(line);
    EXPECT_EQ(output.untagged, line);
    EXPECT_THAT(output.lines, IsEmpty());
  }
}

TEST(TagReader, JoinsALongLineThatMpirunCutIntoPieces) {
  TagReader reader;
  const std::string piece(4096, 'x');
  EXPECT_THAT(reader.take("[1,1]<stdout>:" + piece + "[1,1]<stdout>:" + piece).lines,
              ElementsAre(TaggedLine{1, false, piece + piece}));
}

TEST(TagReader, KeepsHalfALineUntilItsEndComes) {
  TagReader reader;
  EXPECT_THAT(reader.take("[1,0]<stdout>:half[1,1]<stdout>:whole").lines, ElementsAre(TaggedLine{1, false, "whole"}));
  EXPECT_THAT(reader.take("[1,0]<stdout>: done").lines, ElementsAre(TaggedLine{0, false, "half done"}));
}

TEST(ReplicaLine, ReadsTheTagOfTheSource) {
  const auto line = parse_replica_line("[replica 13 @ node-1.x] W slow");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->replica, 13U);
  EXPECT_EQ(line->level, 'W');
}

TEST(ReplicaLine, IsNothingElse) {
  for (const char* text :
       {"", "[replica", "[replica 1]", "[replica 1 @ h]", "[replica 1 @ h] ", "[replica 1 @ h] X no",
        "[replica x @ h] I no", "[instance 1 @ h] I no", "replica 1 @ h] I no", "[replica 1 @ h] Info"}) {
    EXPECT_FALSE(parse_replica_line(text)) << text;
  }
}

TEST(MpirunNotices, FindTheKilledRank) {
  MpirunNotices notices;
  notices.take("--------------------------------------");
  notices.take("Primary job  terminated normally, but 1 process returned");
  notices.take("a non-zero exit code. Per user-direction, the job has been aborted.");
  EXPECT_EQ(notices.findings().rank_end, std::nullopt);
  notices.take("mpirun noticed that process rank 5 with PID 0 on node vm exited on signal 9 (Killed).");
  EXPECT_EQ(notices.findings().rank_end, (RankEnd{5, 9, 0}));
}

TEST(MpirunNotices, FindTheRankThatExited) {
  MpirunNotices notices;
  notices.take("  Process name: [[19389,1],2]");
  EXPECT_EQ(notices.findings().rank_end, std::nullopt);
  notices.take("  Exit code:    7");
  EXPECT_EQ(notices.findings().rank_end, (RankEnd{2, 0, 7}));
}

TEST(MpirunNotices, FindWhatAHostCannotStart) {
  MpirunNotices missing;
  for (const char* line : {"----", "mpirun was unable to launch the specified application as it could not access",
                           "or execute an executable:", "", "Executable: /x/replica", "Node: n1", "----"}) {
    missing.take(line);
  }
  EXPECT_EQ(missing.findings().start_failure, (StartFailure{"n1", "/x/replica", ""}));

  MpirunNotices full;
  full.take("Error: system limit exceeded on number of processes that can be started");
  full.take("Node: n2");
  EXPECT_EQ(full.findings().start_failure,
            (StartFailure{"n2", "", "system limit exceeded on number of processes that can be started"}));
}

TEST(MpirunNotices, FindTheHostThatWasLost) {
  MpirunNotices notices;
  notices.take("  HNP daemon   : [[23813,0],0] on node node0");
  EXPECT_EQ(notices.findings(), MpirunFindings{});
  notices.take("  Remote daemon: [[23813,0],2] on node node2");
  EXPECT_EQ(notices.findings().lost_node, "node2");
}

TEST(MpirunNotices, TellWhyNothingStarted) {
  MpirunNotices daemon;
  daemon.take("bash: line 1: orted: command not found");
  daemon.take("ORTE was unable to reliably start one or more daemons.");
  EXPECT_THAT(daemon.essential(), HasSubstr("apt install openmpi-bin (bash: line 1: orted:"));
  EXPECT_FALSE(daemon.misses_a_daemon());

  MpirunNotices host;
  host.take("Warning: something");
  host.take("ssh: Could not resolve hostname nowhere: Name or service not known");
  host.take("ORTE was unable to reliably start one or more daemons.");
  EXPECT_EQ(host.essential(), "ssh: Could not resolve hostname nowhere: Name or service not known");
  EXPECT_FALSE(host.misses_a_daemon()) << "the reason is known, and the host";

  MpirunNotices unnamed;
  unnamed.take("ORTE was unable to reliably start one or more daemons.");
  EXPECT_TRUE(unnamed.misses_a_daemon());

  MpirunNotices folder;
  for (const char* line : {"----", "A call to mkdir was unable to create the desired directory:", "",
                           "  Directory: /proc/x", "  Error:     Permission denied", "----", "----", "It failed."}) {
    folder.take(line);
  }
  EXPECT_EQ(folder.essential(),
            "A call to mkdir was unable to create the desired directory: Directory: /proc/x "
            "Error:     Permission denied");

  MpirunNotices option;
  option.take("mpirun: Error: unknown option \"--nosuch\"");
  option.take("Type 'mpirun --help' for usage.");
  EXPECT_EQ(option.essential(), "mpirun: Error: unknown option \"--nosuch\"");
  EXPECT_TRUE(option.refuses_arguments());

  EXPECT_EQ(MpirunNotices{}.essential(), "");
}

TEST(MpirunNotices, PassOverWarningsOnTheWayToTheCause) {
  MpirunNotices notices;
  for (const char* line :
       {"----", "A deprecated MCA variable value was specified in the environment or", "on the command line.", "----",
        "----", "All nodes which are allocated are already filled.", "----"}) {
    notices.take(line);
  }
  EXPECT_EQ(notices.essential(), "All nodes which are allocated are already filled.");
}

TEST(MpirunNotices, FindTheHostThatHasNoDaemon) {
  MpirunNotices notices;
  notices.take("poprun-emu: host node1 says: Warning: Permanently added 'node1'");
  EXPECT_EQ(notices.findings(), MpirunFindings{});
  notices.take("poprun-emu: no start on host node1: it ended: bash: sh: command not found");
  EXPECT_EQ(notices.findings().start_failure,
            (StartFailure{"node1", "", "it ended: bash: sh: command not found", true}));
}

TEST(MpirunNotices, QuoteTheHostWhereADaemonFails) {
  MpirunNotices notices;
  notices.take("poprun-emu: host node1 says: orted: error while loading shared libraries: libx.so");
  notices.take("ORTE was unable to reliably start one or more daemons.");
  EXPECT_EQ(notices.essential(), "host node1: orted: error while loading shared libraries: libx.so");
  EXPECT_TRUE(notices.misses_a_daemon()) << "the host may be down, too";
}

}  // namespace
}  // namespace poprun::launcher
