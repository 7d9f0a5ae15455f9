#include <gmock/gmock.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::corruption_test {
namespace {

using ::testing::HasSubstr;
using Args = std::vector<std::string>;

std::string error_of(Args args) {
  args.push_back("train.cfg");
  const auto options = parse_options(args, "");
  return options ? "no error" : options.error().message;
}

TEST(Corruption, IsAReplicaATensorAndAStep) {
  const Args args = {"-n", "4",        "--flip-bit", "3:fc1.weight@40", "--flip-bit", "0:a:b@1@7", "--replay-every",
                     "5",  "train.cfg"};
  const auto options = parse_options(args, "");
  ASSERT_TRUE(options) << options.error().message;
  const proto::CorruptionConfig& corruption = options->config.corruption();
  EXPECT_EQ(corruption.replay_every(), 5U);
  ASSERT_EQ(corruption.flips_size(), 2);
  EXPECT_EQ(corruption.flips(0).replica(), 3U);
  EXPECT_EQ(corruption.flips(0).tensor(), "fc1.weight");
  EXPECT_EQ(corruption.flips(0).step(), 40U);
  EXPECT_EQ(corruption.flips(1).tensor(), "a:b@1") << "names may contain both separators";
}

TEST(Corruption, InAnotherFormIsRefused) {
  for (const char* text : {"3", "3:a", "3@4", ":a@4", "3:@4", "3:a@", "3:a@0", "x:a@4", "3:a@-1", "3:a@4x",
                           "4294967296:a@4", "3:a@99999999999999999999"}) {
    EXPECT_THAT(error_of({"-n", "4", "--flip-bit", text}), HasSubstr("REPLICA:TENSOR@STEP")) << text;
  }
}

TEST(Corruption, IsRefusedWhereNothingComparesOrComputesIt) {
  EXPECT_THAT(error_of({"--replay-every", "5"}), HasSubstr("--replay-every = 5 needs at least 2 replicas (-n)"));
  EXPECT_THAT(error_of({"-n", "1024", "--real", "1", "--replay-every", "5"}), HasSubstr("needs at least 2 replicas"));
  EXPECT_THAT(error_of({"-n", "2", "--replay-every", "5", "--training.steps", "4"}), HasSubstr("has only 4 steps"));
  EXPECT_THAT(error_of({"-n", "2", "--flip-bit", "2:a@1"}), HasSubstr("the job has replicas 0 to 1"));
  for (const char* word : {"scale", "estimate", "check", "profile"}) {
    EXPECT_THAT(error_of({word, "-n", "4", "--replay-every", "2"}), HasSubstr("applies only to training jobs")) << word;
    EXPECT_THAT(error_of({word, "-n", "4", "--flip-bit", "2:a@1"}), HasSubstr("--flip-bit applies only")) << word;
  }
  EXPECT_THAT(error_of({"--model.mode", "inference", "-n", "4", "--replay-every", "2"}),
              HasSubstr("applies only to training jobs"));
}

}  // namespace
}  // namespace poprun::launcher::corruption_test
