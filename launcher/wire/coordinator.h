#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/outputs/checkpoint_writer.h"
#include "launcher/outputs/read_file.h"
#include "launcher/outputs/safetensors.h"
#include "launcher/wire/bounds.h"
#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// The gRPC side of a job: the Coordinator service of proto/coordinator.proto.
///
/// gRPC's threads only post to the loop; the loop's thread owns all state, here and in the job. The
/// parts of checkpoints go to another thread, which waits for the disk.
///
/// Whoever has no token costs no more than bound_clients says, with a call for each replica of an
/// instance and 16 more on a connection. One who has it may send 4 MiB a message, has two
/// heartbeats, two reports and two transfers of weights or models of each instance and two parts of
/// checkpoints each way of each replica open at once, and is heard with four failures of an
/// instance; more gets RESOURCE_EXHAUSTED, and what bounds.h refuses INVALID_ARGUMENT. The next
/// message is read when the loop has done with the last.
namespace poprun::launcher {

/// What instances tell the job. Every call comes on the loop's thread.
class CoordinatorEvents {
 public:
  CoordinatorEvents() = default;
  CoordinatorEvents(const CoordinatorEvents&) = delete;
  CoordinatorEvents& operator=(const CoordinatorEvents&) = delete;
  virtual ~CoordinatorEvents() = default;

  /// An error refuses the instance, with its message.
  virtual Status on_join(const proto::JoinRequest& request) = 0;
  virtual void on_beat(const proto::Beat& beat) = 0;
  /// The heartbeats of an instance ended; `orderly` when the instance said so itself.
  virtual void on_leave(std::uint32_t instance, bool orderly) = 0;
  /// An error ends the report stream, with its message.
  virtual Status on_report(const proto::ReportItem& item) = 0;
  /// The report is complete, or broke off. An error goes to the replica, with its message.
  virtual Status on_report_end() = 0;
  /// The instance stays until `Coordinator::close`.
  virtual void on_failure(const proto::Failure& failure) = 0;
};

class Coordinator {
 public:
  struct Setup {
    std::string bind_host;  ///< An address of this machine; the port is chosen by the system.
    std::string token;      ///< Asked of every call; empty: none is asked.
    std::optional<TlsIdentity> identity = std::nullopt;  ///< Asked of every connection, likewise.
    JobSize job{};           ///< What instances may say is checked against it (bounds.h).
    double launched_at = 0;  ///< `monotonic_seconds()` at the launcher's start.
    const std::vector<Tensor>& initial_weights;  ///< What replica 0 begins from; may be none.
    const OnnxFile& onnx_model;                  ///< Likewise. Both outlive the coordinator.
    CheckpointWriter& checkpoints;  ///< Belongs to the other thread from now on, and outlives this.
    std::string resumed_state;      ///< Path of the state to go on from; empty: none.
  };

  /// Listens and serves. `loop` and `events` must outlive `stop`.
  ///
  /// Errors
  ///   kHostResources  no port could be bound.
  static Result<std::unique_ptr<Coordinator>> start(asio::io_context& loop,
                                                    CoordinatorEvents& events, Setup setup);

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  /// Requires: `stop` ran and the loop with it, or no call ever came.
  ~Coordinator();

  [[nodiscard]] int port() const;

  /// Answers all Joins, those that wait and those to come.
  void open(const proto::JoinReply& reply);

  /// The job is decided. Answers all Joins, likewise, with its end: those instances leave without a
  /// word. Lets instances go that have failed.
  void close();

  /// Asks every instance to hold before its next part, also those that beat later.
  void request_drain();
  /// Asks every instance that holds to begin no part beyond this one, save and leave.
  void stop_after(std::uint64_t last_part);

  /// Asks every instance for a checkpoint after that step.
  void request_checkpoint(std::uint64_t step);

  /// Tells every instance whether a replica of the job waits for its data server, so that those who
  /// wait for that replica are patient.
  void excuse(bool excused);

  /// Ends all calls, then posts `stopped` to the loop, which must keep running until then.
  void stop(std::function<void()> stopped);

 private:
  class Service;
  explicit Coordinator(std::unique_ptr<Service> service);

  std::unique_ptr<Service> service_;
};

/// Seconds of a clock that never jumps; only differences mean something.
double monotonic_seconds();

}  // namespace poprun::launcher
