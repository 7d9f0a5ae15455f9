#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/copy_elision.h"
#include "replica/engine/device_memory.h"
#include "replica/engine/early_reductions.h"
#include "replica/engine/product_watch.h"
#include "replica/engine/sharing.h"
#include "replica/engine/value_judge.h"
#include "replica/machine/machine.h"
#include "replica/ops/face/operator.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// Watches a Program run. An observer changes nothing; it may read tensors between steps.
class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  /// Called before and after each step. For repeated or called steps, this happens only the last time they run, unless
  /// `sees_every_round` returns true.
  virtual void before(const proto::Step& step) = 0;
  virtual void after(const proto::Step& step) = 0;

  /// Called before and after the replicas of a host, of which there are `replicas`, meet or reduce gradients early.
  /// These exchanges are not steps of the Program and happen between its steps.
  virtual void before_exchange() {}
  virtual void after_exchange(std::size_t /*replicas*/) {}

  /// Called instead of `after`, in any round, when an operator's result is not finite, which ends the run. Live tensors
  /// are as the operator left them.
  virtual void broken_off(const proto::Step& step) = 0;

  [[nodiscard]] virtual bool sees_every_round() const { return false; }
};

struct EngineOptions {
  std::uint64_t seed = 0;
  bool poison_dead = false;  ///< Fill the bytes of tensors with NaN before and after their lifetimes.
  /// Stop at the first operator that produces a NaN, or an infinity from finite operands.
  bool check_finite = true;
  /// Stop at the first index out of range. Otherwise operators handle it as documented, and `stray_index` reports it.
  bool check_indices = true;
  /// The replicas of a host share the images of common tensors, and divide updates among themselves, so that after a
  /// step, a replica may lack results that others computed. Not if tensors live on tiles or the engine is given its
  /// memory.
  bool shares_images = true;
  bool elides_copies = true;  ///< Not if tensors live on tiles.
  /// Gradients are reduced during the backward pass when so many bytes of them are complete: for fewer, a meeting of
  /// the replicas costs more than it saves.
  std::size_t early_batch_bytes = std::size_t{8} << 20U;
  /// Returns the device time of a call of a function, with the training step, from 1, in which it is called. If empty,
  /// it is that of the Program.
  std::function<Cycles(std::string_view function, std::uint64_t step)> clock = {};
};

/// Work between two steps of a function: before the step with this index.
struct EngineBreak {
  std::size_t before_step = 0;
  std::function<Status()> work;  ///< May rehearse. All replicas must do the same exchanges.
};

/// Wall time that the replica spent on each activity, in seconds.
struct WallSeconds {
  double compute = 0;
  double exchange = 0;  ///< In collectives, including waiting for peers.
  double host = 0;      ///< In stream steps, including waiting for data.
};

/// Runs a Program's functions on one replica. For each step, it runs the kernel or machine operation listed, at the
/// planned addresses, and nothing else. If the Program has a layout of tiles, tensors live on the tiles, and in their
/// images only during steps that name them. The engine is deterministic: results are a function of (Program, seed, data
/// from the host). It is single-threaded.
class Engine final : private Machine {
 public:
  /// Allocates each IPU's memory through `communicator` (collective), unless `memory` contains it, and prepares every
  /// step. `program`, `communicator` and `host` must outlive the engine. `activity` is called with a description of
  /// what the replica is about to wait for. `memory[i]` has room for the images of IPU i (images_capacity) and comes
  /// from `communicator`; its content does not matter. Errors: kHostResources if there is no memory for the arenas;
  /// kBug if the Program names something that is missing.
  static Result<std::unique_ptr<Engine>> create(const Program& program, Communicator& communicator, HostIo& host,
                                                const EngineOptions& options,
                                                std::function<void(std::string_view)> activity,
                                                std::span<const std::span<std::byte>> memory = {});

  /// Sets the number of the next training step, counted from 0; random numbers are a function of it.
  void set_step(std::uint64_t step) { moment_.step = step; }

  /// Turns the check for finite results on or off; it is off while a loss scale handles overflowing gradients.
  void set_check_finite(bool check) { options_.check_finite = check; }

  /// Runs one function to its end. Errors: those of the communicator and the host; kData for a result that is not
  /// finite (EngineOptions::check_finite) or an index that is out of range (EngineOptions::check_indices), naming
  /// operator, tensor, step and replica; those of the break. Requires: the Program has the function, with more steps
  /// than the break's.
  Status run(const std::string& function, const EngineBreak& pause = {});

