#include <gmock/gmock.h>

#include "launcher/options/config_file.h"

namespace poprun::launcher::config_test {
namespace {

using ::testing::HasSubstr;

/// Returns the first line of the error's message.
std::string error_of(std::string_view text) {
  const auto entries = parse_config("train.cfg", text);
  return entries ? "no error" : entries.error().message.substr(0, entries.error().message.find('\n'));
}

TEST(ConfigFile, ReadsSectionsKeysAndCommentsWithTheirLines) {
  const auto entries = parse_config("train.cfg",
                                    "# a job\n"
                                    "[training]\n"
                                    "epochs = 2   # two\n"
                                    "\n"
                                    "  [ data ]  \r\n"
                                    "source=idx:/a b\r\n");

  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ((*entries)[0].section, "training");
  EXPECT_EQ((*entries)[0].key, "epochs");
  EXPECT_EQ((*entries)[0].value, "2");
  EXPECT_EQ((*entries)[0].line, 3U);
  EXPECT_EQ((*entries)[1].section, "data");
  EXPECT_EQ((*entries)[1].value, "idx:/a b");
  EXPECT_EQ((*entries)[1].line, 6U);
}

TEST(ConfigFile, RefusesAKeyOutsideOfASection) {
  EXPECT_EQ(error_of("seed = 7\n"),
            "train.cfg:1: seed is before the first [section]; put it under a section, for example [training]");
}

TEST(ConfigFile, RefusesALineThatIsNeitherSectionNorKey) {
  EXPECT_EQ(error_of("[training]\nfaster\n"), "train.cfg:2: the line is neither `[section]` nor `key = value`: faster");
  EXPECT_THAT(error_of("[training\n"), HasSubstr("train.cfg:1: "));
  EXPECT_THAT(error_of("[]\n"), HasSubstr("no name"));
  EXPECT_THAT(error_of("[a]\n= 3\n"), HasSubstr("train.cfg:2: "));
}

TEST(ConfigFile, MayBeginAsWindowsProgramsWriteUtf8) {
  const auto entries = parse_config("train.cfg", "\xEF\xBB\xBF[training]\nseed = 7\n");
  ASSERT_TRUE(entries) << entries.error().message;
  EXPECT_EQ((*entries)[0].section, "training");
}

TEST(ConfigFile, RefusesOtherEncodings) {
  EXPECT_EQ(error_of("[a]\nk = \xE9\n"), "train.cfg:2: the line is not UTF-8; save the file as UTF-8 text");
  EXPECT_THAT(error_of(std::string_view("\xFF\xFE[\0a\0]\0", 8)), HasSubstr("not UTF-8"));
}

TEST(ConfigFile, RefusesBinaryFiles) {
  EXPECT_EQ(error_of(std::string_view("[a]\nk = \x01\n")),
            "train.cfg:2: contains the control character 0x01; train.cfg must be plain text");
}

TEST(ConfigFile, SaysWhyAFileCannotBeRead) {
  EXPECT_EQ(read_config_file("/nowhere/train.cfg").error().message,
            "/nowhere/train.cfg: cannot be read: No such file or directory");
  EXPECT_EQ(read_config_file("/").error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace poprun::launcher::config_test
