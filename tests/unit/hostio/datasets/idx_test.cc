#include "hostio/formats/idx.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/hostio/idx_bytes.h"

namespace poprun::hostio::idx_test {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::TemporaryFolder;

std::span<const std::byte> span_of(const Bytes& bytes) {
  return std::as_bytes(std::span(bytes));
}

/// Returns the error message for `bytes`, which must be refused.
std::string complaint(const Bytes& bytes) {
  const Result<IdxArray> array = parse_idx(span_of(bytes), "file.idx");
  if (array) {
    return "no error";
  }
  EXPECT_EQ(array.error().code, ErrorCode::kData);
  EXPECT_THAT(array.error().message, HasSubstr("file.idx"));
  EXPECT_EQ(array.error().message.find('\n'), std::string::npos);
  return array.error().message;
}

Bytes without_last(Bytes bytes, std::size_t count) {
  bytes.resize(bytes.size() - count);
  return bytes;
}

TEST(Idx, ReadsPlainBytes) {
  const Result<IdxArray> array = parse_idx(span_of(idx_bytes({2, 3}, {1, 2, 3, 4, 5, 6})), "x");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_THAT(array->shape.dims, ElementsAre(2, 3));
  EXPECT_THAT(array->elements, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Idx, ReadsGzipBytes) {
  const Result<IdxArray> array = parse_idx(span_of(gzip(idx_bytes({3}, {7, 8, 9}))), "x");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_THAT(array->elements, ElementsAre(7, 8, 9));
}

TEST(Idx, ReadsGzipOfSeveralMembers) {
  const Bytes whole = idx_bytes({3}, {7, 8, 9});
  Bytes packed = gzip({whole.begin(), whole.begin() + 5});
  const Bytes rest = gzip({whole.begin() + 5, whole.end()});
  packed.insert(packed.end(), rest.begin(), rest.end());
  const Result<IdxArray> array = parse_idx(span_of(packed), "x");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_THAT(array->elements, ElementsAre(7, 8, 9));
}

TEST(Idx, ReadsMoreThanOneGrowthOfMemory) {
  const Bytes elements(5'000'000, 3);
  const Result<IdxArray> array = parse_idx(span_of(gzip(idx_bytes({5'000'000}, elements))), "x");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->elements, elements);
}

TEST(Idx, ReadsTheShapeFromTheFirstBytes) {
  const Bytes packed = gzip(idx_bytes({100, 28, 28}, Bytes(78'400, 1)));
  const auto beginning = span_of(packed).first(packed.size() / 2);
  const Result<IdxShape> shape = parse_idx_shape(beginning, "x");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_THAT(shape->dims, ElementsAre(100, 28, 28));
  EXPECT_EQ(shape->elements, 78'400U);
}

TEST(Idx, NamesWhatIsWrongWithAHeader) {
  EXPECT_THAT(complaint({}), HasSubstr("at least 8 bytes, found 0"));
  EXPECT_THAT(complaint({0, 0, 8}), HasSubstr("at least 8 bytes, found 3"));
  EXPECT_THAT(complaint({'P', 'K', 3, 4, 0, 0}), HasSubstr("begins 00 00 08), found 50 4b 03"));
  EXPECT_THAT(complaint({0, 0, 0x0D, 1, 0, 0, 0, 0}), HasSubstr("unsigned bytes"));
  EXPECT_THAT(complaint({0, 0, 8, 0}), HasSubstr("1 to 8 dimensions, found 0"));
  EXPECT_THAT(complaint({0, 0, 8, 9}), HasSubstr("1 to 8 dimensions, found 9"));
  EXPECT_THAT(complaint({0, 0, 8, 3, 0, 0}), HasSubstr("16 bytes for 3 dimensions, found 6"));
}

TEST(Idx, RefusesDimensionsWhoseProductOverflows) {
  constexpr std::uint32_t kMost = 0xFFFFFFFF;
  EXPECT_THAT(complaint(idx_bytes({kMost, kMost, kMost}, {1})), HasSubstr("the limit"));
}

TEST(Idx, NeverAllocatesWhatOnlyTheHeaderClaims) {
  // The file claims 16 GiB but contains one byte. Reading it must fail quickly, not use up the machine's memory.
  EXPECT_THAT(complaint(idx_bytes({4, 0xFFFFFFFF}, {1})), HasSubstr("found 1"));
}

TEST(Idx, CountsTheElementsOfATruncatedFile) {
  EXPECT_THAT(complaint(idx_bytes({2, 3}, {1, 2, 3, 4})), HasSubstr("truncated: expected 6 elements (2 x 3), found 4"));
}

TEST(Idx, RefusesBytesAfterTheLastElement) {
  EXPECT_THAT(complaint(idx_bytes({2}, {1, 2, 3})), HasSubstr("but more bytes follow them"));
  EXPECT_THAT(complaint(gzip(idx_bytes({2}, {1, 2, 3}))), HasSubstr("but more bytes follow them"));
}

TEST(Idx, NoticesGzipThatEndsTooEarly) {
  const Bytes packed = gzip(idx_bytes({4}, {1, 2, 3, 4}));
  for (std::size_t count = 1; count + 2 < packed.size(); ++count) {
    EXPECT_THAT(complaint(without_last(packed, count)), HasSubstr("ends too early")) << count;
  }
}

TEST(Idx, NoticesDamagedGzip) {
  Bytes damaged = gzip(idx_bytes({4}, {1, 2, 3, 4}));
  damaged[damaged.size() - 6] ^= 0x10;  // Part of the checksum.
  EXPECT_THAT(complaint(damaged), HasSubstr("the checksum does not match"));

  Bytes followed = gzip(idx_bytes({4}, {1, 2, 3, 4}));
  followed.insert(followed.end(), {'j', 'u', 'n', 'k'});
  EXPECT_THAT(complaint(followed), HasSubstr("damaged"));
}

TEST(Idx, ReadsFiles) {
  const TemporaryFolder folder;
  const auto file = folder.write("a.gz", gzip(idx_bytes({2, 1}, {5, 6})));
  ASSERT_TRUE(read_idx_shape(file));
  EXPECT_THAT(read_idx_shape(file)->dims, ElementsAre(2, 1));
  ASSERT_TRUE(read_idx(file));
  EXPECT_THAT(read_idx(file)->elements, ElementsAre(5, 6));
}

TEST(Idx, NamesAFileThatIsNotThere) {
  const TemporaryFolder folder;
  const Result<IdxArray> array = read_idx(folder.path() / "none.gz");
  ASSERT_FALSE(array);
  EXPECT_EQ(array.error().code, ErrorCode::kData);
  EXPECT_THAT(array.error().message, HasSubstr("none.gz: cannot be read: No such file"));
}

TEST(Idx, RefusesAFolderInPlaceOfAFile) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_idx(folder.path()));
}

}  // namespace
}  // namespace poprun::hostio::idx_test
