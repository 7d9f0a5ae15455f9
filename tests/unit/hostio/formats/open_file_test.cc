#include "hostio/formats/open_file.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/temporary_folder.h"

namespace poprun::hostio {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// A folder data with two files, secret files next to it, and links in data to files inside and outside it.
class FileScopeTest : public ::testing::Test {
 protected:
  FileScopeTest() {
    (void)folder_.write("data/file", "served");
    (void)folder_.write("data/folder/file", "served");
    (void)folder_.write("secret", "not served");
    (void)folder_.write("database/file", "not served");
    fs::create_symlink(folder_.path() / "secret", data_ / "link");
    fs::create_directory_symlink(folder_.path() / "database", data_ / "away");
    fs::create_symlink("folder/file", data_ / "inside");
  }

  TemporaryFolder folder_;
  fs::path data_ = folder_.path() / "data";
};

TEST_F(FileScopeTest, AdmitsWhatLiesBelowItsRoot) {
  const FileScope scope = *FileScope::below(data_);
  for (const char* file : {"file", "folder/file", "folder/../file", "inside"}) {
    const auto bytes = read_bytes(data_ / file, scope);
    ASSERT_TRUE(bytes) << file << bytes.error().message;
    EXPECT_EQ(bytes->size(), 6U);
  }
}

TEST_F(FileScopeTest, RefusesEveryWayOutOfItsRoot) {
  const FileScope scope = *FileScope::below(data_);
  for (const char* file : {"../secret", "link", "away/file", "../database/file", "folder/../../secret"}) {
    const auto bytes = read_bytes(data_ / file, scope);
    ASSERT_FALSE(bytes) << file;
    EXPECT_EQ(bytes.error().code, ErrorCode::kUsage);
    EXPECT_THAT(bytes.error().message, AllOf(HasSubstr(file), HasSubstr("--root")));
  }
  EXPECT_FALSE(read_bytes("/etc/passwd", scope));
}

TEST_F(FileScopeTest, TellsNothingOfWhatLiesOutside) {
  const FileScope scope = *FileScope::below(data_);
  EXPECT_EQ(read_bytes(folder_.path() / "secret", scope).error().code,
            read_bytes(folder_.path() / "absent", scope).error().code);
}

TEST_F(FileScopeTest, MayBeNothingOrEverything) {
  EXPECT_FALSE(read_bytes(data_ / "file", FileScope::nothing()));
  EXPECT_TRUE(read_bytes(folder_.path() / "secret"));
}

TEST_F(FileScopeTest, NeedsAFolder) {
  EXPECT_EQ(FileScope::below(data_ / "file").error().code, ErrorCode::kUsage);
  EXPECT_THAT(FileScope::below(data_ / "absent").error().message, HasSubstr("No such file"));
}

std::string fingerprint(const std::vector<fs::path>& files) {
  const auto found = fingerprint_of(files);
  EXPECT_TRUE(found) << found.error().message;
  return found.value_or("");
}

TEST(Fingerprint, IsThatOfTheBytesWhereverTheyLie) {
  TemporaryFolder folder;
  const auto of = [&](const std::string& file, const std::string& bytes) {
    return fingerprint({folder.write(file, bytes)});
  };
  const std::string long_text(9 << 20, 'x');
  std::string changed = long_text;
  changed[4 << 10] = 'y';
  std::string in_the_middle = long_text;
  in_the_middle[4'567'890] = 'y';
  std::string at_the_end = long_text;
  at_the_end.back() = 'y';
  EXPECT_EQ(of("a", "words"), of("b/c", "words"));
  EXPECT_NE(of("a", "words"), of("a", "worts"));
  EXPECT_NE(of("a", "words"), of("a", "words "));
  EXPECT_NE(of("a", long_text), of("a", changed));
  EXPECT_NE(of("a", long_text), of("a", in_the_middle));
  EXPECT_NE(of("a", long_text), of("a", at_the_end));
  EXPECT_NE(of("a", long_text), of("a", long_text + "x"));
  EXPECT_NE(fingerprint({folder.write("1", "a"), folder.write("2", "b")}),
            fingerprint({folder.write("1", "b"), folder.write("2", "a")}));
  EXPECT_NE(of("a", "words"), fingerprint({}));
}

TEST(Fingerprint, OfALargeFileIsThatOfEachOfItsBytes) {
  TemporaryFolder folder;
  const fs::path file = folder.write("large", "");
  fs::resize_file(file, 300 << 20);  // The file is a hole, which uses no disk blocks.
  const std::string empty = fingerprint({file});
  std::fstream(file, std::ios::in | std::ios::out).seekp(1'700'000).put('x');
  EXPECT_NE(fingerprint({file}), empty);
}

TEST(Reading, RefusesAFileThatChangesMeanwhile) {
  TemporaryFolder folder;
  for (const std::string how : {"replaced", "written to", "grown", "removed", "switched"}) {
    const fs::path file = folder.write("file", "first");
    const fs::path link = folder.path() / "link";
    fs::remove(link);
    fs::create_symlink(file, link);
    const auto reading = std::make_shared<Reading>();
    const FileScope scope = FileScope().during(reading);
    ASSERT_TRUE(read_bytes(link, scope));
    ASSERT_TRUE(reading->check_unchanged());
    const fs::path other = folder.write("other", "other");
    if (how == "replaced") {
      fs::rename(other, file);
    } else if (how == "written to") {
      std::fstream(file, std::ios::in | std::ios::out).put('F');
      fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    } else if (how == "grown") {
      (void)folder.write("file", "first and more");
    } else if (how == "removed") {
      fs::remove(file);
    } else {
      fs::remove(link);
      fs::create_symlink(other, link);
    }
    const Status unchanged = reading->check_unchanged();
    ASSERT_FALSE(unchanged) << how;
    EXPECT_EQ(unchanged.error().code, ErrorCode::kData);
    EXPECT_THAT(unchanged.error().message, HasSubstr("changed while the data server was reading it"));
    EXPECT_FALSE(read_bytes(link, scope)) << how;
  }
}

TEST(Reading, CountsItsWorkAndThatOfAll) {
  TemporaryFolder folder;
  const auto shared = std::make_shared<Reading::Shared>();
  const auto reading = std::make_shared<Reading>(shared);
  const FileScope scope = FileScope().during(reading);
  EXPECT_FALSE(reading->has_begun());
  EXPECT_EQ(reading->percent(), 0U);
  const fs::path file = folder.write("file", std::string(1000, 'x'));
  ASSERT_TRUE(read_bytes(file, scope));
  EXPECT_EQ(reading->work(), 1000U);
  EXPECT_EQ(reading->percent(), 50U) << "the fingerprint is to come";
  ASSERT_TRUE(fingerprint_of({file}, scope));
  EXPECT_EQ(reading->percent(), 99U);
  Reading(shared).advance(5);
  EXPECT_EQ(shared->work, 2005U);
}

TEST(Reading, PromisesNoMemoryTwice) {
  const auto shared = std::make_shared<Reading::Shared>();
  Reading reading(shared);
  const auto most = [](std::uint64_t limit, std::uint64_t bytes) {
    return [=](std::uint64_t promised) -> Status {
      return promised + bytes <= limit ? Status{} : fail(ErrorCode::kData, "none");
    };
  };
  ASSERT_TRUE(reading.promise(60, most(100, 60)));
  {
    Reading::Promise promise(reading, 60);
    EXPECT_FALSE(Reading(shared).promise(60, most(100, 60)));
    promise.taken(40);
    EXPECT_EQ(shared->promised, 20U);
  }
  EXPECT_EQ(shared->promised, 0U);
}

TEST(OpenFile, RefusesPipesFoldersAndDevicesWithoutWaiting) {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto why = [](const fs::path& file) { return read_bytes(file).error().message; };
  EXPECT_THAT(why(pipe), HasSubstr("it is a pipe; only regular files are read"));
  EXPECT_THAT(why(folder.path()), HasSubstr("it is a folder"));
  EXPECT_THAT(why("/dev/zero"), HasSubstr("it is a device"));
}

TEST(OpenFile, ASparseFileOfATebibyteIsNotRead) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("huge", "");
  fs::resize_file(file, std::uintmax_t{1} << 40);
  const auto bytes = read_bytes(file);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kData);
  EXPECT_THAT(bytes.error().message, HasSubstr("needs 1,048,576.0 MiB of memory"));
}

}  // namespace
}  // namespace poprun::hostio
