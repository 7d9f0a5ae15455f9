#include "collectives/local/pieces.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

template <typename Value>
Buffer buffer_of(ElementType type, std::vector<Value>& values) {
  return {type, std::as_writable_bytes(std::span(values))};
}

//  a a | b b b | c        floats
//  0 1   2 3 4   5
TEST(Pieces, CopyAcrossTheEdgesOfBuffers) {
  std::vector<float> a = {0, 1};
  std::vector<float> b = {2, 3, 4};
  std::vector<float> empty;
  std::vector<float> c = {5};
  const std::array<Buffer, 4> buffers = {Buffer::of(a), Buffer::of(b), Buffer::of(empty),
                                         Buffer::of(c)};
  const Pieces pieces{buffers};
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

//  given   h h h | f f | h | i        2 B a half, 4 B the others
//  taken   f f | i | h h h | h
TEST(Pieces, TakeWideElementsFirst) {
  std::vector<std::uint16_t> first = {1, 2, 3};
  std::vector<float> floats = {0, 0};
  std::vector<std::uint16_t> last = {4};
  std::vector<std::int32_t> integers = {7};
  const std::array<Buffer, 4> buffers = {buffer_of(ElementType::kF16, first), Buffer::of(floats),
                                         buffer_of(ElementType::kF16, last),
                                         buffer_of(ElementType::kI32, integers)};
  const Pieces pieces{buffers};
  std::vector<std::uint16_t> halves(4);

  pieces.copy_out(12, std::as_writable_bytes(std::span(halves)));

  EXPECT_EQ(halves, (std::vector<std::uint16_t>{1, 2, 3, 4}));
  EXPECT_EQ(pieces.extents({4, 20}), (std::vector<Extent>{{ElementType::kF32, {4, 8}},
                                                          {ElementType::kI32, {8, 12}},
                                                          {ElementType::kF16, {12, 20}}}));
}

}  // namespace
}  // namespace poprun::collectives
