#include "launcher/verdict/job_state.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "launcher/verdict/post_mortem.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kQuiet = 15;  ///< Joined at second 10, nobody is that quiet at 21.

/// Four replicas on two hosts, in `instances` instances, all joined at second 10.
class PostMortem : public ::testing::Test {
 protected:
  static JobState joined(std::uint32_t instances = 4) {
    proto::Topology topology;
    topology.set_num_replicas(4);
    topology.set_num_instances(instances);
    topology.set_ipus_per_replica(1);
    const std::vector<Host> hosts = {{"node0"}, {"node1"}};
    JobState state(*place(topology, hosts), 0);
    for (std::uint32_t i = 0; i < instances; ++i) {
      EXPECT_TRUE(state.join(request(i), 10));
    }
    return state;
  }

  static proto::JoinRequest request(std::uint32_t instance) {
    proto::JoinRequest request;
    request.set_instance(instance);
    request.set_host(instance < 2 ? "node0" : "node1");
    request.set_pid(100 + instance);
    request.set_version(POPRUN_VERSION);
    return request;
  }

  static void beat(JobState& state, std::uint32_t replica, std::uint64_t step,
                   const std::string& activity, double now, std::uint32_t per_instance = 1) {
    proto::Beat beat;
    beat.set_instance(replica / per_instance);
    proto::ReplicaProgress& progress = *beat.add_replicas();
    progress.set_replica(replica);
    progress.set_step(step);
    progress.set_activity(activity);
    progress.set_activity_seconds(1);
    state.beat(beat, now);
  }

  static proto::Failure failure(std::uint32_t instance, std::uint32_t code,
                                const std::string& message) {
    proto::Failure failure;
    failure.set_instance(instance);
    failure.set_replica(instance);
    failure.set_exit_code(code);
    failure.set_message(message);
    return failure;
  }
};

TEST_F(PostMortem, NamesTheKilledReplicaAndWhatTheOthersDid) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 3U}) {
    beat(state, replica, 123, "all-reduce of 8 tensors", 20);
  }
  beat(state, 2, 122, "conv1", 20);
  state.leave(2, false);
  state.leave(0, false);  // A consequence: mpirun ends the rest.
  state.rank_end({2, 9, 0});

  const auto verdict = name_cause(state, 21, kQuiet);

  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->exit_code, 75);
  EXPECT_EQ(verdict->first_line,
            "replica 2 (instance 2, host node1, pid 102) was killed by signal 9 (SIGKILL) at step "
            "122 (conv1)");
  EXPECT_THAT(
      verdict->more,
      ElementsAre(
          "  meanwhile replicas 0, 1, 3 were at step 123 (all-reduce of 8 tensors) for 2.0 s"));
}

TEST_F(PostMortem, WithoutMpirunsWordTheFirstBrokenHeartbeatIsTheCause) {
  JobState state = joined();
  beat(state, 1, 5, "finishing", 20);
  state.leave(1, false);
  state.leave(0, false);

  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replica 1 (instance 1, host node0, pid 101) died at step 5 (finishing): its heartbeat "
            "connection broke");
  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 75);
}

TEST_F(PostMortem, PassesAnExitCodeOn) {
  JobState state = joined();
  state.rank_end({3, 0, 7});

  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 7);
  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replica 3 (instance 3, host node1, pid 103) exited with code 7 at step 0");
}

TEST_F(PostMortem, AReplicasOwnReasonComesFirst) {
  JobState state = joined();
  state.leave(1, false);
  state.rank_end({1, 0, 75});
  state.failure(failure(1, 75, "a peer is gone"));
  state.failure(failure(2, 69, "the data server at h:1 did not answer for 3 s"));

  EXPECT_EQ(name_cause(state, 21, kQuiet)->exit_code, 69);
  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replica 2 (instance 2, host node1, pid 102) at step 0: the data server at h:1 did not "
            "answer for 3 s");
}

