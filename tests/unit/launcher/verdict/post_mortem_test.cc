#include "launcher/verdict/post_mortem.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "launcher/verdict/slow_replicas.h"
#include "tests/unit/launcher/joined_job.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr double kQuiet = 15;  ///< Longer than from second 10, when all join, to second 21.

class PostMortem : public JoinedJob {
 protected:
  static JobState nobody_joined() {
    proto::Topology topology;
    topology.set_num_replicas(1);
    topology.set_num_instances(1);
    return JobState(*place(topology, {}), 0);
  }

  static proto::Failure failure(std::uint32_t instance, std::uint32_t code, const std::string& message) {
    proto::Failure failure;
    failure.set_instance(instance);
    failure.set_replica(instance);
    failure.set_exit_code(code);
    failure.set_message(message);
    return failure;
  }
};

TEST_F(PostMortem, KnowsTheHostsThatARestartDoesWithout) {
  JobState state = joined();
  EXPECT_THAT(lost_hosts(state, 12, kQuiet), IsEmpty());
  beat(state, 0, 3, "", 20);
  beat(state, 1, 3, "", 20);
  beat(state, 2, 3, "", 20);
  EXPECT_THAT(lost_hosts(state, 21, kQuiet), IsEmpty());  // A single process of node1 is silent.
  beat(state, 0, 3, "", 30);
  EXPECT_THAT(lost_hosts(state, 31, kQuiet), ElementsAre("node1"));
  EXPECT_THAT(lost_hosts(state, 60, kQuiet), IsEmpty());  // All hosts are silent: this machine is at fault.

  JobState starting(*place(
                        [] {
                          proto::Topology topology;
                          topology.set_num_replicas(4);
                          topology.set_num_instances(4);
                          topology.set_ipus_per_replica(1);
                          return topology;
                        }(),
                        std::vector<Host>{{"node0"}, {"node1"}}),
                    0);
  EXPECT_THAT(lost_hosts(starting, 60, kQuiet), IsEmpty());  // No instance has joined yet.
  JobState unanswered = starting;
  unanswered.hosts_do_not_answer({"node1"});
  EXPECT_THAT(lost_hosts(unanswered, 60, kQuiet), ElementsAre("node1"));
  EXPECT_TRUE(starting.join(request(0), 59));
  EXPECT_TRUE(starting.join(request(1), 59));
  EXPECT_THAT(lost_hosts(starting, 60, kQuiet), IsEmpty());  // node1 still has time to join.
  JobState in_vain = starting;
  in_vain.end_joining();
  EXPECT_THAT(lost_hosts(in_vain, 60, kQuiet), ElementsAre("node1"));
  MpirunFindings found;
  found.start_failure = StartFailure{.node = "node1.cluster", .lacks = "", .problem = "no ssh"};
  starting.mpirun_found(found);
  EXPECT_THAT(lost_hosts(starting, 60, kQuiet), ElementsAre("node1"));
}

TEST_F(PostMortem, NamesTheKilledReplicaAndWhatTheOthersDid) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 3U}) {
    beat(state, replica, 123, "all-reduce of 8 tensors", 20);
  }
  beat(state, 2, 122, "conv1", 20);
  state.leave(2, false);
  state.leave(0, false);  // A consequence: mpirun ends the other instances.
  state.mpirun_found({.rank_end = RankEnd{2, 9, 0}});

  const auto verdict = name_cause(state, 21, kQuiet);

  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->exit_code, 75);
  EXPECT_EQ(verdict->first_line,
            "replica 2 (instance 2, host node1, pid 102) was killed by signal 9 (SIGKILL) at step "
            "122 or later (conv1 at its last heartbeat, 1.0 s ago)");
  EXPECT_THAT(verdict->more, ElementsAre("  meanwhile replicas 0, 1, 3 were at step 123 or later (all-reduce of 8 "
                                         "tensors for 1.0 s at their last heartbeat, 1.0 s ago)"));
}

TEST_F(PostMortem, WithoutMpirunsWordTheFirstBrokenHeartbeatIsTheCause) {
  JobState state = joined();
  beat(state, 1, 5, "finishing", 20);
  state.leave(1, false);
  state.leave(0, false);

  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "the heartbeat connections of host node0 (replicas 0, 1) broke, first that of replica 1 "
            "(instance 1, host node0, pid 101), at step 5 or later (finishing at its last "
            "heartbeat, 1.0 s ago)");
  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 75);
}