  /// Runs the first `steps` steps of a function with the random numbers of replica `as`, and takes no device time. Only
  /// `observer` watches. The values that it overwrites are lost. Collective if the steps are. Errors and requirements:
  /// those of `run`.
  Status rehearse(const std::string& function, std::size_t steps, ReplicaId as, StepObserver& observer);

  /// Returns the device time since the engine was created, or since `reset_clocks`.
  [[nodiscard]] Cycles device_time() const { return device_time_; }
  [[nodiscard]] const WallSeconds& wall() const { return wall_; }
  /// Sets the device clock to `device_time` and wall times to zero.
  void reset_clocks(Cycles device_time = {});

  /// Describes, in a phrase, the first index that was out of range but did not stop the engine; "" if there was none.
  [[nodiscard]] const std::string& stray_index() const { return stray_index_; }

  /// Return the high-water mark of each IPU's In-Processor Memory, and of its Streaming Memory.
  [[nodiscard]] std::vector<Bytes> high_water() const;
  [[nodiscard]] std::vector<Bytes> streaming_high_water() const;

  /// Returns the high-water marks of each IPU's tiles. The result is empty unless the Program has a layout of tiles.
  [[nodiscard]] std::vector<std::vector<Bytes>> tile_high_water() const;

  /// Adds or removes an observer of all further steps. Observers are called in the order in which they were added.
  void add_observer(StepObserver& observer) { observers_.push_back(&observer); }
  void remove_observer(StepObserver& observer) { std::erase(observers_, &observer); }
  void remove_observers() { observers_.clear(); }

  /// The value of a variable while no function runs: its own bytes, or the bytes of the tensor in which it resides.
  struct Resident {
    std::span<const std::byte> bytes;
    bool is_shard = false;  ///< The bytes are this replica's shard, padded with zeros.
  };
  [[nodiscard]] Resident resident(std::uint32_t tensor) const;

  /// Sets the value of a variable while no function runs. Requires: `bytes` is as long as the variable's Resident. If
  /// replicas share the variable's image, all of them must restore it, and then call `settle`.
  void restore(std::uint32_t tensor, std::span<const std::byte> bytes);

  /// Waits until all replicas of the host have restored what they share. Collective.
  Status settle() { return meet_if_needed({.reads = true}); }

  /// Returns a tensor's bytes, for inspection. Requires: the Program has the tensor.
  [[nodiscard]] std::span<const std::byte> inspect(std::uint32_t tensor) const;

  /// Returns whether replicas of this host share the variable's image.
  [[nodiscard]] bool is_shared(std::uint32_t id) const override { return images_->is_shared(id); }

  /// Inverts one bit of a tensor's middle element, as a fault of the memory would: the lowest bit of the exponent if
  /// elements are floating-point numbers. Requires: the tensor is not off-chip.
  void flip_bit(std::uint32_t tensor);

  /// Returns the index of the micro-batch that the running step belongs to; 0 outside of micro-batches.
  [[nodiscard]] std::uint32_t micro_batch() const override { return moment_.micro_batch; }

 private:
  /// A step ready to run: a kernel, a machine operation, or repeated steps.
  struct Prepared {
    const proto::Step* step = nullptr;
    DeviceMemory::Reach reach;
    std::vector<std::uint32_t> named;  ///< Tensors, in the order in which images are gathered.
    std::vector<std::uint32_t> writes;
    std::vector<std::uint32_t> completes;  ///< Tensors to reduce early.
    Sharing::Use sharing;
    std::vector<ImageMove> moves;  ///< To make before the step.
    bool is_view = false;          ///< The step does nothing.
    std::unique_ptr<Kernel> kernel;
    Operands operands;
    std::vector<std::uint32_t> checked;        ///< Outputs to check for NaN.
    std::optional<ProductWatch> watch;         ///< Tells whether output 0, which is checked, is finite.
    std::optional<std::uint32_t> overwritten;  ///< The input whose bytes an output overwrites.
    std::unique_ptr<Action> action;
    std::string activity;                 ///< Description of what the step waits for; empty if it never waits.
    double WallSeconds::*time = nullptr;  ///< Counter of an action's wall time, or null.
    std::vector<Prepared> repeated;
  };
  struct PreparedFunction {
    std::vector<Prepared> steps;
    Cycles device_time;
    std::uint32_t last_micro_batch = 0;  ///< Highest index with which the function is called.
  };

  Engine(const Program& program, Communicator& communicator, HostIo& host, EngineOptions options,
         std::function<void(std::string_view)> activity);