TEST_F(PostMortem, AMissedPeerIsAConsequenceWhereAnInstanceWasLost) {
  JobState state = joined();
  state.failure(failure(0, 75, "replica 1 did not come to the all-reduce"));
  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line, HasSubstr("replica 0 (instance 0"));

  state.leave(1, false);
  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line, HasSubstr("replica 1 (instance 1"));
}

TEST_F(PostMortem, ABadRequestIsNotAReplicasFault) {
  JobState state = joined();
  state.failure(failure(0, 86, "out of memory: needs 2 B, had 1 B\nalways live:\n  1 B"));

  const auto verdict = name_cause(state, 21, kQuiet);

  EXPECT_EQ(verdict->exit_code, 86);
  EXPECT_EQ(verdict->first_line, "out of memory: needs 2 B, had 1 B");
  EXPECT_THAT(verdict->more, ElementsAre("always live:", "  1 B"));
}

TEST_F(PostMortem, NamesAllReplicasOfAnInstance) {
  JobState state = joined(2);
  beat(state, 2, 7, "conv1", 20, 2);
  state.rank_end({1, 9, 0});

  EXPECT_THAT(name_cause(state, 21, kQuiet)->first_line,
              HasSubstr("replicas 2-3 (instance 1, host node0, pid 101)"));
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
            "replica 2 (instance 2, host node1, pid 102) gave no heartbeat for 7.1 s at step 8 "
            "(conv2); is it stopped, "
            "or its host cut off?");
  EXPECT_THAT(verdict.more, ElementsAre(HasSubstr("replicas 0, 1 were at step 9")));
}

TEST_F(PostMortem, WatchesTheOldestHeartbeatOfThoseThatAreThere) {
  JobState state = joined();
  beat(state, 0, 9, "conv2", 19);
  beat(state, 1, 9, "conv2", 18);
  state.leave(2, true);
  EXPECT_EQ(state.oldest_heartbeat(), 10) << "replica 3's joining";
  beat(state, 3, 9, "conv2", 20);
  EXPECT_EQ(state.oldest_heartbeat(), 18);
  for (const std::uint32_t instance : {0U, 1U, 3U}) {
    state.leave(instance, true);
  }
  EXPECT_EQ(state.oldest_heartbeat(), std::nullopt);
}

TEST_F(PostMortem, NamesAllThatFellSilentTogether) {
  JobState state = joined();
  beat(state, 0, 9, "all-reduce of 8 tensors", 31);
  beat(state, 1, 9, "all-reduce of 8 tensors", 31);
  beat(state, 2, 8, "conv2", 20.5);
  beat(state, 3, 8, "conv2", 20);

  const Verdict verdict = silence_verdict(state, state.silent(31, 9), 31);

  EXPECT_EQ(verdict.first_line,
            "replicas 2, 3 (host node1) gave no heartbeat for 11.0 s at step 8 (conv2); are they "
            "stopped, or their host cut off?");
  EXPECT_THAT(verdict.more, ElementsAre(HasSubstr("replicas 0, 1 were at step 9")));
}

// mpirun ends the replicas that it still reaches once it has lost a host.
TEST_F(PostMortem, ASilentHostIsTheCauseOfBrokenHeartbeatsElsewhere) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U, 3U}) {
    beat(state, replica, 9, "all-reduce of 8 tensors", replica < 2 ? 31 : 20);
  }
  state.leave(0, false);
  state.leave(1, false);

  EXPECT_THAT(name_cause(state, 31, 5)->first_line,
              HasSubstr("replicas 2, 3 (host node1) gave no heartbeat for 11.0 s"));
  EXPECT_THAT(name_cause(state, 31, 15)->first_line, HasSubstr("replica 0 (instance 0"));
}

