#include "replica/engine/device_memory.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// Two IPUs with 64 bytes each; tensor 0 is at [0, 16) of IPU 0, tensor 1 at [32, 40) of IPU 1.
class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest() {
    add(0, 0, 16);
    add(1, 32, 8);
    program_.add_memory()->set_images_peak(16);
    program_.add_memory()->set_images_peak(40);
  }

  void add(std::uint32_t ipu, std::uint64_t offset, std::uint64_t bytes) {
    proto::Tensor& tensor = *program_.add_tensors();
    tensor.set_bytes(bytes);
    tensor.mutable_placement()->set_ipu(ipu);
    tensor.mutable_placement()->set_offset(offset);
  }

  Program program_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(128);
  std::vector<std::byte> streaming_ = std::vector<std::byte>(32);
  DeviceMemory memory_{program_,
                       {Arena({bytes_.data(), 64}), Arena({bytes_.data() + 64, 64}), Arena({}), Arena(streaming_)}};
};

TEST_F(DeviceMemoryTest, KnowsTheHighestByteInUseOfEachIpu) {
  const std::vector<std::uint32_t> both = {0, 1};
  EXPECT_THAT(memory_.reach_of(both), ElementsAre(Bytes{16}, Bytes{40}, Bytes{0}, Bytes{0}));
  EXPECT_THAT(memory_.high_water(), Each(Bytes{0}));

  memory_.use(memory_.reach_of(both));
  memory_.use(memory_.reach_of({}));

  EXPECT_THAT(memory_.high_water(), ElementsAre(Bytes{16}, Bytes{40}, Bytes{0}, Bytes{0}));
}

TEST_F(DeviceMemoryTest, PoisonsATensorAndNothingBesideIt) {
  memory_.poison(1);

  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    EXPECT_EQ(bytes_[i], i >= 64 + 32 && i < 64 + 40 ? std::byte{0xFF} : std::byte{0}) << i;
  }
}

TEST_F(DeviceMemoryTest, PoisonsWhatThePlanUses) {
  memory_.poison_planned();

  EXPECT_EQ(std::ranges::count(bytes_, std::byte{0xFF}), 16 + 40);
}

TEST_F(DeviceMemoryTest, AnImageIsTheTensorsPlaceInItsArena) {
  const std::vector<CommonMemory> none;
  const HostImages images(program_, memory_.arenas(), none);

  EXPECT_EQ(images.of(0).data(), bytes_.data());
  EXPECT_EQ(images.of(0).size(), 16U);
  EXPECT_EQ(images.of(1).data(), bytes_.data() + 64 + 32);
  EXPECT_EQ(images.of(1).size(), 8U);
}

}  // namespace
}  // namespace poprun
