#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "replica/base/random.h"
#include "tests/contract/groups.h"
#include "tests/contract/values.h"

namespace poprun::contract {

/// One replica's part of a program of random collectives in random groups. All replicas draw the same program: kind,
/// group, types, reduction, sizes (including 0, odd tails, more than a chunk), root, and whether a buffer is in the
/// world's memory, in the group's own, or outside both. Results are compared with the canonical tree, computed element
/// by element.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : seed_(seed) {}

  void run(Communicator& world, std::size_t calls) {
    open_channels(world);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    fill_tables();
    for (call_ = 0; call_ < calls; ++call_) {
      drawn_ = 0;
      channel_ = &channels_[below(channels_.size())];
      switch (below(8)) {
        case 0:
          ASSERT_TRUE(channel().barrier());
          break;
        case 1:
          broadcast();
          break;
        case 2:
          all_gather();
          break;
        case 3:
        case 4:
          reduce_scatter();
          break;
        default:
          all_reduce();
      }
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "call " << call_ << ", seed " << seed_;
    }
  }

 private:
  struct Channel {
    Communicator* communicator;
    std::vector<std::size_t> members;  ///< Replica numbers in the job.
    std::span<std::byte> memory;
    std::unique_ptr<Communicator> owned{};
  };

  static constexpr std::size_t kMemory = 5'000'000;
  static constexpr std::size_t kTable = 4'093;  ///< The values repeat with this period.

  /// Opens the world, every split of it, and splits of one group.
  void open_channels(Communicator& world) {
    self_ = self_of(world);
    replicas_ = world.size();
    outside_.resize(kMemory);
    channels_.push_back({&world, members_of(Group::all(), replicas_, self_), memory_of(world)});
    for (const Group split : all_splits(replicas_)) {
      open_group(0, split);
    }
    const std::size_t parent = channels_.size() - 1 - below(channels_.size() - 1);
    for (const Group split : all_splits(channels_[parent].members.size())) {
      open_group(parent, split);
    }
  }

  void open_group(std::size_t parent, Group split) {
    auto group = channels_[parent].communicator->group(split);
    ASSERT_TRUE(group) << group.error().message;
    const std::vector<std::size_t>& all = channels_[parent].members;
    const auto index = static_cast<std::size_t>(std::ranges::find(all, self_) - all.begin());
    std::vector<std::size_t> members;
    for (const std::size_t member : members_of(split, all.size(), index)) {
      members.push_back(all[member]);
    }
    Communicator* const communicator = group->get();
    channels_.push_back({communicator, std::move(members), memory_of(*communicator), std::move(*group)});
  }

  static std::span<std::byte> memory_of(Communicator& communicator) {
    const auto memory = communicator.allocate(Bytes{kMemory});
    EXPECT_TRUE(memory);
    return memory ? *memory : std::span<std::byte>{};
  }

  void fill_tables() {
    for (const TypedValues& values : kTypedValues) {
      for (std::size_t r = 0; r < replicas_; ++r) {
        for (std::size_t i = 0; i < kTable; ++i) {
          tables_.push_back(values.value(r, i));
        }
      }
    }
  }

  /// Returns the value of replica `number` at index `i` of a buffer in the current call.
  [[nodiscard]] std::uint32_t value(std::size_t type, std::size_t number, std::size_t i) const {
    return tables_[(type * replicas_ + number) * kTable + (i + 31 * call_) % kTable];
  }

  std::size_t below(std::size_t limit) { return philox(seed_, call_, drawn_++)[0] % limit; }

