#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/local/tree_reduce.h"

namespace poprun::collectives {
namespace {

template <typename Value>
Piece piece_of(ElementType type, std::vector<Value>& values, Place place = {}) {
  return {type, std::as_writable_bytes(std::span(values)), place};
}

//  a a | b b b | c        floats
//  0 1   2 3 4   5
TEST(Pieces, CopyAcrossTheEdgesOfBuffers) {
  std::vector<float> a = {0, 1};
  std::vector<float> b = {2, 3, 4};
  std::vector<float> empty;
  std::vector<float> c = {5};
  const Pieces pieces({piece_of(ElementType::kF32, a), piece_of(ElementType::kF32, b),
                       piece_of(ElementType::kF32, empty), piece_of(ElementType::kF32, c)});
  std::vector<float> out(4);

  pieces.copy_out(1 * sizeof(float), std::as_writable_bytes(std::span(out)));
  const std::vector<float> in = {-1, -2, -3, -4, -5};
  pieces.copy_in(1 * sizeof(float), std::as_bytes(std::span(in)));

  EXPECT_EQ(pieces.size(), 6 * sizeof(float));
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(a, (std::vector<float>{0, -1}));
  EXPECT_EQ(b, (std::vector<float>{-2, -3, -4}));
  EXPECT_EQ(c, (std::vector<float>{-5}));
}

//  given   h h h | f f | h | i        a half has 2 B, the others 4 B
//  taken   f f | i | h h h | h
TEST(Pieces, TakeWideElementsFirst) {
  std::vector<std::uint16_t> first = {1, 2, 3};
  std::vector<float> floats = {0, 0};
  std::vector<std::uint16_t> last = {4};
  std::vector<std::int32_t> integers = {7};
  const Pieces pieces({piece_of(ElementType::kF16, first, {0, 100}), piece_of(ElementType::kF32, floats, {0, 200}),
                       piece_of(ElementType::kF16, last), piece_of(ElementType::kI32, integers)});
  std::vector<std::uint16_t> halves(4);

  pieces.copy_out(12, std::as_writable_bytes(std::span(halves)));

  EXPECT_EQ(halves, (std::vector<std::uint16_t>{1, 2, 3, 4}));
  const std::vector<Piece> types = pieces.types();
  ASSERT_EQ(types.size(), 3U);
  EXPECT_EQ(types[0].whole, (Slice{0, 8}));
  EXPECT_EQ(types[1].whole, (Slice{8, 12}));
  EXPECT_EQ(types[2].whole, (Slice{12, 20}));
}

TEST(Pieces, KnowWhereThePartsOfTheirBuffersAre) {
  std::vector<float> a = {0, 1, 2};
  std::vector<float> b = {3, 4};
  const Pieces pieces({piece_of(ElementType::kF32, a, {7, 100}), piece_of(ElementType::kF32, b)});

  const std::vector<Piece> parts = pieces.parts({4, 16});

  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].place, (Place{7, 104}));
  EXPECT_EQ(parts[0].count(), 2U);
  EXPECT_EQ(parts[1].place.owner, -1);
  EXPECT_EQ(parts[1].whole, (Slice{12, 16}));
  EXPECT_TRUE(pieces.placed({0, 12}));
  EXPECT_FALSE(pieces.placed({8, 16}));
}

}  // namespace
}  // namespace poprun::collectives
