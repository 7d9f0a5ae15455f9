#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/loops/loop.h"
#include "replica/program/program.h"

/// Records what a replica does, and when, on the wall clock.
namespace poprun {

/// Traces some training steps of one replica: a slice for each step of the Program as it ends, for each exchange
/// between replicas that share images, and for the pauses between training steps. Cost: two readings of the clock for
/// each step of the Program.
class StepTrace final : public StepWatcher, private StepObserver {
 public:
  struct Setup {
    std::uint32_t replica = 0;
    std::uint32_t replicas = 1;
    std::uint64_t first = 1;  ///< Training steps, from 1.
    std::uint64_t last = 1;
    std::uint64_t slices_max = 0;  ///< Maximum number of slices per training step.
  };
  using Send = std::function<void(proto::TracedSteps)>;

  /// Calls `send` about once a second, and after the last traced step. If a training step has more than `slices_max`
  /// slices, operators and copies that follow one another become one slice, and further slices are only counted.
  /// `program` must outlive this.
  StepTrace(const Program& program, const Setup& setup, Send send);

  /// Sends what has not been sent. Call it at the end of the loop.
  void flush();

 private:
  /// The kind of a step of the Program and the size of its group, by Step.number.
  struct Traits {
    proto::TraceKind kind = proto::TRACE_OPERATOR;
    std::uint32_t group = 0;
    bool is_traced = false;
  };

  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;
  void paused(Pause pause, double began) override;
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void before_exchange() override;
  void after_exchange(std::size_t replicas) override;
  void broken_off(const proto::Step& /*step*/) override {}
  [[nodiscard]] bool sees_every_round() const override { return true; }

  void find_traits(const google::protobuf::RepeatedPtrField<proto::Step>& steps);
  void finish_trace();
  [[nodiscard]] proto::StepTrace empty(std::uint64_t step, std::uint64_t began_ns) const;
  [[nodiscard]] bool extends_last(std::uint64_t end);
  [[nodiscard]] std::uint64_t take_began();
  /// Adds a slice inside the training step, or only counts it if there are too many.
  void add_part(proto::TraceKind kind, std::uint32_t number, std::uint32_t group, std::uint64_t began,
                std::uint64_t end);
  void add(proto::TraceKind kind, std::uint32_t number, std::uint32_t group, std::uint64_t began, std::uint64_t end);

  Setup setup_;
  Send send_;
  std::vector<Traits> traits_;
  bool merges_ = false;               ///< Whether operators become one slice.
  std::uint64_t step_ = 0;            ///< The last training step that was begun with a trace.
  std::uint64_t completed_ = 0;       ///< The last one that was completed.
  std::vector<std::uint64_t> began_;  ///< Start times of the running steps, outermost first.
  proto::StepTrace trace_;
  proto::TracedSteps unsent_;
  std::uint64_t unsent_slices_ = 0;
  std::uint64_t sent_ns_ = 0;  ///< Time of the last message.
};

}  // namespace poprun
