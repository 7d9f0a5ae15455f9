#include "hostio/streams/wire.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpc/slice.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

namespace poprun::hostio {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr std::uint32_t kSequenceTag =
    WireFormatLite::MakeTag(proto::Batch::kSequenceFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr std::uint32_t kTensorTag =
    WireFormatLite::MakeTag(proto::Batch::kTensorsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

constexpr std::uint32_t kFingerprintTag =
    WireFormatLite::MakeTag(proto::Batch::kFingerprintFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

constexpr std::uint32_t kLoadingTag =
    WireFormatLite::MakeTag(proto::Batch::kLoadingFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

/// Adds the next `size` bytes of the input to `bytes`. Returns false if the input ends first.
bool add_bytes(CodedInputStream& input, std::uint32_t size, HostBytes& bytes) {
  while (size > 0) {
    const void* data = nullptr;
    int available = 0;
    if (!input.GetDirectBufferPointer(&data, &available)) {
      return false;
    }
    const int count = static_cast<int>(std::min(size, static_cast<std::uint32_t>(available)));
    bytes.add({static_cast<const std::byte*>(data), static_cast<std::size_t>(count)});
    input.Skip(count);
    size -= static_cast<std::uint32_t>(count);
  }
  return true;
}

/// Reads the field that `tag` begins. Returns false if it is damaged or unknown.
bool read_field(CodedInputStream& input, std::uint32_t tag, const std::shared_ptr<const grpc::ByteBuffer>& message,
                ReceivedBatch& received) {
  if (tag == kSequenceTag) {
    return input.ReadVarint64(&received.batch.sequence);
  }
  std::uint32_t size = 0;
  if ((tag != kTensorTag && tag != kFingerprintTag && tag != kLoadingTag) || !input.ReadVarint32(&size)) {
    return false;
  }
  if (tag == kTensorTag) {
    return add_bytes(input, size, received.batch.tensors.emplace_back(message));
  }
  std::string text;
  if (!input.ReadString(&text, static_cast<int>(size))) {
    return false;
  }
  if (tag == kFingerprintTag) {
    received.fingerprint = std::move(text);
    return true;
  }
  return received.loading.emplace().ParseFromString(text);
}

/// Smaller samples are copied, because a slice of their own would cost more.
constexpr std::uint64_t kKeptBytesMin = 4096;

/// Returns a slice that refers to bytes of the dataset, and keeps it alive.
grpc::Slice slice_of(std::span<const std::byte> bytes, const std::shared_ptr<const Dataset>& dataset) {
  using Owner = std::shared_ptr<const Dataset>;
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),  // gRPC only reads the bytes.
          [](void* owner) { delete static_cast<Owner*>(owner); }, new Owner(dataset)};
}

bool is_label(const proto::StreamTensor& tensor) {
  return tensor.name() == "labels" || tensor.name() == "next_sentence";
}

}  // namespace

std::uint64_t batch_bytes(const proto::Dataset& description, std::uint32_t micro_batch_size) {
  std::uint64_t bytes = 0;
  for (const proto::StreamTensor& tensor : description.tensors()) {
    std::uint64_t tensor_bytes = 0;
    if (__builtin_mul_overflow(sample_bytes(tensor), micro_batch_size, &tensor_bytes) ||
        __builtin_add_overflow(bytes, tensor_bytes, &bytes)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return bytes;
}

Result<grpc::ByteBuffer> encode_batch(const std::shared_ptr<const Dataset>& dataset, proto::Split split,
                                      const Sampler& sampler, std::uint64_t sequence) {
  const proto::Dataset& description = dataset->description();
  std::vector<std::uint64_t> items(sampler.micro_batch_size());
  const std::size_t counted = sampler.items_of(sequence, items);
  const Sample first{.split = split, .seed = sampler.seed(), .epoch = sampler.epoch_of(sequence)};
  const auto sample_of = [&](std::size_t j) {
    Sample sample = first;
    sample.item = items[j];
    return sample;
  };
  const auto is_padded = [&](int t) { return counted < items.size() && is_label(description.tensors(t)); };

  std::size_t size = CodedOutputStream::VarintSize32(kSequenceTag) + CodedOutputStream::VarintSize64(sequence);
  const std::string& fingerprint = description.fingerprint();
  size += CodedOutputStream::VarintSize32(kFingerprintTag) + CodedOutputStream::VarintSize64(fingerprint.size()) +
          fingerprint.size();
  // The bytes of each large sample of each tensor, or empty to copy them. A padded label is not the dataset's.
  std::vector<std::vector<std::span<const std::byte>>> kept(static_cast<std::size_t>(description.tensors_size()));
  for (int t = 0; t < description.tensors_size(); ++t) {
    const std::uint64_t bytes = sample_bytes(description.tensors(t));
    size += CodedOutputStream::VarintSize32(kTensorTag) + CodedOutputStream::VarintSize64(bytes * items.size());
    size += bytes * items.size();
    const std::size_t end = bytes < kKeptBytesMin ? 0 : is_padded(t) ? counted : items.size();
    for (std::size_t j = 0; j < end; ++j) {
      const std::span<const std::byte> stored = dataset->kept(sample_of(j), t);
      size -= stored.size();
      kept[static_cast<std::size_t>(t)].push_back(stored);
    }
  }

  const grpc::Slice copied(grpc_slice_malloc(size), grpc::Slice::STEAL_REF);
  auto* at = const_cast<std::uint8_t*>(copied.begin());  // The message is not shared yet.
  std::vector<grpc::Slice> slices;
  std::size_t in_slices = 0;
  const auto add_copied = [&] {
    const auto end = static_cast<std::size_t>(at - copied.begin());
    if (end > in_slices) {
      slices.push_back(copied.sub(std::exchange(in_slices, end), end));
    }
  };
  at = CodedOutputStream::WriteVarint32ToArray(kSequenceTag, at);
  at = CodedOutputStream::WriteVarint64ToArray(sequence, at);
  at = CodedOutputStream::WriteVarint32ToArray(kFingerprintTag, at);
  at = CodedOutputStream::WriteVarint64ToArray(fingerprint.size(), at);
  at = std::ranges::copy(fingerprint, at).out;
  for (int t = 0; t < description.tensors_size(); ++t) {
    const std::uint64_t bytes = sample_bytes(description.tensors(t));
    at = CodedOutputStream::WriteVarint32ToArray(kTensorTag, at);
    at = CodedOutputStream::WriteVarint64ToArray(bytes * items.size(), at);
    const auto& stored = kept[static_cast<std::size_t>(t)];
    const std::size_t labelled = is_padded(t) ? counted : items.size();
    for (std::size_t j = 0; j < labelled; ++j) {
      if (j < stored.size() && !stored[j].empty()) {
        add_copied();
        slices.push_back(slice_of(stored[j], dataset));
        continue;
      }
      POPRUN_TRY(dataset->read(sample_of(j), t, {reinterpret_cast<std::byte*>(at), bytes}));
      at += bytes;
    }
    at = std::fill_n(at, (items.size() - labelled) * bytes, std::uint8_t{0xFF});
  }
  POPRUN_CHECK(at == copied.end());
  add_copied();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

Result<ReceivedBatch> decode_batch(grpc::ByteBuffer message) {
  const auto kept = std::make_shared<grpc::ByteBuffer>();
  kept->Swap(&message);
  ReceivedBatch received;
  grpc::ProtoBufferReader reader(kept.get());
  CodedInputStream input(&reader);
  input.SetTotalBytesLimit(kMessageBytesMax);
  while (const std::uint32_t tag = input.ReadTag()) {
    if (!read_field(input, tag, kept, received)) {
      return fail(ErrorCode::kInfrastructure, "the data server sent a damaged batch");
    }
  }
  if (!input.ConsumedEntireMessage()) {
    return fail(ErrorCode::kInfrastructure, "the data server sent a damaged batch");
  }
  return received;
}

}  // namespace poprun::hostio
