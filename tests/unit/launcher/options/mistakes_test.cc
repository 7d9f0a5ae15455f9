#include "launcher/options/mistakes.h"

#include <gmock/gmock.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::mistakes_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Args = std::vector<std::string>;

std::string message_of(Args args, std::string_view config) {
  args.emplace_back("train.cfg");
  const auto options = parse_options(args, config);
  return options ? "no error" : options.error().message;
}

TEST(Mistakes, OfAFileAreAllReportedWithTheirLines) {
  EXPECT_EQ(message_of({},
                       "[device]\n"
                       "ipu = mk3   # a chip\n"
                       "[training]\n"
                       "  learning-rat = 0.1\n"
                       "seed=x\n"
                       "faster\n"),
            "train.cfg:2: ipu = mk3 is not allowed; allowed: bow, mk1, mk2; did you mean mk2?\n"
            "  2 | ipu = mk3   # a chip\n"
            "    |       ^^^\n"
            "train.cfg:4: unknown key learning-rat in [training]; did you mean learning-rate?\n"
            "  4 |   learning-rat = 0.1\n"
            "    |   ^^^^^^^^^^^^\n"
            "train.cfg:5: seed = x is not allowed; allowed: an integer from 0 to 18446744073709551615\n"
            "  5 | seed=x\n"
            "    |      ^\n"
            "train.cfg:6: the line is neither `[section]` nor `key = value`: faster\n"
            "  6 | faster\n"
            "    | ^^^^^^");
}

TEST(Mistakes, OfTheCommandLineAreReportedWithThoseOfTheFile) {
  EXPECT_EQ(message_of({"--training.epochs", "x", "--device.ipu", "mk9"}, "[training]\nseed = y\n"),
            "--training.epochs = x is not allowed; allowed: an integer from 1 to 1000000\n"
            "--device.ipu = mk9 is not allowed; allowed: bow, mk1, mk2; did you mean mk2?\n"
            "train.cfg:2: seed = y is not allowed; allowed: an integer from 0 to 18446744073709551615\n"
            "  2 | seed = y\n"
            "    |        ^");
  EXPECT_EQ(message_of({"--num-replica", "3", "--dry-runn"}, ""),
            "--num-replica: unknown option; did you mean --num-replicas?\n"
            "--dry-runn: unknown option; did you mean --dry-run?");
}

TEST(Mistakes, InValuesSuggestTheNearest) {
  EXPECT_THAT(message_of({"--model.precision", "fp16"}, ""), EndsWith("; did you mean half?"));
  EXPECT_THAT(message_of({"--model.precision", "Half"}, ""), EndsWith("; did you mean half?"));
  EXPECT_THAT(message_of({"--training.optimizer", "adma"}, ""), EndsWith("; did you mean adam?"));
  EXPECT_THAT(message_of({"--memory.poison-dead", "ture"}, ""), EndsWith("; did you mean true?"));
  EXPECT_THAT(message_of({"--training.optimizer", "lion"}, ""), Not(HasSubstr("did you mean")));
}

TEST(Mistakes, OfSeveralValuesQuoteTheirLines) {
  EXPECT_EQ(message_of({"--training.optimizer", "adam"}, "[training]\nseed = 1\nnesterov = true\n"),
            "training.nesterov = true needs training.optimizer = momentum, but it is adam\n"
            " --> train.cfg:3\n"
            "  3 | nesterov = true\n"
            "    |            ^^^^");
  EXPECT_EQ(message_of({"--memory.tiles", "exact", "--num-instances", "3", "--training.gradient-bucket", "1"}, ""),
            "memory.tiles = exact cannot be combined with training.gradient-bucket, whose exchanges overlap with "
            "other operations; leave out one of them\n"
            "--num-instances = 3 is more than --num-replicas = 1; an instance needs at least one replica");
}

TEST(Mistakes, OfAnUnknownSectionAreOne) {
  EXPECT_EQ(message_of({}, "\n[trainig]\nmagic = 1\nseed = 2\n"),
            "train.cfg:2: unknown section [trainig]; did you mean training?\n"
            "  2 | [trainig]\n"
            "    | ^^^^^^^^^");
}

TEST(Mistakes, MarkCharactersInsteadOfBytes) {
  EXPECT_THAT(message_of({}, "[training]\nseed = \xC3\xA9\xC3\xA9\n"), EndsWith("    |        ^^"));
}

TEST(Mistakes, AreNotQuotedIfTheyAreNoText) {
  EXPECT_EQ(message_of({}, "[training]\nseed = \xE9\nseed = 4\n"),
            "train.cfg:2: the line is not UTF-8; save the file as UTF-8 text");
  EXPECT_THAT(message_of({}, "[training]\nseed = " + std::string(1000, '7') + "\n"), Not(HasSubstr("\n")));
}

TEST(Mistakes, OfAWrongFileEndWithTheirNumber) {
  std::string text = "[training]\n";
  for (int i = 0; i < 25; ++i) {
    text += "not a key\n";
  }
  EXPECT_THAT(message_of({}, text), EndsWith("\n... and 5 more"));
}

}  // namespace
}  // namespace poprun::launcher::mistakes_test