  /// Draws the number of elements of a buffer; one in a hundred is larger than a chunk.
  std::size_t draw_size() {
    switch (const std::size_t draw = below(100)) {
      case 0:
        return 250'000 + below(100'000);
      default:
        return draw < 10 ? 0 : below(draw < 50 ? 40 : (draw < 95 ? 2'000 : 30'000));
    }
  }

  [[nodiscard]] Communicator& channel() const { return *channel_->communicator; }
  [[nodiscard]] std::size_t members() const { return channel_->members.size(); }
  [[nodiscard]] std::size_t index() const { return self_of(channel()); }

  /// Returns the bytes for `count` elements in one of the memories; each buffer of a call, counted by `turn`, has its
  /// own part of each memory.
  std::span<std::byte> place(std::size_t count, std::size_t width, std::size_t turn = 0, std::size_t turns = 1) {
    const std::array<std::span<std::byte>, 3> memories = {channels_[0].memory, channel_->memory, outside_};
    const std::size_t begin = turn * (kMemory / turns) / 4 * 4 + width * below(70);
    return memories[below(memories.size())].subspan(begin, count * width);
  }

  void fill(std::size_t type, std::size_t number, std::span<std::byte> bytes) const {
    const std::size_t width = size_of(kTypedValues[type].type);
    for (std::size_t i = 0; i < bytes.size() / width; ++i) {
      const std::uint32_t word = value(type, number, i);
      std::memcpy(bytes.data() + i * width, &word, width);
    }
  }

  /// Compares up to 24 elements with `expected(i)`.
  template <typename Expected>
  void compare(std::size_t type, std::span<const std::byte> bytes, const Expected& expected) const {
    const std::size_t width = size_of(kTypedValues[type].type);
    const std::size_t count = bytes.size() / width;
    const std::size_t stride = 1 + count / 23;
    for (std::size_t i = 0; i < count; i = i + 1 == count ? count : std::min(i + stride, count - 1)) {
      std::uint32_t found = 0;
      std::memcpy(&found, bytes.data() + i * width, width);
      const std::uint32_t wanted = expected(i);
      ASSERT_EQ(found, wanted) << std::hex << "element " << i << " of " << count << " is " << found << ", not "
                               << wanted;
    }
  }

  void expect_reduced(std::size_t type, Reduction reduction, std::span<const std::byte> bytes,
                      std::size_t first = 0) const {
    compare(type, bytes, [&](std::size_t i) {
      std::vector<std::uint32_t> values;
      for (const std::size_t member : channel_->members) {
        values.push_back(value(type, member, first + i));
      }
      return kTypedValues[type].reduced(reduction, values);
    });
  }

  void expect_values_of(std::size_t number, std::span<const std::byte> bytes) const {
    compare(2, bytes, [&](std::size_t i) { return value(2, number, i); });
  }

  Reduction draw_reduction(bool integers) {
    constexpr std::array kAll = {Reduction::kSum, Reduction::kMax, Reduction::kMean};
    return kAll[below(integers ? 2 : 3)];
  }

  void all_reduce() {
    const std::size_t count = 1 + below(3);
    const Reduction reduction = draw_reduction(true);
    std::array<std::size_t, 3> types{};
    std::vector<Buffer> buffers;
    for (std::size_t b = 0; b < count; ++b) {
      types[b] = below(3);
      const ElementType type = kTypedValues[types[b]].type;
      buffers.push_back({type, place(draw_size(), size_of(type), b, count)});
      fill(types[b], self_, buffers[b].bytes);
    }

    ASSERT_TRUE(channel().all_reduce(reduction, buffers));

    for (std::size_t b = 0; b < count; ++b) {
      expect_reduced(types[b], reduction, buffers[b].bytes);
    }
  }

  void reduce_scatter() {
    const std::size_t type = below(3);
    const ElementType element = kTypedValues[type].type;
    const Reduction reduction = draw_reduction(element == ElementType::kI32);
    const std::size_t shard_size = draw_size() / members();
    const std::span<std::byte> data = place(shard_size * members(), size_of(element), 0, 2);
    const std::span<std::byte> shard = place(shard_size, size_of(element), 1, 2);
    fill(type, self_, data);

    ASSERT_TRUE(channel().reduce_scatter(reduction, element, data, shard));

    expect_reduced(type, reduction, shard, index() * shard_size);
    compare(type, data, [&](std::size_t i) { return value(type, self_, i); });
  }

  void all_gather() {
    const std::size_t size = 4 * (draw_size() / members());
    const std::span<std::byte> all = place(size * members(), 1, 0, 2);
    const bool in_place = below(2) == 0;
    const std::span<std::byte> elsewhere = place(size, 1, 1, 2);
    const std::span<std::byte> mine = in_place ? all.subspan(index() * size, size) : elsewhere;
    fill(2, self_, mine);

    ASSERT_TRUE(channel().all_gather(mine, all));

    for (std::size_t m = 0; m < members(); ++m) {
      expect_values_of(channel_->members[m], all.subspan(m * size, size));
    }
  }

  void broadcast() {
    const std::span<std::byte> data = place(draw_size(), 4);
    const std::size_t root = below(members());
    fill(2, self_, data);

    ASSERT_TRUE(channel().broadcast(data, static_cast<ReplicaId>(root)));

    expect_values_of(channel_->members[root], data);
  }

  std::uint64_t seed_;
  std::size_t self_ = 0;
  std::size_t replicas_ = 0;
  std::vector<Channel> channels_;
  std::vector<std::byte> outside_;
  std::vector<std::uint32_t> tables_;  ///< [type, replica, kTable]
  std::size_t call_ = 0;
  std::size_t drawn_ = 0;  ///< Numbers drawn for the current call.
  Channel* channel_ = nullptr;
};

}  // namespace poprun::contract
