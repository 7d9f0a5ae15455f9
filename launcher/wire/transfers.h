#pragma once

#include <span>
#include <string>

#include <asio/thread_pool.hpp>
#include <grpcpp/support/server_callback.h>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/read_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/wire/bounds.h"
#include "launcher/wire/seat.h"
#include "proto/coordinator.pb.h"

/// What the launcher sends in pieces. Each sender is a call of gRPC's that runs on its threads and
/// ends by itself; what is sent must outlive it and not change. It keeps its seat until then.
namespace poprun::launcher {

grpc::ServerWriteReactor<proto::TensorChunk>* send_tensors(std::span<const Tensor> tensors,
                                                           Seat seat);

grpc::ServerWriteReactor<proto::OnnxModelPiece>* send_onnx_file(const OnnxFile& file, Seat seat);

/// The tensors of a safetensors file, read as they are sent. An error of the file ends the call.
grpc::ServerWriteReactor<proto::TensorChunk>* send_state(const std::string& path, Seat seat);

/// One replica's part of a checkpoint, on its way to the disk: a call of gRPC's, which reads a
/// piece once the one before is written. The writer is touched by `disk`, of one thread, only. Both
/// must outlive the call. A part that check_bounds refuses for `job` gets INVALID_ARGUMENT. The
/// call keeps its seat until it is over.
grpc::ServerReadReactor<proto::StatePiece>* receive_state(asio::thread_pool& disk,
                                                          CheckpointWriter& writer,
                                                          const JobSize& job, Seat seat);

}  // namespace poprun::launcher