TEST_F(PostMortem, PassesAnExitCodeOn) {
  JobState state = joined();
  state.mpirun_found({.rank_end = RankEnd{3, 0, 7}});

  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 7);
  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replica 3 (instance 3, host node1, pid 103) exited with code 7 before its first heartbeat");
}

TEST_F(PostMortem, AReplicasOwnReasonComesFirst) {
  JobState state = joined();
  state.leave(1, false);
  state.mpirun_found({.rank_end = RankEnd{1, 0, 75}});
  state.failure(failure(1, 75, "a peer is gone"), 20);
  state.failure(failure(2, 69, "the data server at h:1 did not answer for 3 s"), 20);

  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 69);
  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replica 2 (instance 2, host node1, pid 102) before its first heartbeat: the data server "
            "at h:1 did not answer for 3 s");
}

TEST_F(PostMortem, AMissedPeerIsAConsequenceWhereAnInstanceWasLost) {
  JobState state = joined();
  state.failure(failure(0, 75, "replica 1 did not come to the all-reduce"), 20);
  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line, HasSubstr("replica 0 (instance 0"));

  state.leave(1, false);
  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line, HasSubstr("replica 1 (instance 1"));
}

// A host has no replica program. mpirun ends the other replicas first, which breaks their heartbeat connections.
TEST_F(PostMortem, WhatMpirunCannotStartIsTheCauseOfBrokenHeartbeats) {
  JobState state = joined();
  state.leave(0, false);
  state.mpirun_found({.start_failure = StartFailure{"node1", "/x/poprun-emu-replica", ""}});

  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 69);
  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "host node1 has no executable /x/poprun-emu-replica; install the same "
            "poprun-emu at the same path on every host");
}

TEST_F(PostMortem, NamesTheHostThatMpirunLost) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U, 3U}) {
    beat(state, replica, 9, "conv2", replica < 2 ? 20.5 : 10.5);
  }
  state.leave(0, false);
  state.mpirun_found({.lost_node = "node1.cluster"});

  const auto verdict = name_cause(state, 21, 5);

  EXPECT_EQ(verdict->exit_code, 75);
  EXPECT_EQ(verdict->first_line,
            "host node1.cluster (replicas 2, 3) is down or cut off: mpirun lost the connection to "
            "it; its last heartbeat came 10.5 s ago");
  EXPECT_THAT(verdict->more, ElementsAre(HasSubstr("there replicas 2, 3 were at step 9 or later"),
                                         HasSubstr("meanwhile replicas 0, 1 were at step 9")));
}

// Replicas that wait for each other in the same exchange are not to blame: the network between them fails.
TEST_F(PostMortem, BlamesNobodyWhoWaitsInTheSameExchange) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U, 3U}) {
    beat(state, replica, 9, "all-reduce of 8 tensors", 20);
    beat(state, replica, 9, "all-reduce of 8 tensors", 22);
  }
  proto::Failure waited = failure(3, 75, "all-reduce 7: replicas 0-1 did not arrive within 20 s");
  waited.add_missing(0);
  waited.add_missing(1);
  waited.mutable_progress()->set_step(9);
  waited.mutable_progress()->set_activity("all-reduce of 8 tensors");
  waited.mutable_progress()->set_activity_seconds(20);
  state.failure(waited, 22);

  const auto verdict = name_cause(state, 22.5, 5);

  EXPECT_EQ(verdict->instance, std::nullopt);
  EXPECT_EQ(verdict->first_line,
            "the exchange between replica 3 (instance 3, host node1, pid 103) and host node0 "
            "(replicas 0, 1) is making no progress: all-reduce 7: replicas 0-1 did not arrive within 20 "
            "s; yet all of these replicas are waiting in it");

  // A replica that has not reached the exchange is to blame.
  JobState other = joined();
  beat(other, 0, 9, "all-reduce of 8 tensors", 22);
  beat(other, 1, 9, "conv2", 22);
  other.failure(waited, 22);
  EXPECT_THAT(name_cause(other, 22.5, 5)->first_line,
              HasSubstr("replica 1 (instance 1, host node0, pid 101) is missing"));
}

