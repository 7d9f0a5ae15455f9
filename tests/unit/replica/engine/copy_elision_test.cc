#include "replica/engine/copy_elision.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "replica/engine/engine.h"

/// Programs written by hand, with functions that other functions call. Tensors are f32[16] and lie in slots of 64
/// bytes.
namespace poprun::copy_elision_test {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kElements = 16;
constexpr std::uint64_t kSlotBytes = kElements * sizeof(float);

class NoHost final : public HostIo {
 public:
  Status write(const std::string& /*stream*/, const StreamPart& /*part*/) override { return {}; }
  Status read(const std::string& /*stream*/, const StreamPart& /*part*/) override { return {}; }
};

/// Records what every operator computes.
class Recorder final : public StepObserver {
 public:
  explicit Recorder(const Engine*& engine) : engine_(engine) {}

  void before(const proto::Step& /*step*/) override {}
  void after(const proto::Step& step) override {
    for (const std::uint32_t result : step.execute().outputs()) {
      float first = 0;
      std::memcpy(&first, engine_->inspect(result).data(), sizeof(first));
      results_.push_back(first);
    }
  }
  void broken_off(const proto::Step& /*step*/) override {}
  [[nodiscard]] bool sees_every_round() const override { return true; }

  [[nodiscard]] const std::vector<float>& results() const { return results_; }

 private:
  const Engine*& engine_;
  std::vector<float> results_;
};

/// Builds a Program.
class Draft {
 public:
  using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

  Draft() { program_.add_memory(); }

  std::uint32_t tensor(const std::string& name, std::uint64_t slot, bool is_variable = false) {
    proto::Tensor& tensor = *program_.add_tensors();
    tensor.set_name(name);
    tensor.set_type("f32[16]");
    tensor.set_bytes(kSlotBytes);
    tensor.set_role(is_variable ? proto::ROLE_PARAMETER : proto::ROLE_ACTIVATION);
    tensor.set_always_live(is_variable);
    tensor.mutable_placement()->set_offset(slot * kSlotBytes);
    proto::IpuMemory& memory = *program_.mutable_memory(0);
    memory.set_images_peak(std::max(memory.images_peak(), (slot + 1) * kSlotBytes));
    memory.set_capacity(memory.images_peak());
    return static_cast<std::uint32_t>(program_.tensors_size() - 1);
  }

  proto::Function& function(const std::string& name) {
    proto::Function& function = *program_.add_functions();
    function.set_name(name);
    return function;
  }

  proto::Step& execute(Steps& steps, const std::string& operation, std::initializer_list<std::uint32_t> inputs,
                       std::uint32_t output) {
    proto::Step& step = add(steps);
    proto::Execute& execute = *step.mutable_execute();
    execute.set_operation(operation);
    execute.mutable_inputs()->Assign(inputs.begin(), inputs.end());
    execute.add_outputs(output);
    if (operation == "reshape") {
      execute.set_attributes("layout=\"row-major\" shape=[16]");
      views_.insert(step.number());
    }
    return step;
  }

  void copy(Steps& steps, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
    proto::Copy& copy = *add(steps).mutable_copy();
    for (const auto& [from, to] : pairs) {
      copy.add_from(from);
      copy.add_to(to);
    }
  }

  void call(Steps& steps, const std::string& function) { add(steps).mutable_call()->set_function(function); }

  Steps& repeat(Steps& steps, std::uint32_t count) {
    proto::Repeat& repeat = *add(steps).mutable_repeat();
    repeat.set_count(count);
    return *repeat.mutable_steps();
  }

  proto::Step& add(Steps& steps) {
    proto::Step& step = *steps.Add();
    step.set_number(number_++);
    return step;
  }

  [[nodiscard]] const Program& program() const { return program_; }

  /// Returns the moves, keyed by step: "tensor -> place".
  [[nodiscard]] std::multimap<std::uint32_t, std::string> moves() const {
    std::vector<std::byte> bytes(program_.memory(0).images_peak());
    const std::vector<Arena> arenas = {Arena(bytes), Arena({})};
    const HostImages images(program_, arenas, {});
    std::multimap<std::uint32_t, std::string> named;
    for (const auto& [step, moved] : find_elided_copies(program_, images, views_)) {
      for (const ImageMove& move : moved) {
        named.emplace(step, name(move.tensor) + " -> " + name(move.place));
      }
    }
    return named;
  }

