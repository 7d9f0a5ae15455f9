#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/machine/exchange.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

/// Operations on the rows of a batch that all replicas share. The rows of the replicas follow one another, in the order
/// of the replicas. Unlike shards (shard.cc), which divide one value, each replica has rows of its own.
namespace poprun {
namespace machine::rows {
namespace {

constexpr std::string_view kGather = "gather_rows";
constexpr std::string_view kScatter = "scatter_rows";
constexpr std::string_view kOwn = "own_rows";

/// Checks that `all` has the rows of several replicas, if `own` has those of one.
Status verify_rows(const Graph& graph, const Operation& operation, const TensorId& own, const TensorId& all) {
  const TensorType& one = graph.tensor(own).type;
  const TensorType& many = graph.tensor(all).type;
  const bool row_major = one.layout == Layout::kRowMajor && many.layout == Layout::kRowMajor;
  const bool has_rows = one.shape.size() == many.shape.size() && !one.shape.empty();
  if (!has_rows || !row_major || one.data != many.data || many.shape[0] % one.shape[0] != 0 ||
      !std::equal(one.shape.begin() + 1, one.shape.end(), many.shape.begin() + 1)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: '{}' {} does not have the rows of several replicas, each with rows "
                                               "like '{}' {}",
                                               operation.kind, graph.tensor(all).name, to_text(many),
                                               graph.tensor(own).name, to_text(one)));
  }
  return {};
}

Status verify_form(const Operation& operation) {
  if (operation.inputs.size() != 1 || operation.outputs.size() != 1 || !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} needs one input and one output and accepts no attributes", operation.kind));
  }
  return {};
}

Status verify_gather(const Graph& graph, const Operation& operation) {
  POPRUN_TRY(verify_form(operation));
  return verify_rows(graph, operation, operation.inputs[0], operation.outputs[0]);
}

Status verify_own(const Graph& graph, const Operation& operation) {
  POPRUN_TRY(verify_form(operation));
  return verify_rows(graph, operation, operation.outputs[0], operation.inputs[0]);
}

Status verify_scatter(const Graph& graph, const Operation& operation) {
  POPRUN_TRY(verify_own(graph, operation));
  return verify_summable(graph, kScatter, operation.inputs);
}

DeviceTime time_gather(const Device& device, const ReplicaSystem& system, const Graph& graph,
                       const Operation& operation) {
  return time_of_gather(device, graph.bytes(operation.outputs), system.replicas, system.ipus_per_replica);
}

DeviceTime time_scatter(const Device& device, const ReplicaSystem& system, const Graph& graph,
                        const Operation& operation) {
  return time_of_scatter(device, graph.bytes(operation.inputs), system.replicas, system.ipus_per_replica);
}

void lower(const Operation& operation, proto::Rows& rows) {
  rows.set_from(index_of(operation.inputs[0]));
  rows.set_to(index_of(operation.outputs[0]));
}

void lower_gather(const Operation& operation, proto::Step& step) {
  lower(operation, *step.mutable_gather_rows());
}

void lower_scatter(const Operation& operation, proto::Step& step) {
  lower(operation, *step.mutable_scatter_rows());
}

void lower_own(const Operation& operation, proto::Step& step) {
  lower(operation, *step.mutable_own_rows());
}

StepTensors exchanged(const proto::Rows& rows) {
  return {
      .reads = {rows.from()}, .writes = {rows.to()}, .begins_exchange = {rows.from()}, .ends_exchange = {rows.to()}};
}

StepTensors tensors_gather(const proto::Step& step) {
  return exchanged(step.gather_rows());
}

StepTensors tensors_scatter(const proto::Step& step) {
  return exchanged(step.scatter_rows());
}

StepTensors tensors_own(const proto::Step& step) {
  return {.reads = {step.own_rows().from()}, .writes = {step.own_rows().to()}};
}

/// Returns the tensor with the rows of all replicas, `all`. Errors: kBug if it has another number of rows.
Result<HostTensor> rows_of_all(std::uint32_t all, std::uint32_t own, Machine& machine) {
  HostTensor tensor = machine.tensor(all);
  const HostTensor one = machine.tensor(own);
  if (tensor.bytes.size() != one.bytes.size() * machine.communicator().size()) {
    return fail(ErrorCode::kBug, fmt::format("'{}' does not have the rows of '{}' of {} replicas", tensor.name,
                                             one.name, machine.communicator().size()));
  }
  return tensor;
}