TEST_F(PostMortem, KnowsExactlyWhereAReplicaWasThatSaidSo) {
  JobState state = joined();
  beat(state, 1, 7, "conv1", 19.9);
  proto::Failure said = failure(1, 70, "call 17 differs");
  said.mutable_progress()->set_step(9);
  said.mutable_progress()->set_activity("barrier");
  state.failure(said, 20);
  EXPECT_EQ(name_cause(state, 20, kQuiet)->first_line,
            "replica 1 (instance 1, host node0, pid 101) at step 9 (barrier): call 17 differs");
}

/// Sends a heartbeat with the counters of one connection.
void beat_link(JobState& state, std::uint32_t instance, const std::string& local, const std::string& peer,
               std::uint64_t segments, std::uint64_t retransmits, double now) {
  proto::Beat beat;
  beat.set_instance(instance);
  proto::TcpLink& link = *beat.add_links();
  link.set_local(local);
  link.set_peer(peer);
  link.set_segments(segments);
  link.set_retransmits(retransmits);
  state.beat(beat, now);
}

TEST_F(PostMortem, NamesTheNetworkThatLosesPacketsAndNotWhoIsMissed) {
  JobState state = joined();
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 1'000'000, 5, 18);
  beat_link(state, 2, "10.0.0.2", "10.0.0.1", 1'000'000, 5, 18);
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 1'000'020, 13, 20);
  beat_link(state, 2, "10.0.0.2", "10.0.0.1", 1'000'010, 9, 21);
  proto::Failure waited = failure(2, 75, "all-reduce 7: replica 0 did not arrive within 20 s");
  waited.add_missing(0);
  state.failure(waited, 22);
  beat_link(state, 1, "10.0.0.1", "10.0.0.2", 0, 0, 22);

  const auto verdict = name_cause(state, 22, 5);

  EXPECT_EQ(verdict->first_line,
            "the network between node0 and node1 is losing packets: 12 of 30 segments had to be sent "
            "again in the last 2 s");
  EXPECT_THAT(verdict->more[0], StartsWith("  as a result: replica 0 (instance 0, host node0"));
  EXPECT_EQ(verdict->instance, std::nullopt);
}

TEST_F(PostMortem, ABusyNetworkIsNoCause) {
  JobState state = joined();
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 1'000'000, 5, 18);
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 1'010'000, 105, 20);
  EXPECT_THAT(state.losses().found(21), IsEmpty());
}

TEST_F(PostMortem, AConnectionThatEndsIsNoLoss) {
  JobState state = joined();
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 1'000'000, 5, 18);
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 400'000, 15, 20);
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 410'000, 3, 21);
  EXPECT_THAT(state.losses().found(21), IsEmpty());
  beat_link(state, 0, "10.0.0.1", "10.0.0.2", 410'010, 13, 22);
  EXPECT_THAT(state.losses().found(22), ::testing::SizeIs(1)) << "compared with what was left";
}

TEST(PacketLosses, NameTheHostThatTheyHaveInCommon) {
  const std::vector<PacketLoss> losses = {{"node0", "node2", 50, 20, 9}, {"node2", "node1", 40, 10, 12}};
  EXPECT_EQ(describe(losses),
            "the network between node2 and node0, node1 is losing packets: 30 of 90 segments had to be "
            "sent again in the last 12 s");
}

TEST_F(PostMortem, ExcusesThoseWhoWaitForAReplicaThatWaitsForData) {
  JobState state = joined();
  DataWaits waits("node0:4000", 600);
  const auto wait = [&](double seconds, double now) {
    proto::Beat beat;
    beat.set_instance(1);
    beat.add_replicas()->set_replica(1);
    beat.mutable_replicas(0)->set_data_wait_seconds(seconds);
    state.beat(beat, now);
  };
  EXPECT_FALSE(waits.excuse(state));
  wait(0.5, 20.5);
  EXPECT_FALSE(waits.excuse(state));
  EXPECT_EQ(waits.news(state), std::nullopt);
  wait(2, 22);
  EXPECT_TRUE(waits.excuse(state));
  EXPECT_EQ(waits.news(state), std::nullopt);
  wait(6, 26);
  EXPECT_EQ(waits.news(state),
            "note: replica 1 has been waiting for the data server node0:4000 for 6 s; replicas give up after "
            "600 s (--hostio-timeout)");
  wait(30, 50);
  EXPECT_EQ(waits.news(state), std::nullopt);
  wait(66, 86);
  EXPECT_THAT(*waits.news(state), HasSubstr("for 66 s"));
  wait(70, 90);
  EXPECT_EQ(waits.news(state), std::nullopt);
  wait(0, 91);
  EXPECT_FALSE(waits.excuse(state));
  EXPECT_EQ(waits.news(state), "note: the data server node0:4000 has recovered; it kept replicas waiting for 70 s");
  EXPECT_EQ(waits.news(state), std::nullopt);
  wait(700, 800);  // The replica should have given up after 600 s.
  EXPECT_FALSE(waits.excuse(state));
}

