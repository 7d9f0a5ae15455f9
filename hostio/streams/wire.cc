#include "hostio/streams/wire.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpc/slice.h>

namespace poprun::hostio {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

constexpr std::uint32_t kSequenceTag =
    WireFormatLite::MakeTag(proto::Batch::kSequenceFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr std::uint32_t kTensorTag =
    WireFormatLite::MakeTag(proto::Batch::kTensorsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

constexpr std::uint32_t kFingerprintTag =
    WireFormatLite::MakeTag(proto::Batch::kFingerprintFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

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

Result<grpc::ByteBuffer> encode_batch(const Dataset& dataset, proto::Split split, const Sampler& sampler,
                                      std::uint64_t sequence) {
  const proto::Dataset& description = dataset.description();
  std::vector<std::uint64_t> items(sampler.micro_batch_size());
  const std::size_t counted = sampler.items_of(sequence, items);

  std::size_t size = CodedOutputStream::VarintSize32(kSequenceTag) + CodedOutputStream::VarintSize64(sequence);
  const std::string& fingerprint = description.fingerprint();
  size += CodedOutputStream::VarintSize32(kFingerprintTag) + CodedOutputStream::VarintSize64(fingerprint.size()) +
          fingerprint.size();
  for (const proto::StreamTensor& tensor : description.tensors()) {
    const std::uint64_t bytes = sample_bytes(tensor) * items.size();
    size += CodedOutputStream::VarintSize32(kTensorTag) + CodedOutputStream::VarintSize64(bytes) + bytes;
  }

  const grpc_slice slice = grpc_slice_malloc(size);
  grpc::Slice message(slice, grpc::Slice::STEAL_REF);
  auto* at = const_cast<std::uint8_t*>(message.begin());  // The message is not shared yet.
  at = CodedOutputStream::WriteVarint32ToArray(kSequenceTag, at);
  at = CodedOutputStream::WriteVarint64ToArray(sequence, at);
  at = CodedOutputStream::WriteVarint32ToArray(kFingerprintTag, at);
  at = CodedOutputStream::WriteVarint64ToArray(fingerprint.size(), at);
  at = std::ranges::copy(fingerprint, at).out;
  for (int t = 0; t < description.tensors_size(); ++t) {
    const std::uint64_t bytes = sample_bytes(description.tensors(t));
    at = CodedOutputStream::WriteVarint32ToArray(kTensorTag, at);
    at = CodedOutputStream::WriteVarint64ToArray(bytes * items.size(), at);
    for (std::size_t j = 0; j < items.size(); ++j) {
      const std::span sample(reinterpret_cast<std::byte*>(at), bytes);
      if (j >= counted && is_label(description.tensors(t))) {
        std::ranges::fill(sample, std::byte{0xFF});
      } else {
        const Sample which{
            .split = split, .item = items[j], .seed = sampler.seed(), .epoch = sampler.epoch_of(sequence)};
        POPRUN_TRY(dataset.read(which, t, sample));
      }
      at += bytes;
    }
  }
  POPRUN_CHECK(at == message.end());
  return grpc::ByteBuffer(&message, 1);
}

}  // namespace poprun::hostio
