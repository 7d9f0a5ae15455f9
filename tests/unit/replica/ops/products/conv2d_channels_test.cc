/// Convolutions as computed by machines with AVX2 and nothing newer, tested in a separate process.

#include <dnnl.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::image;

// The limit must be set before any other call of oneDNN. Machines without AVX2 use the instructions that they have.
const dnnl::status kAvx2 = dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);

/// The parameter is the number of output channels; the other sizes are those of squeezenet's last convolution.
class EqualFilters : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(EqualFilters, GiveEqualChannels) {
  ASSERT_EQ(kAvx2, dnnl::status::success);
  constexpr std::int64_t kSide = 13;
  constexpr std::int64_t kIn = 512;
  const std::int64_t out = GetParam();
  Graph graph;
  const TensorId x = graph.add_tensor({"x", image({1, kIn, kSide, kSide}), Role::kActivation});
  const TensorId w = graph.add_tensor({"w", f32({out, kIn, 1, 1}), Role::kActivation});
  const TensorId y = graph.add_tensor({"y", image({1, out, kSide, kSide}), Role::kActivation});
  GraphRunner runner(graph);
  for (std::size_t i = 0; i < runner.floats(x).size(); ++i) {
    runner.floats(x)[i] = 1e6F / static_cast<float>(1 + (i * 37) % 101);
  }
  std::ranges::fill(runner.floats(w), 0.3F);
  runner.run(
      {"conv2d",
       {x, w},
       {y},
       {{"stride", Shape{1, 1}}, {"pad", Shape{0, 0, 0, 0}}, {"dilation", Shape{1, 1}}, {"groups", std::int64_t{1}}}});
  for (std::size_t pixel = 0; pixel < kSide * kSide; ++pixel) {
    const auto channels =
        runner.floats(y).subspan(pixel * static_cast<std::size_t>(out), static_cast<std::size_t>(out));
    ASSERT_THAT(channels, ::testing::Each(channels[0])) << "pixel " << pixel;
  }
}

INSTANTIATE_TEST_SUITE_P(OfAllBlocks, EqualFilters, ::testing::Values(10, 24, 40, 48, 100, 1000));

}  // namespace
}  // namespace poprun
