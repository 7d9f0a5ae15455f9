#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostio/datasets/dataset.h"
#include "hostio/formats/tar.h"
#include "tests/unit/hostio/picture_bytes.h"
#include "tests/unit/hostio/served.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::hostio::images_test {
namespace {

namespace fs = std::filesystem;

using poprun::testing::TemporaryFolder;
using testing::Bytes;
using testing::bytes_of;
using testing::complaint_of;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::jpeg_bytes;
using testing::plain_picture;
using testing::png_bytes;
using testing::tar_bytes;
using testing::values;

class Images : public ::testing::Test {
 protected:
  void write(const std::string& name, const Bytes& bytes) {
    fs::create_directories((folder_.path() / name).parent_path());
    (void)folder_.write(name, bytes);
  }
  /// Writes `items` images of each of two classes, whose pixels are their number.
  void write_classes(const std::string& part, std::uint8_t items) {
    for (std::uint8_t i = 0; i < items; ++i) {
      write(fmt::format("{}cat/{:03}.png", part, i), png_bytes(plain_picture(2, 3, 1, i)));
      write(fmt::format("{}dog/{:03}.JPG", part, i),
            jpeg_bytes(plain_picture(2, 3, 1, static_cast<std::uint8_t>(100 + i))));
    }
  }
  [[nodiscard]] std::string source() const { return "images:" + folder_.path().string(); }

  TemporaryFolder folder_;
};

TEST_F(Images, ServesFoldersAsClasses) {
  write_classes("train/", 3);
  write_classes("test/", 1);
  write("train/cat/notes.txt", bytes_of("x"));
  const auto description = describe_dataset(source());
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->train_items(), 6U);
  EXPECT_EQ(description->test_items(), 2U);
  EXPECT_EQ(description->classes(), 2U);
  EXPECT_THAT(description->tensors(0).sample_shape(), ElementsAre(1, 2, 3));
  EXPECT_THAT(description->notes(), Contains(HasSubstr("0 = cat, 1 = dog")));
  EXPECT_THAT(description->notes(), Contains(HasSubstr("files that end in .txt are not read")));
  const auto dataset = load_dataset(source());
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().fingerprint(), description->fingerprint());
  for (int repeat = 0; repeat < 2; ++repeat) {  // The first time, images are decoded; then they are kept.
    EXPECT_THAT(values<std::uint8_t>(**dataset, 2, 0), Each(2));
    EXPECT_THAT(values<std::uint8_t>(**dataset, 4, 0), Each(101));
    EXPECT_THAT(values<std::uint8_t>(**dataset, 1, 0, proto::SPLIT_TEST), Each(100));
  }
  EXPECT_THAT(values<std::int32_t>(**dataset, 2, 1), ElementsAre(0));
  EXPECT_THAT(values<std::int32_t>(**dataset, 3, 1), ElementsAre(1));
}

TEST_F(Images, TakesTheTestPartFromEachClass) {
  write_classes("", 10);
  const auto dataset = load_dataset(source() + "?test-fraction=0.2");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 16U);
  EXPECT_EQ((*dataset)->description().test_items(), 4U);
  EXPECT_THAT(values<std::uint8_t>(**dataset, 0, 0, proto::SPLIT_TEST), Each(8));
  EXPECT_THAT(values<std::uint8_t>(**dataset, 3, 0, proto::SPLIT_TEST), Each(109));
}

TEST_F(Images, NeedsASizeIfImagesDiffer) {
  write("a/1.png", png_bytes(plain_picture(4, 4, 3, 9)));
  write("a/2.png", png_bytes(plain_picture(40, 60, 1, 7)));
  EXPECT_THAT(complaint_of(source()), HasSubstr("2.png has 60 x 40; set data.image-size"));
  const auto dataset = load_dataset(source() + "?image-size=5x6,test-fraction=0,mean=0.25,deviation=2");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().mean(), 0.25F);
  EXPECT_THAT((*dataset)->description().tensors(0).sample_shape(), ElementsAre(3, 5, 6));
  EXPECT_THAT(values<std::uint8_t>(**dataset, 1, 0), Each(7));
  EXPECT_EQ(describe_dataset(source() + "?image-size=5x").error().code, ErrorCode::kUsage);
  EXPECT_EQ(describe_dataset(source() + "?image-size=8").value().tensors(0).sample_shape(2), 8U);
}

