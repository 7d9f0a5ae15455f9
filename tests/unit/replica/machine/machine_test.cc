/// Machine operations: each has all interface methods, and its three forms agree.

#include "replica/machine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/machine/operations.h"
#include "replica/machine/transfer.h"

namespace poprun::machine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MachineOperations, HaveAllFaces) {
  for (const MachineOperation& operation : all_machine_operations()) {
    SCOPED_TRACE(operation.kind);
    EXPECT_NE(operation.verify, nullptr);
    EXPECT_NE(operation.time, nullptr);
    EXPECT_NE(operation.lower, nullptr);
    EXPECT_NE(operation.tensors, nullptr);
    EXPECT_NE(operation.prepare, nullptr);
  }
}

TEST(MachineOperations, AreAllStepsButExecuteAndRepeat) {
  const auto* kinds = proto::Step::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds->field_count(); ++i) {
    const auto kind = static_cast<proto::Step::KindCase>(kinds->field(i)->number());
    const bool machine =
        std::ranges::find(all_machine_operations(), kind, &MachineOperation::step) != all_machine_operations().end();
    EXPECT_EQ(machine, kind != proto::Step::kExecute && kind != proto::Step::kRepeat) << kinds->field(i)->name();
  }
}

constexpr std::string_view kTensors =
    "tensor a : f32[4] parameter\ntensor b : f32[4] gradient\ntensor s : f32[3,4] activation\n"
    "function f\nrepeat 1\n";

/// Returns a value as graph text, and checks its round trip through the text.
template <typename Value>
std::string text_of(const Value& value) {
  Graph graph = *parse_graph(kTensors);
  graph.functions[0].regions[0].operations.push_back(value.operation());
  const MachineOperation* face = find_machine_operation(value.operation().kind);
  EXPECT_NE(face, nullptr);
  EXPECT_TRUE(face->verify(graph, value.operation()));
  const std::string text = to_text(graph);
  EXPECT_EQ(to_text(*parse_graph(text)), text);
  return text.substr(kTensors.size(), text.size() - kTensors.size() - 1);
}

TEST(MachineOperations, StandInGraphsAsTheirHeadersSay) {
  const TensorId a{0};
  const TensorId b{1};
  EXPECT_EQ(text_of(Initialise{a, {Distribution::kUniform, 0.1}}), "a = initialise() uniform=0.1");
  EXPECT_EQ(text_of(Initialise{a, {Distribution::kNormal, 0.02}}), "a = initialise() normal=0.02");
  EXPECT_EQ(text_of(Initialise{a, {}}), "a = initialise() constant=0.0");
  EXPECT_EQ(text_of(StreamIn{"train", {a, b}}), "a, b = stream_in() stream=\"train\"");
  EXPECT_EQ(text_of(StreamOut{"step", {a}}), "stream_out(a) stream=\"step\"");
  EXPECT_EQ(text_of(AllReduce{Reduction::kMean, false, {a, b}}), "a, b = all_reduce(a, b) reduction=\"mean\"");
  EXPECT_EQ(text_of(AllReduce{Reduction::kMax, true, {b}}), "b = all_reduce(b) background=1 reduction=\"max\"");
  EXPECT_EQ(text_of(AwaitAllReduces{{a, b}}), "a, b = await_all_reduces(a, b)");
  EXPECT_EQ(text_of(StreamIn{"train", {a, b}, {2, 0}}), "a, b = stream_in() fields=[2,0] stream=\"train\"");
  EXPECT_EQ(text_of(Call{"f", 3}), "call() function=\"f\" micro_batch=3");
  EXPECT_EQ(text_of(Copy{{a}, {b}}), "b = copy(a)");
  const TensorId stash{2};
  EXPECT_EQ(text_of(Stash{stash, a}), "s = stash(a)");
  EXPECT_EQ(text_of(Restore{stash, b}), "b = restore(s)");
  EXPECT_EQ(text_of(GatherRows{a, b}), "b = gather_rows(a)");
  EXPECT_EQ(text_of(ScatterRows{a, b}), "b = scatter_rows(a)");
  EXPECT_EQ(text_of(OwnRows{a, b}), "b = own_rows(a)");
}

TEST(MachineOperations, RefuseRowsThatAreNotThoseOfSeveralReplicas) {
  const Graph graph = *parse_graph(
      "tensor own : f32[2,3] activation\ntensor all : f32[6,3] activation\ntensor odd : f32[5,3] activation\n"
      "tensor wide : f32[6,4] activation\ntensor half : f16[6,3] activation\ntensor flat : f32[6] activation\n");
  const auto message = [&](const Operation& operation) {
    const Status status = find_machine_operation(operation.kind)->verify(graph, operation);
    return status ? "" : status.error().message;
  };
  const TensorId own{0};
  EXPECT_EQ(message(GatherRows{own, TensorId{1}}.operation()), "");
  EXPECT_EQ(
      message(GatherRows{own, TensorId{2}}.operation()),
      "gather_rows: 'odd' f32[5,3] does not have the rows of several replicas, each with rows like 'own' f32[2,3]");
  for (const std::uint32_t all : {2U, 3U, 4U, 5U}) {
    EXPECT_NE(message(GatherRows{own, TensorId{all}}.operation()), "") << all;
    EXPECT_NE(message(ScatterRows{TensorId{all}, own}.operation()), "") << all;
    EXPECT_NE(message(OwnRows{TensorId{all}, own}.operation()), "") << all;
  }
  Operation two = GatherRows{own, TensorId{1}}.operation();
  two.inputs.push_back(own);
  EXPECT_EQ(message(two), "gather_rows needs one input and one output and accepts no attributes");
}

