#pragma once

#include <asio/thread_pool.hpp>
#include <grpcpp/support/server_callback.h>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/wire/bounds.h"
#include "launcher/wire/seat.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// One replica's part of a checkpoint, on its way to the disk: a call of gRPC's, which reads a
/// piece once the one before is written. The writer is touched by `disk`, of one thread, only. Both
/// must outlive the call. A part that check_bounds refuses for `job` gets INVALID_ARGUMENT. The
/// call keeps its seat until it is over.
grpc::ServerReadReactor<proto::StatePiece>* receive_state(asio::thread_pool& disk,
                                                          CheckpointWriter& writer,
                                                          const JobSize& job, Seat seat);

}  // namespace poprun::launcher