TEST_F(Images, NamesADamagedOrMissingImage) {
  write_classes("", 2);
  EXPECT_THAT(complaint_of("images:" + (folder_.path() / "cat").string()), HasSubstr("expected one folder per class"));
  fs::create_directory(folder_.path() / "empty");
  EXPECT_THAT(complaint_of(source()), HasSubstr("empty: the folder of a class contains no .jpg or .png images"));
  fs::remove(folder_.path() / "empty");
  write("dog/000.jpg", bytes_of("GIF89a"));
  EXPECT_THAT(complaint_of(source()), HasSubstr("dog/000.jpg: expected a JPEG or PNG image"));
  EXPECT_THAT(complaint_of("images:/no/such/folder"), HasSubstr("/no/such/folder: cannot be read"));
}

TEST_F(Images, RefusesAnImageThatChangedAfterTheDescription) {
  write_classes("", 2);
  const auto dataset = load_dataset(source() + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  write("cat/001.png", png_bytes(plain_picture(2, 3, 1, 77)));
  Bytes pixels(6);
  const Status status = (*dataset)->read({.item = 1}, 0, std::as_writable_bytes(std::span(pixels)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kData);
  EXPECT_THAT(status.error().message, HasSubstr("001.png: "));
}

TEST_F(Images, ReadsOnlyWhatTheScopeAdmits) {
  write_classes("", 1);
  const TemporaryFolder other;
  EXPECT_EQ(describe_dataset(source(), *FileScope::below(other.path())).error().code, ErrorCode::kUsage);
  fs::create_directories(other.path() / "inside" / "cat");
  fs::create_symlink(folder_.path() / "cat" / "000.png", other.path() / "inside" / "cat" / "1.png");
  EXPECT_EQ(
      describe_dataset("images:" + (other.path() / "inside").string(), *FileScope::below(other.path())).error().code,
      ErrorCode::kUsage);
}

/// Returns an image of 2 x 2 pixels.
Bytes picture(std::uint8_t value) {
  return png_bytes(plain_picture(2, 2, 3, value));
}

class Webdataset : public Images {
 protected:
  std::string archive(const std::vector<std::pair<std::string, Bytes>>& files, const std::string& name = "a.tar") {
    write(name, tar_bytes(files));
    return "webdataset:" + (folder_.path() / name).string();
  }
};

TEST_F(Webdataset, ServesSamplesWithNumbersAsLabels) {
  const std::string long_name(120, 'k');
  const std::string source = archive({{"0001.png", picture(1)},
                                      {"0001.cls", bytes_of("3\n")},
                                      {"sub/0002.cls", bytes_of("0")},
                                      {"sub/0002.seg.txt", bytes_of("ignored")},
                                      {"sub/0002.jpg", jpeg_bytes(plain_picture(2, 2, 3, 50))},
                                      {long_name + ".json", bytes_of(R"({"label": 1, "more": [1]})")},
                                      {long_name + ".png", picture(9)}});
  const auto dataset = load_dataset(source + "?test-fraction=0");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 3U);
  EXPECT_EQ((*dataset)->description().classes(), 4U);
  EXPECT_THAT(values<std::uint8_t>(**dataset, 0, 0), Each(1));
  EXPECT_THAT(values<std::uint8_t>(**dataset, 1, 0), Each(50));
  EXPECT_THAT(values<std::uint8_t>(**dataset, 2, 0), Each(9));
  EXPECT_THAT(values<std::int32_t>(**dataset, 0, 1), ElementsAre(3));
  EXPECT_THAT(values<std::int32_t>(**dataset, 2, 1), ElementsAre(1));
}

TEST_F(Webdataset, ReadsShardsAndATestPart) {
  for (int shard = 8; shard < 11; ++shard) {
    archive({{"a.png", picture(static_cast<std::uint8_t>(shard))}, {"a.txt", bytes_of("dog")}},
            fmt::format("s-{:03}.tar", shard));
  }
  archive({{"a.png", picture(77)}, {"a.txt", bytes_of("cat")}}, "t.tar");
  const std::string folder = folder_.path().string();
  const auto dataset = load_dataset("webdataset:" + folder + "/s-{008..010}.tar,test=" + folder + "/t.tar");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->description().train_items(), 3U);
  EXPECT_THAT(values<std::uint8_t>(**dataset, 2, 0), Each(10));
  EXPECT_THAT(values<std::int32_t>(**dataset, 2, 1), ElementsAre(1));
  EXPECT_THAT(values<std::uint8_t>(**dataset, 0, 0, proto::SPLIT_TEST), Each(77));
  EXPECT_THAT(complaint_of("webdataset:" + folder + "/s-{008..011}.tar"), HasSubstr("s-011.tar"));
  EXPECT_EQ(describe_dataset("webdataset:" + folder + "/s-{9..8}.tar").error().code, ErrorCode::kUsage);
}

