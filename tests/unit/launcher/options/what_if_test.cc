#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::what_if_test {
namespace {

using ::testing::HasSubstr;
using Args = std::vector<std::string>;

Result<Options> parse(Args args) {
  args.push_back("train.cfg");
  return parse_options(args, "");
}

std::string error_of(const Args& args) {
  const auto options = parse(args);
  return options ? "no error" : options.error().message;
}

TEST(Real, DividesTheReplicasIntoThoseThatRunAndThoseThatAreTimed) {
  const auto options = parse({"-n", "1024", "--real", "16"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.topology().num_replicas(), 16U);
  EXPECT_EQ(options->config.topology().num_instances(), 16U);
  EXPECT_EQ(options->config.topology().timed_replicas(), 1024U);
}

TEST(Real, OfAllReplicasIsThePlainJob) {
  const auto options = parse({"-n", "16", "--real", "16"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(options->config, parse({"-n", "16"})->config));
}

TEST(Real, LetsTheClockHaveMoreReplicasThanAJobCanRun) {
  EXPECT_EQ(parse({"-n", "65536", "--real", "4"})->config.topology().timed_replicas(), 65536U);
  EXPECT_THAT(error_of({"-n", "65536"}), HasSubstr("a job can have at most 4,096 replicas"));
}

TEST(Real, IsRefusedWhereItMeansNothing) {
  EXPECT_EQ(error_of({"-n", "4", "--real", "16"}),
            "--real = 16 is more than --num-replicas = 4; give the number of replicas that run, out of all of them");
  for (const char* word : {"scale", "estimate", "check", "profile"}) {
    EXPECT_THAT(error_of({word, "-n", "4", "--real", "2"}), HasSubstr("--real = 2 applies only to training jobs"))
        << word;
  }
  EXPECT_THAT(error_of({"--model.mode", "inference", "-n", "4", "--real", "2"}),
              HasSubstr("--real = 2 applies only to training jobs"));
}

TEST(WhatIf, ReadsAllKindsOfDisturbances) {
  const auto options =
      parse({"-n", "128", "--what-if", "slow=37:1.3x@step100", "--what-if", "slow=0-15:2@7-9", "--what-if",
             "jitter=lognormal:2%", "--what-if", "dead=host5@step200,restart", "--what-if",
             "dead=replica3@20,restart:1.5s", "--checkpoint-every", "50", "--heartbeat-timeout", "12"});
  ASSERT_TRUE(options) << options.error().message;
  const proto::WhatIf& what_if = options->config.what_if();
  ASSERT_EQ(what_if.slowdowns_size(), 2);
  EXPECT_EQ(what_if.slowdowns(0).first_replica(), 37U);
  EXPECT_EQ(what_if.slowdowns(0).last_replica(), 37U);
  EXPECT_EQ(what_if.slowdowns(0).factor(), 1.3);
  EXPECT_EQ(what_if.slowdowns(0).first_step(), 100U);
  EXPECT_EQ(what_if.slowdowns(0).last_step(), ~std::uint64_t{0});
  EXPECT_EQ(what_if.slowdowns(1).last_replica(), 15U);
  EXPECT_EQ(what_if.slowdowns(1).first_step(), 7U);
  EXPECT_EQ(what_if.slowdowns(1).last_step(), 9U);
  EXPECT_EQ(what_if.jitter(), 0.02);
  ASSERT_EQ(what_if.losses_size(), 2);
  EXPECT_EQ(what_if.losses(0).replica(), 80U) << "a host has 16 IPUs";
  EXPECT_EQ(what_if.losses(0).step(), 200U);
  EXPECT_EQ(what_if.losses(1).replica(), 3U);
  EXPECT_EQ(what_if.losses(1).restart_seconds(), 1.5);
  EXPECT_EQ(what_if.checkpoint_every_steps(), 50U);
  EXPECT_EQ(what_if.detection_seconds(), 12);
}

TEST(WhatIf, JittersOfBothFactorsAddAsVariancesDo) {
  const auto options = parse({"-n", "4", "--what-if", "jitter=lognormal:3%", "--what-if", "jitter=lognormal:4%"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_DOUBLE_EQ(options->config.what_if().jitter(), 0.05);
}

TEST(Real, ChecksTheGroupsOfBothJobs) {
  EXPECT_THAT(error_of({"-n", "66", "--real", "4", "--model.norm-span", "4"}), HasSubstr("model.norm-span"));
  EXPECT_THAT(error_of({"-n", "64", "--real", "4", "--num-instances", "16"}),
              HasSubstr("--num-instances = 16 is more than --real = 4"));
}

TEST(WhatIf, FindsHostsByTheirIpus) {
  const auto options = parse({"-n", "32", "--ipus-per-replica", "4", "--what-if", "dead=host5@step2,restart"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.what_if().losses(0).replica(), 20U);
}

TEST(WhatIf, RefusesOtherText) {
  for (const char* text : {"slow",
                           "slow=",
                           "slow=3",
                           "slow=3:x",
                           "slow=3:0x",
                           "slow=3:-1x",
                           "slow=3:nanx",
                           "slow=5-3:2x",
                           "slow=3:2x@",
                           "slow=3:2x@step0",
                           "slow=3:2x@9-5",
                           "slow=-1:2x",
                           "fast=3:2x",
                           "jitter=2%",
                           "jitter=lognormal:2",
                           "jitter=lognormal:0%",
                           "jitter=normal:2%",
                           "dead=host@step5,restart",
                           "dead=5@step5,restart",
                           "dead=host5@step0,restart",
                           "dead=host5,restart",
                           "dead=host5@step5,resume",
                           "dead=host5@step5,restart:-3s",
                           "dead=host5@step5,restart:infs",
                           "slow=4294967296:2x"}) {
    EXPECT_THAT(error_of({"-n", "128", "--what-if", text}), HasSubstr("not allowed")) << text;
  }
  EXPECT_THAT(error_of({"-n", "128", "--what-if", "dead=host5@step200"}),
              HasSubstr("dead=host5@step200,restart: without a restart, the job ends there"));
}

TEST(WhatIf, NamesPlacesThatTheJobLacks) {
  EXPECT_EQ(error_of({"-n", "16", "--what-if", "slow=16:2x"}),
            "--what-if: replica 16 does not exist; the job has replicas 0 to 15");
  EXPECT_EQ(error_of({"-n", "16", "--what-if", "dead=host1@step2,restart"}),
            "--what-if: host 1 does not exist; the job has replicas 0 to 15, and a host has 16 IPUs");
  EXPECT_TRUE(parse({"-n", "32", "--real", "2", "--what-if", "dead=host1@step2,restart"})) << "replicas of the clock";
  EXPECT_TRUE(parse({"scale", "--replicas", "16,64", "--what-if", "slow=37:2x"})) << "only some rows have replica 37";
}

TEST(WhatIf, IsRefusedWhereNothingIsTrained) {
  for (const Args& args : {Args{"--model.mode", "inference"}, Args{"check"}, Args{"estimate"}}) {
    Args all = args;
    all.insert(all.end(), {"-n", "16", "--what-if", "slow=3:2x"});
    EXPECT_THAT(error_of(all), HasSubstr("--what-if applies to training jobs")) << all.front();
  }
  EXPECT_THAT(error_of({"-n", "16", "--checkpoint-every", "30s", "--what-if", "dead=host0@step2,restart"}),
              HasSubstr("needs --checkpoint-every in steps"));
}

}  // namespace
}  // namespace poprun::launcher::what_if_test
