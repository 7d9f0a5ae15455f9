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

/// Writes one batch: copies small samples into one slice, and refers to large samples that the dataset keeps in memory.
class BatchEncoder {
 public:
  BatchEncoder(const std::shared_ptr<const Dataset>& dataset, proto::Split split, const Sampler& sampler,
               std::uint64_t sequence)
      : dataset_(dataset),
        description_(dataset->description()),
        sequence_(sequence),
        items_(sampler.micro_batch_size()),
        counted_(sampler.items_of(sequence, items_)),
        first_{.split = split, .seed = sampler.seed(), .epoch = sampler.epoch_of(sequence)},
        kept_(static_cast<std::size_t>(description_.tensors_size())),
        copied_(grpc_slice_malloc(find_kept()), grpc::Slice::STEAL_REF),
        at_(const_cast<std::uint8_t*>(copied_.begin())) {}  // The message is not shared yet.

  Result<grpc::ByteBuffer> encode() {
    const std::string& fingerprint = description_.fingerprint();
    at_ = CodedOutputStream::WriteVarint32ToArray(kSequenceTag, at_);
    at_ = CodedOutputStream::WriteVarint64ToArray(sequence_, at_);
    at_ = CodedOutputStream::WriteVarint32ToArray(kFingerprintTag, at_);
    at_ = CodedOutputStream::WriteVarint64ToArray(fingerprint.size(), at_);
    at_ = std::ranges::copy(fingerprint, at_).out;
    for (int t = 0; t < description_.tensors_size(); ++t) {
      POPRUN_TRY(add_tensor(t));
    }
    POPRUN_CHECK(at_ == copied_.end());
    add_copied();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  /// Fills `kept_`, and returns the number of bytes to copy.
  std::size_t find_kept() {
    const std::size_t length = description_.fingerprint().size();
    std::size_t size = CodedOutputStream::VarintSize32(kSequenceTag) + CodedOutputStream::VarintSize64(sequence_) +
                       CodedOutputStream::VarintSize32(kFingerprintTag) + CodedOutputStream::VarintSize64(length) +
                       length;
    for (int t = 0; t < description_.tensors_size(); ++t) {
      const std::uint64_t bytes = sample_bytes(description_.tensors(t));
      size += CodedOutputStream::VarintSize32(kTensorTag) + CodedOutputStream::VarintSize64(bytes * items_.size());
      size += bytes * items_.size();
      const std::size_t end = bytes < kKeptBytesMin ? 0 : labelled(t);
      for (std::size_t j = 0; j < end; ++j) {
        const std::span<const std::byte> sample = dataset_->kept(sample_of(j), t);
        size -= sample.size();
        kept_[static_cast<std::size_t>(t)].push_back(sample);
      }
    }
    return size;
  }

  Status add_tensor(int t) {
    const std::uint64_t bytes = sample_bytes(description_.tensors(t));
    at_ = CodedOutputStream::WriteVarint32ToArray(kTensorTag, at_);
    at_ = CodedOutputStream::WriteVarint64ToArray(bytes * items_.size(), at_);
    const auto& kept = kept_[static_cast<std::size_t>(t)];
    const std::size_t end = labelled(t);
    for (std::size_t j = 0; j < end; ++j) {
      if (j < kept.size() && !kept[j].empty()) {
        add_copied();
        slices_.push_back(slice_of(kept[j], dataset_));
        continue;
      }
      POPRUN_TRY(dataset_->read(sample_of(j), t, {reinterpret_cast<std::byte*>(at_), bytes}));
      at_ += bytes;
    }
    at_ = std::fill_n(at_, (items_.size() - end) * bytes, std::uint8_t{0xFF});
    return {};
  }

  /// Adds a slice of what was copied since the last one.
  void add_copied() {
    const auto end = static_cast<std::size_t>(at_ - copied_.begin());
    if (end > in_slices_) {
      slices_.push_back(copied_.sub(std::exchange(in_slices_, end), end));
    }
  }

  [[nodiscard]] Sample sample_of(std::size_t j) const {
    Sample sample = first_;
    sample.item = items_[j];
    return sample;
  }

  /// Returns the number of samples whose tensor comes from the dataset. The others are padding with labels of -1.
  [[nodiscard]] std::size_t labelled(int t) const {
    const std::string& name = description_.tensors(t).name();
    return name == "labels" || name == "next_sentence" ? counted_ : items_.size();
  }

  const std::shared_ptr<const Dataset>& dataset_;
  const proto::Dataset& description_;
  std::uint64_t sequence_;
  std::vector<std::uint64_t> items_;
  std::size_t counted_;
  Sample first_;
  std::vector<std::vector<std::span<const std::byte>>> kept_;  ///< For each large tensor: its samples, or empty ones.
  grpc::Slice copied_;
  std::uint8_t* at_;  ///< The next byte to copy to.
  std::vector<grpc::Slice> slices_{};
  std::size_t in_slices_ = 0;  ///< Copied bytes that are in slices.
};

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
  return BatchEncoder(dataset, split, sampler, sequence).encode();
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