TEST_F(Webdataset, NamesTheSampleOfAFault) {
  EXPECT_THAT(complaint_of(archive({{"a.png", picture(1)}})), HasSubstr("a.tar: sample 'a': the sample has no label"));
  EXPECT_THAT(complaint_of(archive({{"a.cls", bytes_of("1")}})), HasSubstr("the sample has no image"));
  EXPECT_THAT(complaint_of(archive({{"a.png", picture(1)}, {"a.jpg", picture(1)}})), HasSubstr("two images"));
  EXPECT_THAT(complaint_of(archive({{"a.png", {}}, {"a.cls", bytes_of("1")}})), HasSubstr("the image is empty"));
  EXPECT_THAT(complaint_of(archive({{"a.png", picture(1)}, {"a.json", bytes_of("{")}})), HasSubstr("sample 'a'"));
  EXPECT_THAT(complaint_of(archive({{"a.png", picture(1)}, {"a.cls", bytes_of("-1")}})), HasSubstr("label -1"));
  EXPECT_THAT(complaint_of(archive({{"a.png", bytes_of("x")}, {"a.cls", bytes_of("1")}})),
              HasSubstr("a.tar: image at byte 512: expected a JPEG or PNG image"));
  EXPECT_THAT(complaint_of(archive({})), HasSubstr("found no files"));
}

TEST_F(Webdataset, CountsShardsUpToTheLargestNumber) {
  const std::string last = "18446744073709551615";
  EXPECT_THAT(complaint_of("webdataset:" + (folder_.path() / ("s-{" + last + ".." + last + "}.tar")).string()),
              HasSubstr("s-" + last + ".tar"));
}

TEST_F(Webdataset, RefusesDamagedArchives) {
  Bytes whole = tar_bytes({{"a.png", picture(1)}, {"a.cls", bytes_of("1")}});
  const std::string source = "webdataset:" + (folder_.path() / "a.tar").string();
  Bytes cut(whole.begin(), whole.begin() + 540);
  write("a.tar", cut);
  EXPECT_THAT(complaint_of(source), HasSubstr("the archive ends after 28"));
  whole[130] ^= 1;
  write("a.tar", whole);
  EXPECT_THAT(complaint_of(source), HasSubstr("a.tar: header at byte 0: expected a tar header"));
  write("a.tar", testing::gzip(whole));
  EXPECT_THAT(complaint_of(source), HasSubstr("header at byte 0: the archive is compressed"));
}

}  // namespace
}  // namespace poprun::hostio::images_test
