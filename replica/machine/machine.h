#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/repeated_field.h>

#include "proto/program.pb.h"
#include "replica/base/error.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/host_io.h"
#include "replica/ports/communicator.h"

/// A replica's operations other than computation: streams to and from the host, exchanges between replicas, and
/// initialisation of variables. Each file of this folder contains one machine operation, possibly with its
/// counterparts, and all its faces (interface methods). To add one, add a file, its value in operations.h and its
/// message in proto/program.proto. A machine operation has three forms, all of which its file handles: a value
/// (`AllReduce`), an operation in a graph (`a = all_reduce(a) reduction="mean"`) and a step of a Program.
namespace poprun {

/// The system on which one replica's operations run.
struct ReplicaSystem {
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
};

/// The tensors that a step names, as indices into the Program's tensors. Exchanged tensors are both read and written;
/// they hold the exchanged value from the step that ends the exchange onwards.
struct StepTensors {
  std::vector<std::uint32_t> reads = {};
  std::vector<std::uint32_t> writes = {};
  std::vector<std::uint32_t> begins_exchange = {};
  std::vector<std::uint32_t> ends_exchange = {};
};

/// These functions convert between the tensor lists of steps and those of graph operations.
inline void add_tensors(const std::vector<TensorId>& ids, google::protobuf::RepeatedField<std::uint32_t>& target) {
  for (const TensorId id : ids) {
    target.Add(index_of(id));
  }
}

inline std::vector<std::uint32_t> ids_of(const google::protobuf::RepeatedField<std::uint32_t>& tensors) {
  return {tensors.begin(), tensors.end()};
}

/// A running replica as a machine operation sees it.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  virtual ~Machine() = default;

  /// Returns a tensor's name, type and bytes. The bytes do not move while the machine exists, except between steps those
  /// of tensors that only operators and copies name. Only steps that read the tensor may use this if its image may be
  /// shared (proto::Tensor.common).
  [[nodiscard]] virtual HostTensor tensor(std::uint32_t id) const = 0;

  /// A part of a tensor's elements.
  struct TensorPart {
    std::span<std::byte> bytes;
    std::size_t begin = 0;  ///< Index of the first element.
  };
  /// Returns the elements that this replica must write for a tensor to be written: all, or, if replicas share the
  /// image, those that it owns.
  [[nodiscard]] virtual TensorPart part_to_write(std::uint32_t id) const = 0;

  /// Returns whether replicas of this host share the tensor's image.
  [[nodiscard]] virtual bool is_shared(std::uint32_t id) const = 0;

  /// Returns the bytes in which a step writes a whole tensor, with `publish` afterwards. They are outside the tensor's
  /// image if replicas share it.
  [[nodiscard]] virtual HostTensor draft(std::uint32_t id) const = 0;
  virtual void publish(std::uint32_t id) const = 0;

  [[nodiscard]] virtual Communicator& communicator() = 0;

  /// Returns the communicator of this host's replicas if they are all replicas of the job and divide divisible steps
  /// among themselves; otherwise null.
  [[nodiscard]] virtual Communicator* owners() = 0;

  /// Returns whether a divisible tensor has been reduced since a step completed it, and forgets this.
  virtual bool take_reduced(std::uint32_t id) = 0;

  /// Returns the communicator of the replica's group of `size` consecutive replicas, or of all replicas if `size` is 0.
  /// All replicas must ask for the same groups in the same order. Errors: those of Communicator::group.
  virtual Result<Communicator*> group(std::size_t size) = 0;

  [[nodiscard]] virtual HostIo& host() = 0;
  [[nodiscard]] virtual std::uint64_t seed() const = 0;
  [[nodiscard]] virtual std::uint32_t micro_batch() const = 0;

  /// Returns the offset to add to the entries of remote buffers that the running function names.
  [[nodiscard]] virtual std::uint32_t entry() const = 0;

  /// Runs a function of the Program. Its micro-batch index is the sum of `micro_batch`, the caller's index and the
  /// round of the running repeat; its offset of entries is the sum of `entry` and the caller's offset. `salts` must
  /// outlive the call.
  virtual Status call(const std::string& function, std::uint32_t micro_batch, std::uint32_t entry,
                      std::span<const std::string> salts) = 0;

  /// Checks tensors. Errors: kData for the first one that must be finite but is not; `use` describes their reader.
  virtual Status check_finite(std::span<const std::uint32_t> tensors, std::string_view use) = 0;
};

/// The activity to which the wall time of a machine operation is added.
enum class Spends : std::uint8_t {
  kWaitingForReplicas,
  kWaitingForHost,
  kComputing,
  kNothing,  ///< The steps of the called function account for the time.
};

/// A machine operation's step, prepared once and run many times.
class Action {
 public:
  Action() = default;
  Action(const Action&) = delete;
  Action& operator=(const Action&) = delete;
  virtual ~Action() = default;

  virtual Status run() = 0;

  /// Describes the activity for the heartbeat, such as "all-reduce of 8 tensors". Empty if the action never waits.
  [[nodiscard]] virtual std::string activity() const = 0;
};

/// A machine operation with its faces.
struct MachineOperation {
  std::string_view kind;       ///< Its name in graphs.
  proto::Step::KindCase step;  ///< Its step in Programs.
  Spends spends = Spends::kComputing;

  /// Checks operands and attributes of one use. Errors: kUsage; the message states which of them is wrong and why.
  Status (*verify)(const Graph&, const Operation&) = nullptr;

  /// Returns the device time of one execution on its own.
  DeviceTime (*time)(const Device&, const ReplicaSystem&, const Graph&, const Operation&) = nullptr;

  /// Fills in the step, except for number, cost and releases. Requires: `verify` accepts the operation.
  void (*lower)(const Operation&, proto::Step&) = nullptr;

  StepTensors (*tensors)(const proto::Step&) = nullptr;

  /// Prepares a step to run. Errors: kBug if the step is impossible.
  Result<std::unique_ptr<Action>> (*prepare)(const proto::Step&, Machine&) = nullptr;
};

/// Returns the tensors that a step itself names, whether or not it executes an operator. A repeat itself names none.
StepTensors tensors_of(const proto::Step& step);

/// Returns every machine operation, sorted by kind.
const std::vector<MachineOperation>& all_machine_operations();

/// Returns the machine operation of that kind, or null; the kind may then be an operator of replica/ops.
const MachineOperation* find_machine_operation(std::string_view kind);

/// Returns the machine operation of a Program's step, or null if the step executes an operator or is a repeat.
const MachineOperation* find_machine_operation(const proto::Step& step);

}  // namespace poprun
