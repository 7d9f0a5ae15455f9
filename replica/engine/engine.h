#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/finite.h"
#include "replica/memory/arena.h"
#include "replica/ops/operator.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// One device tensor as the host sees it while a stream step runs.
struct HostTensor {
  std::string_view name;
  const TensorType& type;
  std::span<std::byte> bytes;
};

/// The host's side of the Program's stream steps.
class HostIo {
 public:
  HostIo() = default;
  HostIo(const HostIo&) = delete;
  HostIo& operator=(const HostIo&) = delete;
  virtual ~HostIo() = default;

  /// Writes every tensor of a StreamIn step.
  virtual Status write(const std::string& stream, std::span<const HostTensor> tensors) = 0;

  /// Reads every tensor of a StreamOut step.
  virtual Status read(const std::string& stream, std::span<const HostTensor> tensors) = 0;
};

/// Sees a Program run. Changes nothing: what it reads is the tensors' bytes between two steps.
class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  /// Around each step; of steps that repeat only around the last time.
  virtual void before(const proto::Step& step) = 0;
  virtual void after(const proto::Step& step) = 0;

  /// In the place of `after`, in any round of steps that repeat: the operator made a number that is
  /// not finite, and the run ends here. What is live is as the operator left it.
  virtual void broken_off(const proto::Step& step) = 0;
};

struct EngineOptions {
  std::uint64_t seed = 0;
  bool poison_dead =
      false;  ///< Fill bytes with NaN before their tensor is born and once it is dead.
  /// Stop at the first operator that makes a NaN, or an infinity of operands that have none.
  bool check_finite = true;
};

/// Seconds of wall time by what the replica did.
struct WallSeconds {
  double compute = 0;
  double exchange = 0;  ///< In collectives, waiting for peers included.
  double host = 0;      ///< In stream steps, waiting for data included.
};

/// Runs a Program's functions on one replica: for each step the kernel, copy or collective that it
/// lists, on the addresses that it plans, and nothing else.
///
/// Deterministic: the results are a function of (Program, seed, what the host writes). One thread.
class Engine {
 public:
  /// Allocates each IPU's memory through `communicator` (collective) and prepares every step.
  /// `program`, `communicator` and `host` must outlive the engine. `activity` is told what the
  /// replica is about to wait for.
  ///
  /// Errors: kHostResources, no memory for the arenas; kBug, the Program names what does not exist.
  static Result<std::unique_ptr<Engine>> create(const Program& program, Communicator& communicator,
                                                HostIo& host, const EngineOptions& options,
                                                std::function<void(std::string_view)> activity);

  /// Number of the training step that runs next, from 0: random numbers are a function of it.
  void set_step(std::uint64_t step) { moment_.step = step; }

  /// Lets gradients overflow or not, where a scaled loss has a way to deal with it.
  void set_check_finite(bool check) { options_.check_finite = check; }

  /// Runs one function to its end. Errors: those of the communicator and the host; kData, a number
  /// that is not finite (EngineOptions::check_finite), with operator, tensor, step and replica.
  /// Requires: the Program has it.
  Status run(const std::string& function);

  /// Device clock since the engine was made, or since `reset_clocks`.
  [[nodiscard]] const proto::Cost& device_cost() const { return device_cost_; }
  [[nodiscard]] const WallSeconds& wall() const { return wall_; }
  void reset_clocks();

  /// High-water mark of each IPU's memory.
  [[nodiscard]] std::vector<Bytes> high_water() const;

  /// Who sees the steps from now on; null: nobody. Must outlive its time.
  void set_observer(StepObserver* observer) { observer_ = observer; }

  /// A tensor's bytes, for inspection. Requires: the Program has it.
  [[nodiscard]] std::span<const std::byte> inspect(std::uint32_t tensor) const {
    return bytes_of(tensor);
  }

  /// A tensor's bytes, for inspection. Null span where the Program has no tensor of that name.
  [[nodiscard]] std::span<const std::byte> inspect(const std::string& name) const;

 private:
  struct Prepared {
    const proto::Step* step = nullptr;
    std::unique_ptr<Kernel> kernel;
    Operands operands;
    std::vector<std::uint32_t> checked;  ///< Outputs that a NaN could come up in.
    std::vector<HostTensor> host_tensors;
    std::vector<Buffer> exchanged;
    std::string activity;      ///< What it waits for, where it may wait.
    std::vector<Bytes> reach;  ///< By IPU: end of the highest tensor it names.
    std::vector<Prepared> repeated;
  };
  struct PreparedFunction {
    std::vector<Prepared> steps;
    proto::Cost cost;
  };

  Engine(const Program& program, Communicator& communicator, HostIo& host, EngineOptions options,
         std::function<void(std::string_view)> activity);

  Status allocate();
  Status prepare();
  Result<std::vector<Prepared>> prepare_steps(
      const google::protobuf::RepeatedPtrField<proto::Step>& steps);
  Status prepare_execute(const proto::Execute& execute, Prepared& prepared);
  void prepare_host(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                    const std::string& stream, std::string_view verb, Prepared& prepared);
  void bind_scratch(std::vector<Prepared>& steps);

  Status run_steps(std::vector<Prepared>& steps);
  Status run_step(Prepared& prepared);
  Status execute(Prepared& prepared);

  /// Whether the tensor may hold infinities where its maker was given some: constants, and what is
  /// computed on the way, but nothing that is streamed in or updated in place.
  [[nodiscard]] bool may_be_infinite(std::uint32_t tensor) const;

  /// Whether an operator with a result of that type was given infinities to pass on, or numbers
  /// that are as good as one: the masks of attention.
  [[nodiscard]] bool takes_extremes(const proto::Execute& step, DataType result) const;

  /// Errors: kData, the first of the tensors that is not finite and must be.
  Status check_finite(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                      std::string_view what) const;
  Status fail_not_finite(std::uint32_t tensor, const NotFinite& found, std::string_view what) const;
  void initialise(const proto::Initialise& step);
  void initialise(const proto::Initialise& step, std::span<float> values) const;
  void poison(const proto::Step& step);

  [[nodiscard]] std::span<std::byte> bytes_of(std::uint32_t tensor) const;
  [[nodiscard]] std::vector<Bytes> reach_of(const proto::Step& step) const;

  const Program& program_;
  Communicator& communicator_;
  HostIo& host_;
  EngineOptions options_;
  std::function<void(std::string_view)> activity_;
  std::vector<Arena> arenas_;          ///< One per IPU.
  std::vector<TensorType> types_;      ///< By tensor.
  std::set<std::uint32_t> from_host_;  ///< Tensors that a stream writes.
  std::map<std::string, PreparedFunction> functions_;
  Bytes scratch_size_;
  std::vector<std::byte> scratch_;  ///< Shared by all kernels, since one runs at a time.
  Moment moment_;
  StepObserver* observer_ = nullptr;
  bool last_round_ = true;  ///< Of the repeated steps under way.
  proto::Cost device_cost_;
  WallSeconds wall_;
};

}  // namespace poprun