TEST_F(PostMortem, ADataServerDoesNotAnswerAgainWhereAReplicaThatWaitedIsGone) {
  for (const bool said_why : {false, true}) {
    JobState state = joined();
    DataWaits waits("node0:4000", 600);
    proto::Beat beat;
    beat.set_instance(1);
    beat.add_replicas()->set_replica(1);
    beat.mutable_replicas(0)->set_data_wait_seconds(10);
    state.beat(beat, 20);
    EXPECT_NE(waits.news(state), std::nullopt);
    if (said_why) {
      state.failure(failure(1, 69, "data server node0:4000 did not answer for 600 s"), 21);
      beat.mutable_replicas(0)->set_data_wait_seconds(0);
      state.beat(beat, 21);
    } else {
      state.leave(1, false);
    }
    EXPECT_EQ(waits.news(state), std::nullopt);
    EXPECT_EQ(waits.news(state), std::nullopt);
  }
}

TEST_F(PostMortem, ABadRequestIsNotAReplicasFault) {
  JobState state = joined();
  state.failure(failure(0, 86, "out of memory: needs 2 B, had 1 B\nalways live:\n  1 B"), 20);

  const auto verdict = name_cause(state, 21, kQuiet);

  EXPECT_EQ(verdict->exit_code, 86);
  EXPECT_EQ(verdict->first_line, "out of memory: needs 2 B, had 1 B");
  EXPECT_THAT(verdict->more, ElementsAre("always live:", "  1 B"));
}

TEST_F(PostMortem, NamesAllReplicasOfAnInstance) {
  JobState state = joined(2);
  beat(state, 2, 7, "conv1", 20, 2);
  state.mpirun_found({.rank_end = RankEnd{1, 9, 0}});

  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line, HasSubstr("replicas 2-3 (instance 1, host node0, pid 101)"));
}

TEST_F(PostMortem, ThereIsNoneWithoutTrouble) {
  JobState state = joined();
  state.leave(0, true);
  EXPECT_FALSE(state.any_trouble());
  EXPECT_FALSE(name_cause(state, 21, kQuiet));
}

TEST_F(PostMortem, FindsTheInstanceThatFellSilent) {
  JobState state = joined();
  beat(state, 0, 9, "all-reduce of 8 tensors", 19);
  beat(state, 1, 9, "all-reduce of 8 tensors", 19);
  beat(state, 2, 8, "conv2", 12);
  state.leave(3, true);
  EXPECT_THAT(state.silent(14, 3), IsEmpty());
  EXPECT_THAT(state.silent(19, 3), ElementsAre(2));

  const Verdict verdict = silence_verdict(state, state.silent(19, 3), 19.1);

  EXPECT_EQ(verdict.first_line,
            "replica 2 (instance 2, host node1, pid 102) sent no heartbeat for 7.1 s, since step 8 "
            "(conv2); is it stopped, or is its host down or cut off?");
  EXPECT_THAT(verdict.more, ElementsAre(HasSubstr("replicas 0, 1 were at step 9")));
}

TEST_F(PostMortem, NamesAllThatFellSilentTogether) {
  JobState state = joined();
  beat(state, 0, 9, "all-reduce of 8 tensors", 31);
  beat(state, 1, 9, "all-reduce of 8 tensors", 31);
  beat(state, 2, 8, "conv2", 20.5);
  beat(state, 3, 8, "conv2", 20);

  const Verdict verdict = silence_verdict(state, state.silent(31, 9), 31);

  EXPECT_EQ(verdict.first_line,
            "host node1 (replicas 2, 3) sent no heartbeat for 11.0 s, since step 8 (conv2); is it "
            "down or cut off?");
  EXPECT_THAT(verdict.more, ElementsAre(HasSubstr("replicas 0, 1 were at step 9")));
}

