#include "hostio/formats/picture.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/hostio/picture_bytes.h"

namespace poprun::hostio::picture_test {
namespace {

using testing::Bytes;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::jpeg_bytes;
using testing::Picture;
using testing::plain_picture;
using testing::png_bytes;

std::span<const std::byte> span_of(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

/// Decodes to bytes [C, H, W].
Bytes decoded(const Bytes& file, const PictureSize& size) {
  Bytes pixels(std::size_t{size.channels} * size.height * size.width);
  const Status status = decode_picture(span_of(file), size, std::as_writable_bytes(std::span(pixels)), "a.jpg");
  EXPECT_TRUE(status) << status.error().message;
  return pixels;
}

std::string complaint(const Bytes& file, const PictureSize& size = {4, 4, 3}) {
  Bytes pixels(std::size_t{size.channels} * size.height * size.width);
  const Status status = decode_picture(span_of(file), size, std::as_writable_bytes(std::span(pixels)), "a.jpg");
  EXPECT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kData);
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  return status.error().message;
}

TEST(Picture, KnowsTheSizeFromTheHeader) {
  EXPECT_EQ(picture_size(span_of(png_bytes(plain_picture(3, 5, 3, 7))), "a"), (PictureSize{3, 5, 3}));
  EXPECT_EQ(picture_size(span_of(png_bytes(plain_picture(3, 5, 1, 7))), "a"), (PictureSize{3, 5, 1}));
  EXPECT_EQ(picture_size(span_of(jpeg_bytes(plain_picture(9, 2, 3, 7))), "a"), (PictureSize{9, 2, 3}));
  EXPECT_EQ(picture_size(span_of(jpeg_bytes(plain_picture(9, 2, 1, 7))), "a"), (PictureSize{9, 2, 1}));
}

TEST(Picture, KeepsPixelsOfTheSameSizeInPlanes) {
  const Picture picture{2, 2, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255}};
  EXPECT_THAT(decoded(png_bytes(picture), {2, 2, 3}), ElementsAre(1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 255));
}

TEST(Picture, MakesGreyImagesRgb) {
  EXPECT_THAT(decoded(png_bytes({1, 2, 1, {9, 200}}), {1, 2, 3}), ElementsAre(9, 200, 9, 200, 9, 200));
  EXPECT_THAT(decoded(png_bytes({1, 2, 1, {9, 200}}), {1, 2, 1}), ElementsAre(9, 200));
}

TEST(Picture, DecodesJpegOfAllKinds) {
  for (const bool progressive : {false, true}) {
    EXPECT_THAT(decoded(jpeg_bytes(plain_picture(20, 30, 3, 128), progressive), {20, 30, 3}), Each(128));
    EXPECT_THAT(decoded(jpeg_bytes(plain_picture(20, 30, 1, 50), progressive), {7, 3, 3}), Each(50));
  }
}

TEST(Picture, ScalesTheShorterSideAndCutsTheCentre) {
  // Columns of 4 x 8 pixels: the middle 4 become 2.
  Picture picture{4, 8, 1, {}};
  for (int y = 0; y < 4; ++y) {
    for (const std::uint8_t value : Bytes{255, 255, 10, 10, 30, 30, 255, 255}) {
      picture.pixels.push_back(value);
    }
  }
  // Triangles of 4 pixels with weights 1, 3, 3, 1: (255 + 3 * 10 + 3 * 10 + 30) / 8 = 43.1, and the mirror image
  // (10 + 3 * 30 + 3 * 30 + 255) / 8 = 55.6.
  EXPECT_THAT(decoded(png_bytes(picture), {2, 2, 1}), ElementsAre(43, 56, 43, 56));
}

TEST(Picture, InterpolatesWhenItEnlarges) {
  // Inside, the weights are 1 / 4 and 3 / 4; at the border, only one pixel counts.
  EXPECT_THAT(decoded(png_bytes({1, 2, 1, {0, 100}}), {2, 4, 1}), ElementsAre(0, 25, 75, 100, 0, 25, 75, 100));
}

TEST(Picture, IsTheMeanOfAMuchLargerImage) {
  Picture picture{1000, 1500, 1, {}};
  for (int i = 0; i < 1000 * 1500; ++i) {
    picture.pixels.push_back(i % 2 == 0 ? 0 : 200);
  }
  EXPECT_THAT(decoded(png_bytes(picture), {2, 2, 1}), Each(100));
}

TEST(Picture, RefusesDamagedFiles) {
  EXPECT_THAT(complaint({}), HasSubstr("a.jpg: expected a JPEG or PNG image, found an empty file"));
  EXPECT_THAT(complaint(testing::bytes_of("GIF89a")), HasSubstr("found something else"));
  Picture noise{64, 64, 3, {}};
  for (std::uint32_t i = 0; i < 64 * 64 * 3; ++i) {
    noise.pixels.push_back(static_cast<std::uint8_t>(i * i * 2654435761U >> 24));
  }
  for (const Bytes& whole : {jpeg_bytes(noise), jpeg_bytes(noise, true), png_bytes(noise)}) {
    for (const std::size_t size : {std::size_t{20}, whole.size() / 2, whole.size() - 60}) {
      EXPECT_THAT(complaint({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, {64, 64, 3}),
                  HasSubstr("a.jpg: cannot be decoded as "))
          << size;
    }
  }
}

TEST(Picture, RefusesDecompressionBombs) {
  Bytes bomb = png_bytes(plain_picture(1, 1, 1, 0));
  // The size is in the first chunk, and the checksum of that chunk must match.
  for (const std::size_t at : {16U, 20U}) {
    bomb[at + 1] = 0x01;
  }
  const std::uint32_t checksum = static_cast<std::uint32_t>(crc32(0, bomb.data() + 12, 17));
  for (std::size_t i = 0; i < 4; ++i) {
    bomb[29 + i] = static_cast<std::uint8_t>(checksum >> (24 - 8 * i));
  }
  EXPECT_THAT(complaint(bomb), HasSubstr("has 65537 x 65537 pixels, but the limit is 67,108,864 pixels"));
  Bytes jpeg = jpeg_bytes(plain_picture(8, 8, 1, 0));
  const std::string marker = "\xFF\xC0";
  const auto frame = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end(),
                                 [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); });
  ASSERT_NE(frame, jpeg.end());
  std::fill(frame + 5, frame + 9, 0xF0);
  EXPECT_THAT(complaint(jpeg), HasSubstr("has 61680 x 61680 pixels"));
}

}  // namespace
}  // namespace poprun::hostio::picture_test
