#include <fstream>

#include <gmock/gmock.h>

#include "launcher/options/config_file.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher::config_test {
namespace {

using ::testing::HasSubstr;

struct Read {
  std::vector<Written> written;
  std::string error;  ///< The first line, or "no error".
};

Read read(std::string_view text) {
  Mistakes mistakes("train.cfg", text);
  Read read{.written = written_in_file("train.cfg", text, mistakes), .error = "no error"};
  if (const Status status = mistakes.status(); !status) {
    read.error = status.error().message.substr(0, status.error().message.find('\n'));
  }
  return read;
}

std::string error_of(std::string_view text) {
  return read(text).error;
}

TEST(ConfigFile, ReadsSectionsKeysAndCommentsWithTheirLines) {
  const Read job = read(
      "# a job\n"
      "[training]\n"
      "epochs = 2   # two\n"
      "\n"
      "  [ data ]  \r\n"
      "source=idx:/a b\r\n");

  EXPECT_EQ(job.error, "no error");
  ASSERT_EQ(job.written.size(), 2U);
  EXPECT_EQ(job.written[0].row->name, "training.epochs");
  EXPECT_EQ(job.written[0].value, "2");
  EXPECT_EQ(job.written[0].line, 3U);
  EXPECT_EQ(job.written[1].row->name, "data.source");
  EXPECT_EQ(job.written[1].value, "idx:/a b");
  EXPECT_EQ(job.written[1].line, 6U);
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
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "train.cfg") << "\xEF\xBB\xBF[training]\r\nseed = 7\r\n";
  EXPECT_EQ(*read_config_file((folder.path() / "train.cfg").string()), "[training]\r\nseed = 7\r\n");
  EXPECT_EQ(read("[training]\r\nseed = 7\r\n").written.at(0).value, "7");
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
