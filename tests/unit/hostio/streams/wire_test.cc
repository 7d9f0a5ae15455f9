#include "hostio/streams/wire.h"

#include <map>
#include <numeric>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

namespace poprun::hostio::wire_test {
namespace {

constexpr std::uint32_t kLarge = 5000;

/// Items of three tensors: a large one that is in memory for every second item, a small one, and labels.
class Mixed final : public Dataset {
 public:
  explicit Mixed(std::uint32_t items) : Dataset(facts(items)) {
    for (std::uint32_t item = 0; item < items; ++item) {
      kept_[item] = std::string(kLarge, static_cast<char>('a' + item));
    }
  }

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    const std::string bytes = expected(sample.item, tensor);
    POPRUN_CHECK(bytes.size() == destination.size());
    std::ranges::copy(std::as_bytes(std::span(bytes)), destination.begin());
    return {};
  }

  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample, int tensor) const override {
    return tensor == 0 && sample.item % 2 == 0 ? std::as_bytes(std::span(kept_.at(sample.item)))
                                               : std::span<const std::byte>();
  }

  [[nodiscard]] std::string expected(std::uint64_t item, int tensor) const {
    return tensor == 0 ? kept_.at(item) : std::string(tensor == 1 ? 3 : 4, static_cast<char>(item));
  }

 private:
  static proto::Dataset facts(std::uint32_t items) {
    proto::Dataset facts;
    add_tensor(facts, "images", "u8", {kLarge});
    add_tensor(facts, "colours", "u8", {3});
    add_tensor(facts, "labels", "i32", {});
    facts.set_test_items(items);
    facts.set_fingerprint("print");
    return facts;
  }

  std::map<std::uint64_t, std::string> kept_;
};

Sampler sampler_of(std::uint32_t items, std::uint32_t batch) {
  proto::Selection selection;
  selection.set_split(proto::SPLIT_TEST);
  selection.set_replica_count(1);
  selection.set_micro_batch_size(batch);
  selection.set_micro_batches_per_step(1);
  return *Sampler::make(selection, items);
}

std::string bytes_of(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(message.Dump(&slices).ok());
  std::string all;
  for (const grpc::Slice& slice : slices) {
    all.append(slice.begin(), slice.end());
  }
  return all;
}

TEST(Wire, CarriesSamplesInMemoryAndOthersInOrder) {
  auto dataset = std::make_shared<const Mixed>(5);
  const std::weak_ptr<const Mixed> alive = dataset;
  Result<grpc::ByteBuffer> message =
      encode_batch(dataset, proto::SPLIT_TEST, sampler_of(5, 4), /*sequence=*/1);  // Item 4, then padding.
  ASSERT_TRUE(message) << message.error().message;
  std::vector<std::string> expected(3);
  for (const std::uint64_t item : {4U, 0U, 1U, 2U}) {
    for (int t = 0; t < 3; ++t) {
      expected[static_cast<std::size_t>(t)] +=
          t == 2 && item != 4 ? std::string(4, '\xFF') : dataset->expected(item, t);
    }
  }
  proto::Batch parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes_of(*message)));
  EXPECT_EQ(std::vector<std::string>(parsed.tensors().begin(), parsed.tensors().end()), expected);

  dataset.reset();
  EXPECT_FALSE(alive.expired()) << "the message refers to its bytes";
  const Result<ReceivedBatch> received = decode_batch(std::move(*message));
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->batch.sequence, 1U);
  EXPECT_EQ(received->fingerprint, "print");
  EXPECT_FALSE(received->loading);
  ASSERT_EQ(received->batch.tensors.size(), expected.size());
  for (std::size_t t = 0; t < expected.size(); ++t) {
    const HostBytes& tensor = received->batch.tensors[t];
    EXPECT_EQ(tensor.text(), expected[t]);
    std::string middle(tensor.size() / 2, '\0');
    tensor.copy(tensor.size() / 4, std::as_writable_bytes(std::span(middle)));
    EXPECT_EQ(middle, expected[t].substr(tensor.size() / 4, middle.size()));
  }
}

TEST(Wire, RefusesDamagedMessages) {
  const auto dataset = std::make_shared<const Mixed>(2);
  Result<grpc::ByteBuffer> message = encode_batch(dataset, proto::SPLIT_TEST, sampler_of(2, 2), /*sequence=*/0);
  ASSERT_TRUE(message);
  const std::string whole = bytes_of(*message);
  for (std::size_t size : {std::size_t{1}, std::size_t{3}, std::size_t{20}, whole.size() / 2, whole.size() - 1}) {
    const grpc::Slice part(whole.substr(0, size));
    EXPECT_FALSE(decode_batch(grpc::ByteBuffer(&part, 1))) << size;
  }
  const grpc::Slice unknown(std::string("\x78\x01"));
  EXPECT_FALSE(decode_batch(grpc::ByteBuffer(&unknown, 1)));
}

}  // namespace
}  // namespace poprun::hostio::wire_test