TEST(MachineOperations, ACopyReadsNothingThatItHasOverwritten) {
  const Graph graph = *parse_graph(kTensors);
  const TensorId a{0};
  const TensorId b{1};
  const auto verify = find_machine_operation("copy")->verify;
  EXPECT_TRUE(verify(graph, Copy{{a, b}, {a, a}}.operation()));
  const Status status = verify(graph, Copy{{a, b}, {b, a}}.operation());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "copy overwrites 'b' before copying it; reorder the tensors");
}

TEST(MachineOperations, RefuseCopiesAndStashesOfOtherTypes) {
  const Graph graph = *parse_graph(
      "tensor a : f32[4] activation\ntensor i : i32[4] activation\n"
      "tensor s : f32[3,4] activation\ntensor t : f32[3,5] activation\n");
  const auto refuses = [&](const Operation& operation) {
    return !find_machine_operation(operation.kind)->verify(graph, operation);
  };
  const TensorId a{0};
  EXPECT_FALSE(refuses(Stash{TensorId{2}, a}.operation()));
  EXPECT_TRUE(refuses(Copy{{a}, {TensorId{1}}}.operation()));
  EXPECT_TRUE(refuses(Stash{TensorId{3}, a}.operation()));
  EXPECT_TRUE(refuses(Restore{a, TensorId{2}}.operation()));
  EXPECT_TRUE(refuses(Call{"g", 0}.operation()));
}

/// Returns the step that an operation is lowered to.
proto::Step lowered(const Operation& operation) {
  proto::Step step;
  find_machine_operation(operation.kind)->lower(operation, step);
  EXPECT_EQ(find_machine_operation(step)->kind, operation.kind);
  return step;
}

TEST(MachineOperations, SayWhatTheirStepsReadAndWrite) {
  const TensorId a{0};
  const TensorId b{1};
  const StepTensors in = tensors_of(lowered(StreamIn{"train", {a, b}}.operation()));
  EXPECT_THAT(in.reads, IsEmpty());
  EXPECT_THAT(in.writes, ElementsAre(0, 1));

  const StepTensors out = tensors_of(lowered(StreamOut{"step", {b}}.operation()));
  EXPECT_THAT(out.reads, ElementsAre(1));
  EXPECT_THAT(out.writes, IsEmpty());

  const StepTensors begun = tensors_of(lowered(AllReduce{Reduction::kSum, true, {a}}.operation()));
  EXPECT_THAT(begun.begins_exchange, ElementsAre(0));
  EXPECT_THAT(begun.ends_exchange, IsEmpty());

  const StepTensors done = tensors_of(lowered(AwaitAllReduces{{a}}.operation()));
  EXPECT_THAT(done.begins_exchange, IsEmpty());
  EXPECT_THAT(done.ends_exchange, ElementsAre(0));
}

TEST(MachineOperations, ReduceInTheBackgroundOnTheLinks) {
  EXPECT_EQ(lowered(AllReduce{Reduction::kSum, false, {TensorId{0}}}.operation()).links(), proto::LINKS_IN_ORDER);
  EXPECT_EQ(lowered(AllReduce{Reduction::kSum, true, {TensorId{0}}}.operation()).links(), proto::LINKS_BACKGROUND);
  EXPECT_EQ(lowered(AwaitAllReduces{{TensorId{0}}}.operation()).links(), proto::LINKS_AWAITED);
}

TEST(OffChipTransfers, AreHostStreamsAndCopiesToAndFromStreamingMemory) {
  const Graph graph = *parse_graph(
      "tensor a : f32[4] activation\ntensor b : f32[4] activation ipu=1\n"
      "tensor s : f32[3,4] activation\ntensor R : f32[3,4] activation streaming\n");
  const TensorId a{0};
  const TensorId b{1};
  const TensorId stash{2};
  const TensorId remote{3};
  const auto direction = [&](const Operation& operation) { return off_chip_transfer(graph, operation).direction; };
  const OffChipTransfer in = off_chip_transfer(graph, StreamIn{"train", {a, b, a}}.operation());
  EXPECT_EQ(in.direction, proto::TRANSFER_IN);
  EXPECT_EQ(in.bytes_on(0), Bytes{32});
  EXPECT_EQ(in.bytes_on(1), Bytes{16});
  EXPECT_EQ(in.bytes_on(2), Bytes{0});
  EXPECT_EQ(in.most(), Bytes{32});
  EXPECT_EQ(direction(StreamOut{"step", {a}}.operation()), proto::TRANSFER_OUT);
  const OffChipTransfer load = off_chip_transfer(graph, Copy{{remote, remote}, {a, a}, {0, 1}}.operation());
  EXPECT_EQ(load.direction, proto::TRANSFER_IN);
  EXPECT_EQ(load.most(), Bytes{32}) << "entries, not the remote buffer";
  EXPECT_EQ(direction(Copy{{a}, {remote}, {}, {2}}.operation()), proto::TRANSFER_OUT);
  EXPECT_EQ(direction(Stash{remote, a}.operation()), proto::TRANSFER_OUT);
  EXPECT_EQ(off_chip_transfer(graph, Stash{remote, a}.operation()).most(), Bytes{16});
  EXPECT_EQ(direction(Restore{remote, a}.operation()), proto::TRANSFER_IN);
  for (const Operation& within :
       {Copy{{a}, {b}}.operation(), Stash{stash, a}.operation(), Restore{stash, a}.operation(),
        Copy{{remote, a}, {a, remote}, {0, -1}, {-1, 1}}.operation(),
        AllReduce{Reduction::kSum, false, {a}}.operation()}) {
    EXPECT_FALSE(off_chip_transfer(graph, within).is_any());
  }
}

}  // namespace
}  // namespace poprun::machine_test
