#include "collectives/local/pieces.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace poprun::collectives {
namespace {

//  a a | b b b | c        floats
//  0 1   2 3 4   5
TEST(Pieces, CopyAcrossTheEdgesOfBuffers) {
  std::vector<float> a = {0, 1};
  std::vector<float> b = {2, 3, 4};
  std::vector<float> empty;
  std::vector<float> c = {5};
  const std::array<std::span<float>, 4> buffers = {a, b, empty, c};
  const Pieces pieces{std::span(buffers)};
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

}  // namespace
}  // namespace poprun::collectives