TEST_F(PostMortem, BlamesTheMissingAndNotWhoWaited) {
  JobState state = joined();
  for (const std::uint32_t replica : {0U, 1U, 2U}) {
    beat(state, replica, 9, "all-reduce of 8 tensors", 30);
  }
  beat(state, 3, 8, "conv2", 28);
  proto::Failure waited =
      failure(0, 75, "all-reduce 21 ('conv1.weight'): replica 3 did not arrive within 2 s");
  waited.add_missing(3);
  for (const char* call : {"call 18", "call 19", "call 20", "call 21: all-reduce, not done"}) {
    waited.add_recent_calls(call);
  }
  state.failure(waited);
  state.leave(0, false);  // It ended itself.
  state.rank_end({0, 0, 75});

  const auto verdict = name_cause(state, 31, kQuiet);

  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->exit_code, 75);
  EXPECT_EQ(verdict->instance, 3U);
  EXPECT_EQ(verdict->first_line,
            "replica 3 (instance 3, host node1, pid 103) is missing: all-reduce 21 "
            "('conv1.weight'): replica 3 did not arrive within 2 s");
  EXPECT_THAT(verdict->more,
              ElementsAre("  missing replica 3 was at step 8 (conv2) for 4.0 s, and gave its last "
                          "heartbeat 3.0 s ago",
                          "  meanwhile replicas 0-2 were at step 9 (all-reduce of 8 tensors) for "
                          "2.0 s",
                          "  last exchanges of replica 0:", "    call 19", "    call 20",
                          "    call 21: all-reduce, not done"));
}

// mpirun sends SIGCONT before it ends a process, and a stopped one goes on for a moment.
TEST_F(PostMortem, SaysWhatTheMissingDidBeforeItWasMissed) {
  JobState state = joined(2);
  beat(state, 3, 8, "conv2", 20, 2);
  proto::Failure waited = failure(0, 75, "barrier 4: replica 3 did not arrive within 2 s");
  waited.add_missing(3);
  state.failure(waited);
  beat(state, 3, 9, "finishing", 29.8, 2);

  const auto verdict = name_cause(state, 30, kQuiet);

  EXPECT_THAT(verdict->first_line, HasSubstr("replica 3 (instance 1, host node0, pid 101) is "));
  EXPECT_EQ(verdict->more[0],
            "  missing replica 3 was at step 8 (conv2) for 11.0 s, and gave its last heartbeat "
            "10.0 s ago");
}