class GatherAction final : public Action {
 public:
  GatherAction(HostTensor own, HostTensor all, Communicator& replicas)
      : own_(std::move(own)), all_(std::move(all)), replicas_(replicas) {}

  Status run() override { return replicas_.all_gather(own_.bytes, all_.bytes, all_.name); }

  [[nodiscard]] std::string activity() const override { return "all-gather of rows"; }

 private:
  HostTensor own_;
  HostTensor all_;
  Communicator& replicas_;
};

Result<std::unique_ptr<Action>> prepare_gather(const proto::Step& step, Machine& machine) {
  const proto::Rows& rows = step.gather_rows();
  POPRUN_ASSIGN(HostTensor all, rows_of_all(rows.to(), rows.from(), machine));
  return std::make_unique<GatherAction>(machine.tensor(rows.from()), std::move(all), machine.communicator());
}

class ScatterAction final : public Action {
 public:
  ScatterAction(HostTensor all, HostTensor own, Communicator& replicas)
      : all_(std::move(all)), own_(std::move(own)), replicas_(replicas) {}

  Status run() override {
    return replicas_.reduce_scatter(Reduction::kSum, *element_type_of(all_.type.data), all_.bytes, own_.bytes,
                                    all_.name);
  }

  [[nodiscard]] std::string activity() const override { return "reduce-scatter of rows"; }

 private:
  HostTensor all_;
  HostTensor own_;
  Communicator& replicas_;
};

Result<std::unique_ptr<Action>> prepare_scatter(const proto::Step& step, Machine& machine) {
  const proto::Rows& rows = step.scatter_rows();
  POPRUN_ASSIGN(HostTensor all, rows_of_all(rows.from(), rows.to(), machine));
  if (!element_type_of(all.type.data)) {
    return fail(ErrorCode::kBug, fmt::format("the Program sums '{}', which has no numbers to sum", all.name));
  }
  return std::make_unique<ScatterAction>(std::move(all), machine.tensor(rows.to()), machine.communicator());
}

class OwnAction final : public Action {
 public:
  OwnAction(HostTensor all, HostTensor own, std::size_t self)
      : all_(std::move(all)), own_(std::move(own)), self_(self) {}

  Status run() override {
    const std::span<std::byte> own = all_.bytes.subspan(self_ * own_.bytes.size(), own_.bytes.size());
    std::memcpy(own_.bytes.data(), own.data(), own.size());
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  HostTensor all_;
  HostTensor own_;
  std::size_t self_;
};

Result<std::unique_ptr<Action>> prepare_own(const proto::Step& step, Machine& machine) {
  const proto::Rows& rows = step.own_rows();
  POPRUN_ASSIGN(HostTensor all, rows_of_all(rows.from(), rows.to(), machine));
  return std::make_unique<OwnAction>(std::move(all), machine.tensor(rows.to()),
                                     index_of(machine.communicator().self()));
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{kGather, proto::Step::kGatherRows, Spends::kWaitingForReplicas, verify_gather, time_gather, lower_gather,
           tensors_gather, prepare_gather},
          {kScatter, proto::Step::kScatterRows, Spends::kWaitingForReplicas, verify_scatter, time_scatter,
           lower_scatter, tensors_scatter, prepare_scatter},
          {kOwn, proto::Step::kOwnRows, Spends::kComputing, verify_own, time_of_copy_within_tiles, lower_own,
           tensors_own, prepare_own}};
}

}  // namespace machine::rows

Operation GatherRows::operation() const {
  return {std::string{machine::rows::kGather}, {own}, {all}, {}};
}

bool GatherRows::is(const Operation& operation) {
  return operation.kind == machine::rows::kGather;
}

Operation ScatterRows::operation() const {
  return {std::string{machine::rows::kScatter}, {all}, {own}, {}};
}

bool ScatterRows::is(const Operation& operation) {
  return operation.kind == machine::rows::kScatter;
}

Operation OwnRows::operation() const {
  return {std::string{machine::rows::kOwn}, {all}, {own}, {}};
}

bool OwnRows::is(const Operation& operation) {
  return operation.kind == machine::rows::kOwn;
}

}  // namespace poprun
