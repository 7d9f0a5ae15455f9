#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "hostio/datasets/dataset.h"
#include "hostio/sampling/sampling.h"
#include "replica/ports/host_stream.h"

/// Conventions that both ends of the HostStreams service share, in addition to proto/host_streams.proto.
namespace poprun::hostio {

/// Metadata key of the job token.
inline constexpr const char* kTokenKey = "poprun-token";

/// Largest sum of tensor bytes in a batch. It is more than any IPU's memory holds, so that a batch that does not fit is
/// reported as out of memory, and it is below the 2 GiB of a gRPC message. It bounds the cost of a wrong Selection.
inline constexpr std::uint64_t kBatchBytesMax = std::uint64_t{1} << 30;

/// Limit on a gRPC message at the client: the largest batch, and the few bytes around its tensors.
inline constexpr int kMessageBytesMax = static_cast<int>(kBatchBytesMax) + 4096;

std::uint64_t batch_bytes(const proto::Dataset& description, std::uint32_t micro_batch_size);

/// Returns a serialised proto::Batch, with the fingerprint of `dataset`. Large samples that the dataset keeps in memory
/// are not copied: the message refers to them, and keeps the dataset alive. All others are written directly into the
/// message. Padding repeats items of the dataset with labels of -1, or
/// NaN if labels are floats, so outputs that are finite for the items are finite for the padding, too. Determinism: a
/// pure function of its arguments. Errors: those of Dataset::read. Requires: sequence < sampler.batch_count(),
/// batch_bytes() <= kBatchBytesMax.
Result<grpc::ByteBuffer> encode_batch(const std::shared_ptr<const Dataset>& dataset, proto::Split split,
                                      const Sampler& sampler, std::uint64_t sequence);

/// A proto::Batch whose tensors remain in the message's own memory.
struct ReceivedBatch {
  HostBatch batch;
  std::string fingerprint;
  std::optional<proto::Loading> loading;
};

/// Reads a serialised proto::Batch without copying its tensors. Errors: kInfrastructure if it is damaged.
Result<ReceivedBatch> decode_batch(grpc::ByteBuffer message);

}  // namespace poprun::hostio
