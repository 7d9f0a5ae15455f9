#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/onnx_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/wire/bounds.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// The gRPC side of a job: the Coordinator service of proto/coordinator.proto.
///
/// gRPC's threads only post to the loop, whose thread owns all state, here and in the job. Parts of checkpoints go to a
/// separate thread, which waits for the disk.
///
/// A client without a token can use only the resources that bound_clients allows. A connection may have one open call
/// per replica of an instance, and 16 more. A client with the token may send 4 MiB per message. At any time, each
/// instance may have two heartbeats, two reports and two transfers of weights or models open. Each replica may have two
/// parts of checkpoints open in each direction. Each instance may report four failures. Calls beyond these limits get
/// RESOURCE_EXHAUSTED, and messages that bounds.h rejects get INVALID_ARGUMENT. The next message of a call is read only
/// after the loop has handled the previous one.
namespace poprun::launcher {

/// Receives the messages from instances. All functions are called on the loop's thread.
class CoordinatorEvents {
 public:
  CoordinatorEvents() = default;
  CoordinatorEvents(const CoordinatorEvents&) = delete;
  CoordinatorEvents& operator=(const CoordinatorEvents&) = delete;
  virtual ~CoordinatorEvents() = default;

  /// Called when an instance joins. An error rejects the instance and is sent to it.
  virtual Status on_join(const proto::JoinRequest& request) = 0;
  virtual void on_beat(const proto::Beat& beat) = 0;
  /// Called when the heartbeats of an instance end; `orderly` is true if the instance announced the end.
  virtual void on_leave(std::uint32_t instance, bool orderly) = 0;
  /// Called for each item of a report. An error ends the report stream and is sent to the instance.
  virtual Status on_report(const proto::ReportItem& item) = 0;
  /// Called when the report is complete or has been cut off. An error is sent to the replica.
  virtual Status on_report_end() = 0;
  /// Called when an instance has failed. The instance waits until `Coordinator::close`.
  virtual void on_failure(const proto::Failure& failure) = 0;
};

/// An interface, so that only the implementation includes gRPC's headers, which take a long time to compile.
class Coordinator {
 public:
  struct Setup {
    std::string bind_host;  ///< An address of this machine; the system chooses the port.
    std::string token;      ///< Required on every call, unless it is empty.
    /// Required on every call, too: an instance of an earlier attempt, which may have the same token, is turned away.
    std::uint64_t epoch = 0;
    std::optional<TlsIdentity> identity = std::nullopt;  ///< Without it, connections are plain text.
    JobSize job{};                                       ///< Bounds the messages from instances (bounds.h).
    double launched_at = 0;                              ///< `monotonic_seconds()` at the launcher's start.
    const std::vector<Tensor>& initial_weights;          ///< For replica 0; may be empty; must outlive this.
    const OnnxFile& onnx_model;                          ///< May be empty; must outlive this.
    CheckpointWriter& checkpoints;                       ///< Used only by the disk's thread; must outlive this.
    std::string resumed_state;                           ///< Path of the state to resume from; may be empty.
  };

  /// Listens and serves. `loop` and `events` must outlive `stop`. Errors: kHostResources if no port could be bound.
  static Result<std::unique_ptr<Coordinator>> start(asio::io_context& loop, CoordinatorEvents& events, Setup setup);

  Coordinator() = default;
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  /// Requires: `stop` has posted `stopped`, or no call ever came.
  virtual ~Coordinator() = default;

  [[nodiscard]] virtual int port() const = 0;

  /// Answers all Joins, both pending and future ones.
  virtual void open(const proto::JoinReply& reply) = 0;

  /// Call this when the outcome of the job is decided. Tells all Joins, both pending and future ones, that the job is
  /// over, so that their instances leave without printing a message. Releases the instances that have failed.
  virtual void close() = 0;

  /// Asks every instance, including those that send heartbeats later, to hold before its next part.
  virtual void request_drain() = 0;
  /// Asks every instance that is on hold to begin no part after `last_part`, to save, and to leave.
  virtual void stop_after(std::uint64_t last_part) = 0;

  /// Asks every instance for a checkpoint after this step.
  virtual void request_checkpoint(std::uint64_t step) = 0;

  /// Tells every instance whether a replica of the job is waiting for the data server, so that replicas waiting for
  /// that replica extend their deadlines.
  virtual void excuse(bool excused) = 0;

  /// Ends all calls, then posts `stopped` to the loop, which must keep running until then.
  virtual void stop(const std::function<void()>& stopped) = 0;
};

double monotonic_seconds();

}  // namespace poprun::launcher