TEST_F(PostMortem, NamesTheHostOfAllThatAreMissing) {
  JobState state = joined();
  proto::Failure waited = failure(1, 75, "barrier 4: replicas 2-3 did not arrive within 2 s");
  waited.add_missing(2);
  waited.add_missing(3);
  waited.add_missing(77);  // Nobody.
  state.failure(waited);
  state.leave(1, false);

  EXPECT_EQ(name_cause(state, 21, kQuiet)->first_line,
            "replicas 2, 3 (host node1) are missing: barrier 4: replicas 2-3 did not arrive within "
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
  state.failure(said);
  proto::Failure short_of = failure(2, 69, "too little memory");
  short_of.set_host("node1");
  short_of.set_needed_bytes(7'000);
  short_of.set_had_bytes(5'000);
  state.failure(short_of);
  proto::Failure cut_off = failure(3, 69, "nobody answers");
  cut_off.set_host("node1");
  cut_off.set_address("node0:5000");
  cut_off.add_missing(0);
  cut_off.add_missing(1);
  state.failure(cut_off);

  const std::string report = failure_report(state, {70, "first", {"  more"}, 0}, 21);

  EXPECT_EQ(report,
            "first\n  more\n\nwhat each replica did last:\n"
            "  replica 0 was at step 9 (all-reduce of 8 tensors) for 2.0 s; host node0, pid 100, "
            "last heartbeat 1.0 s ago\n"
            "  replica 1 started up; host node0, pid 101, left\n"
            "  replica 2 was at step 8 (conv2) for 3.0 s; host node1, pid 102, last heartbeat 2.0 "
            "s ago\n"
            "  replica 3 started up; host node1, pid 103, broke off\n\n"
            "replica 0 on host node0 left with code 70: call 17 differs\n"
            "  last exchanges of replica 0:\n    call 16: barrier\n    call 17: all-reduce\n\n"
            "replica 2 on host node1 left with code 69: too little memory\n"
            "  needed: 7000 B, had: 5000 B\n\n"
            "replica 3 on host node1 left with code 69: nobody answers\n"
            "  missing: replicas 0, 1\n  address: node0:5000\n");
}

TEST_F(PostMortem, ALauncherThatSleptBlamesNobody) {
  JobState state = joined();
  state.forgive_silence(100);
  EXPECT_THAT(state.silent(101, 3), IsEmpty());
}

TEST_F(PostMortem, ListsWhoDidNotCome) {
  proto::Topology topology;
  topology.set_num_replicas(3);
  topology.set_num_instances(3);
  const std::vector<Host> hosts = {{"node0"}, {"node1"}, {"node2"}};
  JobState state(*place(topology, hosts), 0);
  ASSERT_TRUE(state.join(request(0), 1));

  EXPECT_EQ(absence_verdict(state, 60).first_line,
            "instances 1, 2 did not join within 60 s; the first of them on host node1");
  state.rank_end({2, 9, 0});
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
  proto::Topology topology;
  topology.set_num_replicas(1);
  topology.set_num_instances(1);
  const JobState nobody(*place(topology, {}), 0);
  const int status = W_EXITCODE(213, 0);

  EXPECT_EQ(mpirun_verdict(nobody, status, {}, "out/logs").exit_code, 69);
  EXPECT_EQ(mpirun_verdict(nobody, status, {}, "out/logs").first_line,
            "no replica could be started: mpirun exited with code 213");
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("not enough slots"), "out/logs").first_line,
            "no replica could be started: not enough slots");
  EXPECT_EQ(mpirun_verdict(nobody, status, notices("unknown option \"-q\""), "out/logs").exit_code,
            64);
}

TEST_F(PostMortem, OfMpirunAlonePassesCodesOnThatAreNotItsOwn) {
  JobState state = joined();
  beat(state, 1, 5, "conv1", 20);

  const Verdict own =
      mpirun_verdict(state, W_EXITCODE(0, 9), notices("a daemon was lost"), "out/logs");
  EXPECT_EQ(own.exit_code, 75);
  EXPECT_EQ(own.first_line, "mpirun was killed by signal 9 (SIGKILL) at step 5: a daemon was lost");
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(205, 0), {}, "out/logs").exit_code, 75);
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(86, 0), {}, "out/logs").exit_code, 86);
  EXPECT_EQ(mpirun_verdict(state, W_EXITCODE(86, 0), {}, "out/logs").first_line,
            "mpirun exited with code 86 at step 5");
}

TEST_F(PostMortem, OfACleanEndWithoutResultsPointsToTheLogs) {
  const Verdict verdict = mpirun_verdict(joined(), W_EXITCODE(0, 0), {}, "out/logs");
  EXPECT_EQ(verdict.exit_code, 75);
  EXPECT_EQ(verdict.first_line,
            "all instances ended without reporting their results; see out/logs");
}

TEST_F(PostMortem, RefusesInstancesThatDoNotBelongToTheJob) {
  JobState state = joined();
  EXPECT_THAT(state.join(request(4), 11).error().message,
              HasSubstr("instance 4 does not exist, the job has 4"));
  EXPECT_THAT(state.join(request(1), 11).error().message, HasSubstr("instance 1 is there already"));
  proto::JoinRequest old = request(2);
  old.set_version("0.0.1");
  EXPECT_THAT(state.join(old, 11).error().message, HasSubstr("is version 0.0.1"));
}

TEST_F(PostMortem, IgnoresBeatsOfReplicasThatDoNotExist) {
  JobState state = joined();
  beat(state, 77, 1000, "x", 20);
  EXPECT_EQ(state.step(), 0U);
}

TEST(NumberRanges, AreShort) {
  EXPECT_EQ(number_ranges(std::vector<std::uint32_t>{0, 1, 2, 4, 6, 7}), "0-2, 4, 6, 7");
  EXPECT_EQ(number_ranges({}), "");
}

}  // namespace
}  // namespace poprun::launcher