// After mpirun has lost a host, it ends the replicas that it still reaches.
TEST_F(PostMortem, ASilentHostIsTheCauseOfBrokenHeartbeatsElsewhere) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U, 3U}) {
    beat(state, replica, 9, "all-reduce of 8 tensors", replica < 2 ? 31 : 20);
  }
  state.leave(0, false);
  state.leave(1, false);

  EXPECT_THAT(name_cause(state, 31, 5)->first_line,
              HasSubstr("host node1 (replicas 2, 3) sent no heartbeat for 11.0 s"));
  EXPECT_THAT(name_cause(state, 31, 15)->first_line,
              HasSubstr("the heartbeat connections of host node0 (replicas 0, 1) broke, first that of"));
}

TEST_F(PostMortem, BlamesTheMissingAndNotWhoWaited) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U}) {
    beat(state, replica, 9, "all-reduce of 8 tensors", 30);
  }
  beat(state, 3, 8, "conv2", 28);
  proto::Failure waited = failure(0, 75, "all-reduce 21 ('conv1.weight'): replica 3 did not arrive within 2 s");
  waited.add_missing(3);
  for (const char* call : {"call 18", "call 19", "call 20", "call 21: all-reduce, not done"}) {
    waited.add_recent_calls(call);
  }
  state.failure(waited, 20);
  state.leave(0, false);  // It ended itself.
  state.mpirun_found({.rank_end = RankEnd{0, 0, 75}});

  const auto verdict = name_cause(state, 31, kQuiet);

  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->exit_code, 75);
  EXPECT_EQ(verdict->instance, 3U);
  EXPECT_EQ(verdict->first_line,
            "replica 3 (instance 3, host node1, pid 103) is missing: all-reduce 21 "
            "('conv1.weight'): replica 3 did not arrive within 2 s");
  EXPECT_THAT(verdict->more, ElementsAre("  missing replica 3 was at step 8 or later (conv2 for 1.0 s at its last "
                                         "heartbeat, 3.0 s ago)",
                                         "  meanwhile replicas 0-2 were at step 9 or later (all-reduce of 8 tensors "
                                         "for 1.0 s at their last heartbeat, 1.0 s ago)",
                                         "  last exchanges of replica 0:", "    call 19", "    call 20",
                                         "    call 21: all-reduce, not done"));
}

// mpirun sends SIGCONT before it ends a process, so a stopped process continues for a moment.
TEST_F(PostMortem, SaysWhatTheMissingDidBeforeItWasMissed) {
  JobState state = joined(2);
  beat(state, 3, 8, "conv2", 20, 2);
  proto::Failure waited = failure(0, 75, "barrier 4: replica 3 did not arrive within 2 s");
  waited.add_missing(3);
  state.failure(waited, 20);
  beat(state, 3, 9, "finishing", 29.8, 2);

  const auto verdict = name_cause(state, 30, kQuiet);

  EXPECT_THAT(verdict->first_line, HasSubstr("replica 3 (instance 1, host node0, pid 101) is "));
  EXPECT_EQ(verdict->more[0],
            "  missing replica 3 was at step 8 or later (conv2 for 1.0 s at its last heartbeat, 10.0 s "
            "ago)");
}

TEST_F(PostMortem, NamesTheHostOfAllThatAreMissing) {
  JobState state = joined();
  proto::Failure waited = failure(1, 75, "barrier 4: replicas 2-3 did not arrive within 2 s");
  waited.add_missing(2);
  waited.add_missing(3);
  waited.add_missing(77);  // No such replica.
  state.failure(waited, 20);
  state.leave(1, false);

  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "host node1 (replicas 2, 3) is missing: barrier 4: replicas 2-3 did not arrive within "
            "2 s");
}

