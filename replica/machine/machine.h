#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"
#include "replica/base/error.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/host_io.h"
#include "replica/ports/communicator.h"

/// What a replica does beside computing: streams to and from the host, exchanges between replicas,
/// setting variables up. One file of this folder is one machine operation with all its faces. To
/// add one is to add a file, its value in operations.h and its message in proto/program.proto.
///
/// So a machine operation is written in three ways, and its file knows all of them: as a value
/// (`AllReduce`), as an operation of a graph (`a = all_reduce(a) reduction="mean"`), and as a step
/// of a Program.
namespace poprun {

/// What the operations of one replica run over.
struct ReplicaSystem {
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
};

/// What a step names, by index into the Program's tensors. What is exchanged is both read and
/// written, and its value is the replicas' from the step on that ends the exchange.
struct StepTensors {
  std::vector<std::uint32_t> reads = {};
  std::vector<std::uint32_t> writes = {};
  std::vector<std::uint32_t> begins_exchange = {};
  std::vector<std::uint32_t> ends_exchange = {};
};

/// A running replica as a machine operation sees it.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  virtual ~Machine() = default;

  /// A tensor's name, type and bytes, which stay where they are for the life of the machine.
  [[nodiscard]] virtual HostTensor tensor(std::uint32_t id) const = 0;
  [[nodiscard]] virtual Communicator& communicator() = 0;
  [[nodiscard]] virtual HostIo& host() = 0;
  [[nodiscard]] virtual std::uint64_t seed() const = 0;

  /// Errors: kData, the first of the tensors that is not finite and must be; `use` says who reads.
  virtual Status check_finite(std::span<const std::uint32_t> tensors, std::string_view use) = 0;
};

enum class Waiting : std::uint8_t { kForReplicas, kForHost };

/// A machine operation's step, prepared once and run every time.
class Action {
 public:
  Action() = default;
  Action(const Action&) = delete;
  Action& operator=(const Action&) = delete;
  virtual ~Action() = default;

  virtual Status run() = 0;

  /// What the replica does meanwhile, for its heartbeat: "all-reduce of 8 tensors". Empty where it
  /// waits for nobody.
  [[nodiscard]] virtual std::string activity() const = 0;
};

/// A machine operation with its faces.
struct MachineOperation {
  std::string_view kind;                ///< In graphs.
  proto::Step::KindCase step;           ///< In Programs.
  Waiting waiting = Waiting::kForHost;  ///< What its wall time counts as.

  /// Checks operands and attributes of one use. Errors: kUsage, what is wrong with which.
  Status (*verify)(const Graph&, const Operation&) = nullptr;

  /// Device time of one execution by itself.
  DeviceTime (*time)(const Device&, const ReplicaSystem&, const Graph&, const Operation&) = nullptr;

  /// Fills in everything of the step that is its own: not number, cost and releases.
  /// Requires: `verify` holds.
  void (*lower)(const Operation&, proto::Step&) = nullptr;

  StepTensors (*tensors)(const proto::Step&) = nullptr;

  /// Errors: kBug, the step asks for what cannot be done.
  Result<std::unique_ptr<Action>> (*prepare)(const proto::Step&, Machine&) = nullptr;
};

/// What a step itself names: also of one that executes an operator; those inside a repeat are its
/// steps'.
StepTensors tensors_of(const proto::Step& step);

/// Every machine operation, sorted by kind.
const std::vector<MachineOperation>& all_machine_operations();

/// The machine operation of that kind, or null: then an operator of replica/ops may have it.
const MachineOperation* find_machine_operation(std::string_view kind);

/// The machine operation of a Program's step, or null where it executes an operator or repeats.
const MachineOperation* find_machine_operation(const proto::Step& step);

}  // namespace poprun
