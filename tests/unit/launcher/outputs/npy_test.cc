#include "launcher/outputs/npy.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/unit/temporary_folder.h"

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;

class Npy : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() / "outputs.npy"; }
  [[nodiscard]] std::string bytes() const { return folder_.read("outputs.npy"); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

 private:
  testing::TemporaryFolder folder_;
};

const std::vector<std::int64_t> kShape = {3, 2};

// The header follows the format's specification: magic, version 1.0, little-endian length, padded dictionary.
TEST_F(Npy, IsWholeWhateverTheOrderOfItsPieces) {
  {
    auto file = NpyFile::create(path(), "f32", kShape);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->write(16, "cccccccc"));
    EXPECT_TRUE(file->write(0, "aaaaaaaabbbb"));
    EXPECT_EQ(file->rows_written(), 2U);
    EXPECT_FALSE(std::filesystem::exists(path()));
    EXPECT_TRUE(file->write(12, "bbbb"));
    ASSERT_TRUE(file->finish());
  }
  const std::string text = bytes();
  ASSERT_EQ(text.size(), 128U + 24U);
  EXPECT_EQ(text.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_THAT(text, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"));
  EXPECT_EQ(text[127], '\n');
  EXPECT_EQ(text.substr(128), "aaaaaaaabbbbbbbbcccccccc");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Npy, OfOneDimensionHasAPythonTuple) {
  auto file = NpyFile::create(path(), "i32", std::vector<std::int64_t>{1});
  ASSERT_TRUE(file && file->write(0, "1234") && file->finish());
  EXPECT_THAT(bytes(), HasSubstr("'descr': '<i4', 'fortran_order': False, 'shape': (1,), }"));
}

TEST_F(Npy, WithAMissingPieceIsNotThere) {
  {
    auto file = NpyFile::create(path(), "f32", kShape);
    ASSERT_TRUE(file && file->write(0, "aaaaaaaa"));
    const Status finished = file->finish();
    ASSERT_FALSE(finished);
    EXPECT_THAT(finished.error().message, HasSubstr("8 B of outputs arrived, but 24 B are needed"));
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(Npy, RefusesWhatLiesOutside) {
  auto file = NpyFile::create(path(), "f32", kShape);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->write(20, "aaaaaaaa"));
  EXPECT_FALSE(file->write(~std::uint64_t{0}, "a"));
  EXPECT_FALSE(NpyFile::create(path(), "f64", kShape));
}

TEST_F(Npy, ThatCannotBeMadeSaysWhy) {
  const auto file = NpyFile::create("/nowhere/outputs.npy", "f32", kShape);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kInfrastructure);
  EXPECT_EQ(file.error().message, "/nowhere/outputs.npy cannot be written: No such file or directory");
}

}  // namespace
}  // namespace poprun::launcher