  /// Runs "train" twice with poison in dead bytes, and returns what every operator computed.
  [[nodiscard]] std::vector<float> results(bool elides_copies) const {
    const auto world = LocalWorld::create({});
    EXPECT_TRUE(world);
    NoHost host;
    auto engine =
        Engine::create(program_, (*world)->communicator(ReplicaId{0}), host,
                       {.poison_dead = true, .check_finite = false, .elides_copies = elides_copies}, [](auto) {});
    EXPECT_TRUE(engine) << engine.error().message;
    const Engine* running = engine->get();
    Recorder recorder(running);
    (*engine)->add_observer(recorder);
    for (std::uint32_t id = 0; id < static_cast<std::uint32_t>(program_.tensors_size()); ++id) {
      if (program_.tensors(static_cast<int>(id)).always_live()) {
        const std::vector<float> values(kElements, 1.0F + 0.37F * static_cast<float>(id));
        (*engine)->restore(id, std::as_bytes(std::span(values)));
      }
    }
    for (int time = 0; time < 2; ++time) {
      const Status ran = (*engine)->run("train");
      EXPECT_TRUE(ran) << ran.error().message;
    }
    return recorder.results();
  }

 private:
  [[nodiscard]] std::string name(std::uint32_t tensor) const {
    return program_.tensors(static_cast<int>(tensor)).name();
  }

  Program program_;
  std::set<std::uint32_t> views_;  ///< Numbers of steps.
  std::uint32_t number_ = 0;
};

/// The function "twice" computes r = 2 f. "train" calls it for a, which is 2 w, and for w: c = 2 a, d = 2 w.
///
///   slot   0  1  2  3  4  5    6
///          w  a  f  r  c  d    free
class TwoCalls : public ::testing::Test {
 protected:
  void write(const std::function<void(Draft::Steps&)>& begin_of_twice = {}) {
    draft_.execute(train(), "add", {w_, w_}, a_);  // Step 0.
    draft_.copy(train(), {{a_, f_}});              // Step 1.
    draft_.call(train(), "twice");                 // Step 2.
    draft_.copy(train(), {{r_, c_}, {w_, f_}});    // Step 3.
    draft_.call(train(), "twice");                 // Step 4.
    draft_.copy(train(), {{r_, d_}});              // Step 5.
    draft_.execute(train(), "add", {c_, d_}, e_);
    if (begin_of_twice) {
      begin_of_twice(twice());
    }
    draft_.execute(twice(), "add", {f_, f_}, r_);
  }

  Draft::Steps& train() { return *train_.mutable_steps(); }
  Draft::Steps& twice() { return *twice_.mutable_steps(); }

  /// Expects the same results with and without elision.
  void expect_equal_results() const {
    const std::vector<float> wanted = draft_.results(false);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(draft_.results(true), wanted);
  }

