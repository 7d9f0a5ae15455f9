#pragma once

#include <span>
#include <string>
#include <vector>

#include <asio/thread_pool.hpp>
#include <grpcpp/support/server_callback.h>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/onnx_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/wire/bounds.h"
#include "proto/coordinator.pb.h"

/// Functions that transfer data in pieces. Each sender is a gRPC call that runs on gRPC's threads, ends on its own, and
/// keeps its seat until then. The data must outlive the call and must not change.
namespace poprun::launcher {

grpc::ServerWriteReactor<proto::TensorChunk>* send_tensors(std::span<const Tensor> tensors, Seat seat);

grpc::ServerWriteReactor<proto::OnnxModelPiece>* send_onnx_file(const OnnxFile& file, Seat seat);

/// Sends tensors in this order, and reads their files piece by piece. An error in a file ends the call.
grpc::ServerWriteReactor<proto::TensorChunk>* send_stored(std::vector<StoredTensor> tensors, Seat seat);

/// Sends the tensors of a safetensors file as send_stored does.
grpc::ServerWriteReactor<proto::TensorChunk>* send_state(const std::string& path, Seat seat);

/// Receives one replica's part of a checkpoint in a gRPC call and writes it to the disk. The call reads a piece only
/// after the previous one has been written. Only `disk`, a pool of one thread, uses `writer`. Both must outlive the
/// call. A part that check_bounds rejects for `job` gets INVALID_ARGUMENT. The call keeps its seat until it is over.
grpc::ServerReadReactor<proto::StatePiece>* receive_state(asio::thread_pool& disk, CheckpointWriter& writer,
                                                          const JobSize& job, Seat seat);

}  // namespace poprun::launcher