  Status allocate(std::span<const std::span<std::byte>> memory);
  Status prepare();
  Result<std::vector<Prepared>> prepare_steps(const google::protobuf::RepeatedPtrField<proto::Step>& steps);
  Status prepare_execute(const proto::Execute& execute, Prepared& prepared);
  void narrow(const proto::Execute& execute, const Cut& cut, Signature& signature, Operands& operands) const;
  void write_shared(const proto::Execute& execute, Operands& operands) const;
  [[nodiscard]] OwnedPart owned(std::uint32_t id) const;
  [[nodiscard]] std::vector<std::int64_t> addresses(
      const google::protobuf::RepeatedField<std::uint32_t>& tensors) const;
  void find_overwritten(const proto::Execute& execute, Prepared& prepared) const;
  Status prepare_action(Prepared& prepared);
  /// Calls `visit` with each prepared step of every function.
  template <typename Visit>
  void visit_prepared(const Visit& visit);
  void bind_scratch();
  void elide_copies();
  void find_last_calls(const google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t last);

  void begin_function();
  Status run_steps(std::span<Prepared> steps);
  /// Fills the bytes of dead tensors with NaN, if they are to be, except where the images of others still lie.
  void bury(const google::protobuf::RepeatedField<std::uint32_t>& dead);
  /// Updates the addresses of operands whose images move.
  void follow_images(Prepared& prepared) const;
  Status run_step(Prepared& prepared);
  Status meet_if_needed(const Sharing::Use& use);
  Status reduce_early(const Prepared& prepared);
  template <typename Collective>
  Status exchange(std::string_view activity, const Collective& collective);
  Status run_on_tiles(Prepared& prepared);
  void scatter_results(const Prepared& prepared);
  Status repeat(Prepared& prepared);
  Status execute(Prepared& prepared);
  Status take_stray(const proto::Execute& step);

  [[nodiscard]] HostTensor tensor(std::uint32_t id) const override;
  [[nodiscard]] std::size_t width_of(std::uint32_t id) const;
  [[nodiscard]] TensorPart part_to_write(std::uint32_t id) const override;
  [[nodiscard]] HostTensor draft(std::uint32_t id) const override;
  void publish(std::uint32_t id) const override;
  void write_part(std::uint32_t id, std::span<const std::byte> whole) const;
  [[nodiscard]] Communicator& communicator() override { return communicator_; }
  [[nodiscard]] Communicator* owners() override;
  bool take_reduced(std::uint32_t id) override { return early_.take(id); }
  Result<Communicator*> group(std::size_t size) override;
  [[nodiscard]] HostIo& host() override { return host_; }
  [[nodiscard]] std::uint64_t seed() const override { return options_.seed; }
  [[nodiscard]] std::uint32_t entry() const override { return entry_; }
  Status call(const std::string& function, std::uint32_t micro_batch, std::uint32_t entry,
              std::span<const std::string> salts) override;
  Status check_finite(std::span<const std::uint32_t> tensors, std::string_view use) override;

  const Program& program_;
  Communicator& communicator_;
  std::map<std::size_t, std::unique_ptr<Communicator>> groups_;  ///< The groups requested so far, keyed by size.
  HostIo& host_;
  EngineOptions options_;
  std::function<void(std::string_view)> activity_;
  std::vector<StreamingMemory> streaming_;  ///< Indexed by IPU.
  Sharing sharing_;
  EarlyReductions early_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<HostImages> images_;
  std::vector<bool> moving_;           ///< By tensor: whether its image moves. Empty if no image does.
  std::unique_ptr<TileMemory> tiles_;  ///< Null if tensors live in their images.
  std::vector<TensorType> types_;      ///< Indexed by tensor.
  std::optional<ValueJudge> judge_;    ///< Set when the images exist.
  std::map<std::string, PreparedFunction> functions_;
  Bytes scratch_size_;
  std::vector<std::byte> scratch_;  ///< Shared by all kernels, since one runs at a time.
  Moment moment_;
  std::optional<StrayIndex> stray_;  ///< Found by the last operator.
  std::string stray_index_;
  std::vector<StepObserver*> observers_;
  bool is_rehearsal_ = false;
  std::uint32_t round_ = 0;  ///< Round of the running repeat.
  std::uint32_t entry_ = 0;  ///< Offset added to the entries of remote buffers.
  bool last_ = true;         ///< Whether the running steps run for the last time in this function.
  Cycles device_time_;
  WallSeconds wall_;
};

}  // namespace poprun