  Draft draft_;
  proto::Function& train_ = draft_.function("train");
  proto::Function& twice_ = draft_.function("twice");
  std::uint32_t w_ = draft_.tensor("w", 0, true);
  std::uint32_t a_ = draft_.tensor("a", 1);
  std::uint32_t f_ = draft_.tensor("f", 2);
  std::uint32_t r_ = draft_.tensor("r", 3);
  std::uint32_t c_ = draft_.tensor("c", 4);
  std::uint32_t d_ = draft_.tensor("d", 5);
  std::uint32_t e_ = draft_.tensor("e", 6);
};

TEST_F(TwoCalls, ReadTheirArgumentsAndWriteTheirResultsWhereTheCallerKeepsThem) {
  write();
  EXPECT_THAT(draft_.moves(),
              UnorderedElementsAre(Pair(1, "f -> a"), Pair(2, "r -> c"), Pair(3, "f -> w"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, ReadAnArgumentInItsOwnPlaceIfTheFunctionOverwritesWhereItComesFrom) {
  const std::uint32_t over_a = draft_.tensor("over a", 1);
  write([&](Draft::Steps& steps) { draft_.execute(steps, "add", {w_, w_}, over_a); });
  EXPECT_THAT(draft_.moves(),
              UnorderedElementsAre(Pair(1, "f -> f"), Pair(2, "r -> c"), Pair(3, "f -> w"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, WriteAResultInItsOwnPlaceIfTheFunctionUsesWhereItGoes) {
  const std::uint32_t over_c = draft_.tensor("over c", 4);
  write([&](Draft::Steps& steps) { draft_.execute(steps, "add", {w_, w_}, over_c); });
  EXPECT_THAT(draft_.moves(),
              UnorderedElementsAre(Pair(1, "f -> a"), Pair(2, "r -> r"), Pair(3, "f -> w"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, WriteAResultInItsOwnPlaceIfAnArgumentIsReadWhereItGoes) {
  const std::uint32_t over_a = draft_.tensor("over a", 1);
  c_ = over_a;  // f may lie in a until it is read, when r is written.
  write();
  EXPECT_THAT(draft_.moves(),
              UnorderedElementsAre(Pair(1, "f -> a"), Pair(2, "r -> r"), Pair(3, "f -> w"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, WriteAResultInItsOwnPlaceIfATensorDiesWhereItGoes) {
  const std::uint32_t over_d = draft_.tensor("over d", 5);
  write([&](Draft::Steps& steps) { draft_.execute(steps, "add", {w_, w_}, e_).add_releases(over_d); });
  EXPECT_THAT(draft_.moves(), Contains(Pair(4, "r -> r")));
  twice_.mutable_steps(0)->clear_releases();
  EXPECT_THAT(draft_.moves(), Contains(Pair(4, "r -> d")));
}

TEST_F(TwoCalls, ReadAnArgumentWhoseOriginalDiesWithTheCopyBeforeThatIsPoisoned) {
  write();
  train_.mutable_steps(1)->add_releases(a_);
  EXPECT_THAT(draft_.moves(), Contains(Pair(1, "f -> a")));
  expect_equal_results();
}

TEST_F(TwoCalls, WriteAResultInItsOwnPlaceIfItIsReadAfterTheCopy) {
  write();
  draft_.execute(train(), "add", {r_, d_}, e_);
  EXPECT_THAT(draft_.moves(), Not(Contains(Pair(4, "r -> d"))));
  expect_equal_results();
}

TEST_F(TwoCalls, WriteAResultWhereOneOfItsTwoCopiesGoes) {
  const std::uint32_t other = draft_.tensor("other", 7);
  write();
  train_.mutable_steps(5)->mutable_copy()->add_from(r_);
  train_.mutable_steps(5)->mutable_copy()->add_to(other);
  draft_.execute(train(), "add", {other, d_}, e_);
  EXPECT_EQ(draft_.moves().count(4), 1);
  expect_equal_results();
}

TEST_F(TwoCalls, CopyToVariables) {
  d_ = draft_.tensor("v", 5, true);
  write();
  EXPECT_THAT(draft_.moves(), Contains(Pair(4, "r -> r")));
  expect_equal_results();
}

TEST_F(TwoCalls, ReadViewsOfArgumentsAndWriteViewsOfResultsWhereTheCallerKeepsThem) {
  const std::uint32_t view_of_f = draft_.tensor("view of f", 2);
  const std::uint32_t sum = draft_.tensor("sum", 3);
  write([&](Draft::Steps& steps) {
    draft_.execute(steps, "reshape", {f_}, view_of_f);
    draft_.execute(steps, "add", {view_of_f, view_of_f}, sum);
    draft_.execute(steps, "reshape", {sum}, r_);
  });
  twice_.mutable_steps()->RemoveLast();
  EXPECT_THAT(draft_.moves(), UnorderedElementsAre(Pair(1, "f -> a"), Pair(1, "view of f -> a"), Pair(2, "sum -> c"),
                                                   Pair(2, "r -> c"), Pair(3, "f -> w"), Pair(3, "view of f -> w"),
                                                   Pair(4, "sum -> d"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, LeaveInTheirPlacesTensorsThatTheFunctionUpdates) {
  write([&](Draft::Steps& steps) { draft_.execute(steps, "add", {f_, f_}, f_); });
  EXPECT_THAT(draft_.moves(), UnorderedElementsAre(Pair(2, "r -> c"), Pair(4, "r -> d")));
  expect_equal_results();
}

TEST_F(TwoCalls, LeaveInTheirPlacesTensorsOfWhichEachReplicaComputesAPart) {
  write();
  twice_.mutable_steps(0)->mutable_execute()->set_divisible(true);
  EXPECT_THAT(draft_.moves(), Not(Contains(Pair(1, "f -> a"))));
  EXPECT_THAT(draft_.moves(), Not(Contains(Pair(2, "r -> c"))));
}

TEST_F(TwoCalls, LeaveInTheirPlacesTensorsThatReplicasExchange) {
  write();
  proto::AllReduce& reduce = *draft_.add(train()).mutable_all_reduce();
  for (const std::uint32_t tensor : {f_, r_, c_, d_}) {
    reduce.add_tensors(tensor);
  }
  EXPECT_THAT(draft_.moves(), IsEmpty());
}

/// A random Program of few slots. Some do not make sense: a step reads bytes that no longer hold the tensor. Functions
/// compute their last tensors from their first two.
Draft draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  Draft draft;
  const std::vector<std::uint32_t> variables = {draft.tensor("w0", 0, true), draft.tensor("w1", 1, true)};
  const std::vector<std::string> names = {"train", "one", "two"};
  std::vector<Draft::Steps*> bodies;
  std::vector<std::vector<std::uint32_t>> own(names.size());
  for (std::size_t f = 0; f < names.size(); ++f) {
    bodies.push_back(draft.function(names[f]).mutable_steps());
    for (std::size_t i = 0; i < 4; ++i) {
      own[f].push_back(draft.tensor(names[f] + std::to_string(i), 2 + below(10)));
    }
  }
  const auto any = [&](const std::vector<std::uint32_t>& of) { return of[below(of.size())]; };
  for (const std::size_t f : {1U, 2U}) {
    const auto input = [&](std::size_t end) { return below(5) == 0 ? any(variables) : own[f][below(end)]; };
    draft.execute(*bodies[f], "add", {input(2), own[f][1]}, own[f][2]);
    draft.execute(*bodies[f], "add", {input(3), own[f][2]}, own[f][3]);
  }
  Draft::Steps* steps = bodies[0];
  for (const std::uint32_t tensor : own[0]) {
    draft.execute(*steps, "add", {any(variables), any(variables)}, tensor);
  }
  if (below(2) == 0) {
    steps = &draft.repeat(*steps, 2 + below(2));
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> results;
  for (int call = 0; call < 3; ++call) {
    const std::size_t f = 1 + below(2);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs = results;
    const bool passes_on = !results.empty() && below(2) == 0;
    pairs.emplace_back(passes_on ? results[0].first : below(3) == 0 ? any(variables) : any(own[0]), own[f][0]);
    pairs.emplace_back(any(own[0]), own[f][1]);
    draft.copy(*steps, pairs);
    draft.call(*steps, names[f]);
    results = {{own[f][2 + below(2)], any(own[0])}};
    if (below(2) == 0) {
      results.emplace_back(own[f][2 + below(2)], any(own[0]));
    }
  }
  draft.copy(*steps, results);
  draft.execute(*steps, "add", {results[0].second, any(own[0])}, any(own[0]));
  draft.execute(*steps, "add", {any(own[0]), any(own[0])}, any(own[0]));
  return draft;
}

/// Runs a Program on slots that know which tensor they hold.
class Check {
 public:
  explicit Check(const Program& program) : program_(program) {
    for (std::uint32_t id = 0; id < static_cast<std::uint32_t>(program.tensors_size()); ++id) {
      if (program.tensors(static_cast<int>(id)).always_live()) {
        held_[slot(id)] = id;
      }
    }
    run(program.functions(0).steps());
  }

  /// Returns whether each step reads only tensors that their slots still hold, and distinct ones are written.
  [[nodiscard]] bool makes_sense() const { return makes_sense_; }

 private:
  [[nodiscard]] std::uint64_t slot(std::uint32_t id) const {
    return program_.tensors(static_cast<int>(id)).placement().offset() / kSlotBytes;
  }

  void run(const Draft::Steps& steps) {
    for (const proto::Step& step : steps) {
      for (std::uint32_t round = 0; round < step.repeat().count(); ++round) {
        run(step.repeat().steps());
      }
      if (step.has_call()) {
        run(find_function(program_, step.call().function())->steps());
      }
      const StepTensors tensors = tensors_of(step);
      std::set<std::uint64_t> of_copy;
      for (const std::uint32_t read : tensors.reads) {
        makes_sense_ = makes_sense_ && held_.contains(slot(read)) && held_.at(slot(read)) == read;
        of_copy.insert(slot(read));
      }
      for (const std::uint32_t written : tensors.writes) {
        makes_sense_ = makes_sense_ && (!step.has_copy() || of_copy.insert(slot(written)).second);
        held_[slot(written)] = written;
      }
    }
  }

  const Program& program_;
  std::map<std::uint64_t, std::uint32_t> held_;  ///< By slot.
  bool makes_sense_ = true;
};

TEST(RandomPrograms, ComputeTheSameWhetherCopiesAreElidedOrNot) {
  int compared = 0;
  int eliding = 0;
  for (std::uint32_t seed = 0; compared < 200 && seed < 300000; ++seed) {
    const Draft draft = draw(seed);
    if (!Check(draft.program()).makes_sense()) {
      continue;
    }
    ++compared;
    eliding += draft.moves().empty() ? 0 : 1;
    ASSERT_EQ(draft.results(true), draft.results(false)) << "seed " << seed << ": " << draft.program().DebugString();
  }
  EXPECT_EQ(compared, 200);
  EXPECT_GT(eliding, 100);
}

}  // namespace
}  // namespace poprun::copy_elision_test