TEST_F(PostMortem, ReportsEveryReplicaAndEveryonesExchanges) {
  JobState state = joined();
  beat(state, 0, 9, "all-reduce of 8 tensors", 20);
  beat(state, 2, 8, "conv2", 19);
  state.leave(1, true);
  state.leave(3, false);
  proto::Failure said = failure(0, 70, "call 17 differs");
  said.set_host("node0");
  said.add_recent_calls("call 16: barrier");
  said.add_recent_calls("call 17: all-reduce");
  state.failure(said, 20);
  proto::Failure short_of = failure(2, 69, "too little memory");
  short_of.set_host("node1");
  short_of.set_needed_bytes(7'000);
  short_of.set_had_bytes(5'000);
  state.failure(short_of, 20);
  proto::Failure cut_off = failure(3, 69, "nobody answers");
  cut_off.set_host("node1");
  cut_off.set_address("node0:5000");
  cut_off.add_missing(0);
  cut_off.add_missing(1);
  state.failure(cut_off, 20);

  const std::string report = failure_report(state, {70, "first", {"  more"}, 0}, 21);

  EXPECT_EQ(report,
            "first\n  more\n\nwhat each replica did last:\n"
            "  replica 0 was at step 9 or later (all-reduce of 8 tensors for 1.0 s at its last "
            "heartbeat, 1.0 s ago); host node0, pid 100\n"
            "  replica 1 had only started up; host node0, pid 101, exited\n"
            "  replica 2 was at step 8 or later (conv2 for 1.0 s at its last heartbeat, 2.0 s ago); "
            "host node1, pid 102\n"
            "  replica 3 had only started up; host node1, pid 103, connection lost\n\n"
            "replica 0 on host node0 failed with code 70: call 17 differs\n"
            "  last exchanges of replica 0:\n    call 16: barrier\n    call 17: all-reduce\n\n"
            "replica 2 on host node1 failed with code 69: too little memory\n"
            "  needed: 7000 B, available: 5000 B\n\n"
            "replica 3 on host node1 failed with code 69: nobody answers\n"
            "  missing: replicas 0, 1\n  address: node0:5000\n");
}

TEST_F(PostMortem, ListsWhoDidNotCome) {
  proto::Topology topology;
  topology.set_num_replicas(3);
  topology.set_num_instances(3);
  const std::vector<Host> hosts = {{"node0"}, {"node1"}, {"node2"}};
  JobState state(*place(topology, hosts), 0);
  ASSERT_TRUE(state.join(request(0), 1));

  EXPECT_EQ(absence_verdict(state, 60, "10.0.0.1:5000").first_line,
            "replicas 1, 2 (hosts node1, node2) did not join within 60 s; mpirun reached host node1, but the replica "
            "there did not reach poprun-emu at 10.0.0.1:5000: check that the network between them lets the connection "
            "through (firewall) and carries full-size packets (MTU: `ping -M do -s 1472 node1`), that the host's clock "
            "is right, and that its certificates match");
  EXPECT_EQ(absence_verdict(nobody_joined(), 60, "127.0.0.1:5000").first_line.find("MTU"), std::string::npos)
      << "for replicas on this machine no network is to blame";
  JobState lost = state;
  lost.leave(0, /*orderly=*/false);
  EXPECT_THAT(name_cause(lost, 2, kQuiet)->first_line,
              ::testing::EndsWith("the heartbeat connection broke; replicas 1, 2 (hosts node1, node2) had not joined"));
  state.mpirun_found({.rank_end = RankEnd{2, 9, 0}});
  EXPECT_EQ(name_cause(state, 2, kQuiet)->first_line,
            "replica 2 (instance 2, host node2) was killed by signal 9 (SIGKILL) before it joined "
            "the job");
}

MpirunNotices notices(std::string_view line) {
  MpirunNotices notices;
  notices.take(line);
  return notices;
}

TEST_F(PostMortem, OfMpirunAloneSaysWhyNothingCouldBeStarted) {
  const JobState nobody = nobody_joined();
  const int status = W_EXITCODE(213, 0);

  EXPECT_EQ(mpirun_verdict(nobody, status, {}, "out/logs").exit_code, 69);
  EXPECT_EQ(mpirun_verdict(nobody, status, {}, "out/logs").first_line,
            "no replica could be started: mpirun exited with code 213");
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("not enough slots"), "out/logs").first_line,
            "no replica could be started: not enough slots");
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("unknown option \"-q\""), "out/logs").exit_code, 64);
}

TEST_F(PostMortem, OfMpirunKilledBeforeAnyReplicaSaysThatRunningAgainCanWork) {
  const JobState nobody = nobody_joined();

  const Verdict verdict = mpirun_verdict(nobody, W_EXITCODE(0, 9), {}, "out/logs");

  EXPECT_EQ(verdict.exit_code, 75);
  EXPECT_EQ(verdict.first_line, "no replica could be started: mpirun was killed by signal 9 (SIGKILL)");
}

TEST_F(PostMortem, OfMpirunNamesTheHostsThatDoNotAnswer) {
  JobState nobody = nobody_joined();
  const int status = W_EXITCODE(213, 0);

  nobody.hosts_do_not_answer({"node1"});
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("a daemon failed"), "out/logs").first_line,
            "no replica could be started: node1 does not answer; is it down or cut off? (a daemon "
            "failed)");
  nobody.hosts_do_not_answer({"node1", "node2"});
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("a daemon failed"), "out/logs").first_line,
            "no replica could be started: node1, node2 do not answer; are they down or cut off? (a "
            "daemon failed)");
}

TEST_F(PostMortem, NamesTheHostWithoutADaemonUntilAnInstanceJoins) {
  const MpirunFindings found{.start_failure = StartFailure{"node1", "", "the remote shell ended", /*no_daemon=*/true}};
  JobState nobody = nobody_joined();
  nobody.mpirun_found(found);
  EXPECT_TRUE(lacks_daemon(nobody));
  EXPECT_EQ(mpirun_verdict(nobody, 0, {}, "out/logs").exit_code, 69);
  EXPECT_EQ(mpirun_verdict(nobody, 0, {}, "out/logs").first_line,
            "no replica could be started on host node1: the remote shell ended");
  JobState some = joined();
  some.mpirun_found(found);
  EXPECT_FALSE(lacks_daemon(some));
  EXPECT_FALSE(name_cause(some, 20, kQuiet)) << "this shell did not hand our line on";
}

TEST_F(PostMortem, AsksOnlyOtherHostsWhoseDaemonIsMissing) {
  proto::Topology topology;
  topology.set_num_replicas(2);
  topology.set_num_instances(2);
  topology.set_ipus_per_replica(1);
  JobState nobody(*place(topology, std::vector<Host>{{"node0"}, {"node1"}}), 0);
  EXPECT_THAT(hosts_to_ask(nobody, notices("not enough slots")), IsEmpty());
  nobody.mpirun_found({.start_failure = StartFailure{"node1", "", "the remote shell ended", /*no_daemon=*/true}});
  EXPECT_THAT(hosts_to_ask(nobody, {}), ElementsAre("node1"));
}

TEST_F(PostMortem, BlamesVariablesThatChooseOpenMpisPartsBeforeTheFirstStepOnly) {
  const std::vector<std::string> named = {"OMPI_MCA_pml"};
  const Verdict died{75, "replica 0 died"};
  JobState state = joined();
  const Verdict verdict = unless_settings(state, died, named);
  EXPECT_EQ(verdict.exit_code, 69);
  EXPECT_EQ(verdict.first_line,
            "Open MPI did not start, and the environment selects components of Open MPI that may not work here; `unset "
            "OMPI_MCA_pml` and try again (replica 0 died)");
  EXPECT_EQ(unless_settings(state, died, {}).exit_code, 75);
  beat(state, 0, 1, "conv1", 20);
  EXPECT_EQ(unless_settings(state, died, named).first_line, died.first_line);
}

TEST_F(PostMortem, OfMpirunAlonePassesCodesOnThatAreNotItsOwn) {
  JobState state = joined();
  beat(state, 1, 5, "conv1", 20);

  const Verdict own = mpirun_verdict(state, W_EXITCODE(0, 9), notices("a daemon was lost"), "out/logs");
  EXPECT_EQ(own.exit_code, 75);
  EXPECT_EQ(own.first_line, "mpirun was killed by signal 9 (SIGKILL) at step 5 or later: a daemon was lost");
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(205, 0), {}, "out/logs").exit_code, 75);
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(86, 0), {}, "out/logs").exit_code, 86);
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(86, 0), {}, "out/logs").first_line,
            "mpirun exited with code 86 at step 5 or later");
}

TEST_F(PostMortem, OfACleanEndWithoutResultsPointsToTheLogs) {
  const Verdict verdict = mpirun_verdict(joined(), W_EXITCODE(0, 0), {}, "out/logs");
  EXPECT_EQ(verdict.exit_code, 75);
  EXPECT_EQ(verdict.first_line, "all instances ended without reporting their results; see out/logs");
}

}  // namespace
}  // namespace poprun::launcher
