/// Aliases: which tensors share bytes, and that sharing keeps all results bit-identical.

#include "replica/compiler/lives/aliases.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "replica/compiler/compile.h"
#include "replica/engine/engine.h"
#include "tests/unit/replica/two_stages.h"

namespace poprun::aliases_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The aliases in a graph, looked up by the tensors' names.
class Found {
 public:
  explicit Found(const std::string& text) {
    auto graph = parse_graph(text);
    EXPECT_TRUE(graph) << graph.error().message;
    graph_ = *std::move(graph);
    const Status status = verify_graph(graph_);
    EXPECT_TRUE(status) << status.error().message;
    aliases_ = find_aliases(graph_, compute_liveness(graph_));
  }

  /// Returns the bytes from the beginning of `a` to that of `b`, or nothing if they are not in one block.
  [[nodiscard]] std::optional<std::int64_t> distance(std::string_view a, std::string_view b) const {
    const std::optional<Alias>& at_a = aliases_.at(index_of(graph_.find(a)));
    const std::optional<Alias>& at_b = aliases_.at(index_of(graph_.find(b)));
    return at_a && at_b && at_a->block == at_b->block ? std::optional((at_b->offset - at_a->offset).count())
                                                      : std::nullopt;
  }

 private:
  Graph graph_;
  Aliases aliases_;
};

constexpr std::optional<std::int64_t> kApart = std::nullopt;

/// Returns a function in which x, of 64 bytes, comes from the host, and a to d have the same type as x.
std::string in_function(const std::string& operations) {
  return R"(
      tensor x : f32[16] stream
      tensor a : f32[16] activation
      tensor b : f32[16] activation
      tensor c : f32[16] activation
      tensor d : f32[16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
)" + operations;
}

TEST(InPlace, AChainOfElementwiseOperatorsNeedsTheBytesOfOneTensor) {
  const Found found(in_function(R"(
      a = relu(x)      #  x |==|
      b = gelu(a)      #  a    |==|
      c = relu(b)      #  b       |==|     all at one address
      stream_out(c) stream="o"
  )"));

  EXPECT_EQ(found.distance("x", "a"), 0);
  EXPECT_EQ(found.distance("x", "b"), 0);
  EXPECT_EQ(found.distance("x", "c"), 0);
}

TEST(InPlace, WhatALaterReaderNeedsIsNotOverwritten) {
  const Found found(in_function(R"(
      a = relu(x)      # x is read again
      b = gelu(a)
      c = add(x, b)    # and dies here, as b does: c takes the first
      stream_out(c) stream="o"
  )"));

  EXPECT_EQ(found.distance("x", "a"), kApart);
  EXPECT_EQ(found.distance("a", "b"), 0);
  EXPECT_EQ(found.distance("x", "c"), 0);
  EXPECT_EQ(found.distance("b", "c"), kApart);
}

TEST(InPlace, AnAdditionTakesTheOperandThatDies) {
  const Found found(in_function(R"(
      a = relu(x)
      b = gelu(x)
      c = add(a, b)    # a is needed below
      d = mul(c, a)
      stream_out(d) stream="o"
  )"));

  EXPECT_EQ(found.distance("a", "c"), kApart);
  EXPECT_EQ(found.distance("b", "c"), 0);
}

TEST(InPlace, OnlyOperandsThatTheKernelAllowsAreTaken) {
  const Found found(in_function(R"(
      a = relu(x)
      b = relu(x)
      c = gelu_gradient(a, b)   # oneDNN computes it in place of dy, not of x
      stream_out(c) stream="o"
  )"));

  EXPECT_EQ(found.distance("b", "c"), 0);
  EXPECT_EQ(found.distance("a", "c"), kApart);

  const Found once(in_function(R"(
      a = relu(x)
      c = gelu_gradient(a, a)
      stream_out(c) stream="o"
  )"));
  EXPECT_EQ(once.distance("a", "c"), kApart) << "x and dy are one";
}

TEST(InPlace, WhatALaterStashOrRoundNeedsIsNotOverwritten) {
  EXPECT_EQ(Found(R"(
      tensor x : f32[16] stream
      tensor a : f32[16] activation
      tensor s : f32[2,16] activation
      tensor r : f32[16] activation
      function train
      repeat 4
      x = stream_in() stream="s"
      a = relu(x)
      s = stash(x)
      r = restore(s)
      stream_out(a, r) stream="o"
  )")
                .distance("x", "a"),
            kApart);
  // Later rounds read f again.
  EXPECT_EQ(Found(R"(
      tensor f : f32[16] activation
      tensor h : f32[16] activation
      tensor a : f32[16] activation
      tensor b : f32[16] activation
      function train
      repeat 1
      f = fill() shape=[16] value=1.0
      h = copy(f)
      repeat 4
      a = relu(f)
      b = add(a, h)
      h = copy(a)
      repeat 1
      stream_out(h) stream="o"
  )")
                .distance("f", "a"),
            kApart);
}

TEST(InPlace, TypesAndHomesMustBeTheSame) {
  const Found found(R"(
      tensor x : f32[16] stream
      tensor half : f16[16] activation
      tensor far : f32[16] activation ipu=1
      tensor near : f32[16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      near = gelu(x)
      far = copy(near)
      half = relu(near)
      stream_out(half, far) stream="o"
  )");

  EXPECT_EQ(found.distance("near", "half"), kApart);
  EXPECT_EQ(found.distance("near", "far"), kApart);
  EXPECT_EQ(Found(R"(
      tensor x : f32[4,16] stream
      tensor row : f32[1,16] activation
      tensor y : f32[4,16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      row = slice(x) axis=0 begin=2 count=1
      y = add(row, x)     # row is one of x's: y would overwrite what it repeats
      stream_out(y) stream="o"
  )")
                .distance("x", "y"),
            kApart);
}

TEST(InPlace, VariablesAreNotTaken) {
  const Found found(R"(
      tensor w : f32[16] parameter
      tensor a : f32[16] activation
      function load
      repeat 1
      w = initialise() constant=0.0
      function train
      repeat 1
      a = relu(w)
      stream_out(a) stream="o"
  )");

  EXPECT_EQ(found.distance("w", "a"), kApart);
}

TEST(View, AReshapeLiesInWhatItShows) {
  const Found found(R"(
      tensor w : f32[4,16] parameter
      tensor v : f32[8,8] activation
      tensor u : f32[64] activation
      tensor y : f32[64] activation
      function load
      repeat 1
      w = initialise() constant=0.0
      function train
      repeat 1
      v = reshape(w) layout="row-major" shape=[8,8]
      u = reshape(v) layout="row-major" shape=[64]
      y = relu(u)         # not in place: these are w's bytes
      stream_out(y) stream="o"
  )");

  EXPECT_EQ(found.distance("w", "v"), 0);
  EXPECT_EQ(found.distance("w", "u"), 0);
  EXPECT_EQ(found.distance("u", "y"), kApart);
}

TEST(View, AReshapeThatMovesElementsIsNone) {
  const auto distance = [](std::string_view shape) {
    return Found(fmt::format(R"(
      tensor x : f32{}{{nhwc}} stream
      tensor y : f32[64] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      y = reshape(x) layout="row-major" shape=[64]
      stream_out(y) stream="o"
  )",
                             shape))
        .distance("x", "y");
  };

  EXPECT_EQ(distance("[2,4,2,4]"), kApart);
  EXPECT_EQ(distance("[2,32,1,1]"), 0) << "one pixel: channels are in order";
  EXPECT_EQ(distance("[2,1,4,8]"), 0) << "one channel";
}

TEST(View, OfAVariableThatIsUpdatedInItsLifeIsACopy) {
  const auto distance = [](const std::string& order) {
    return Found(R"(
      tensor w : f32[4,16] parameter
      tensor v : f32[64] activation
      tensor u : f32[4,16] gradient
      function load
      repeat 1
      w = initialise() constant=0.0
      function train
      repeat 1
      u = stream_in() stream="s"
)" + order)
        .distance("w", "v");
  };

  EXPECT_EQ(distance(R"(
      v = reshape(w) layout="row-major" shape=[64]
      w = accumulate(w, u)
      stream_out(v) stream="o"
  )"),
            kApart);
  EXPECT_EQ(distance(R"(
      v = reshape(w) layout="row-major" shape=[64]
      stream_out(v) stream="o"
      w = accumulate(w, u)
  )"),
            0);
}

TEST(View, WhatAViewShowsIsNotOverwritten) {
  const Found found(R"(
      tensor x : f32[4,16] stream
      tensor v : f32[64] activation
      tensor a : f32[4,16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      v = reshape(x) layout="row-major" shape=[64]
      a = relu(x)          # x dies, but v lives in its bytes
      stream_out(v, a) stream="o"
  )");

  EXPECT_EQ(found.distance("x", "v"), 0);
  EXPECT_EQ(found.distance("x", "a"), kApart);
}

TEST(View, SlicesAndPiecesLieWhereTheyWereCut) {
  const Found found(R"(
      tensor x : f32[4,16] stream
      tensor rows : f32[2,16] activation
      tensor columns : f32[4,8] activation
      tensor first : f32[1,16] activation
      tensor rest : f32[3,16] activation
      tensor odd : f32[3] activation
      tensor flat : f32[64] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      rows = slice(x) axis=0 begin=1 count=2
      columns = slice(x) axis=1 begin=0 count=8
      first, rest = split(x) axis=0 sizes=[1,3]
      flat = reshape(x) layout="row-major" shape=[64]
      odd = slice(flat) axis=0 begin=5 count=3
      stream_out(rows, columns, first, rest, odd) stream="o"
  )");

  EXPECT_EQ(found.distance("x", "rows"), 64);
  EXPECT_EQ(found.distance("x", "first"), 0);
  EXPECT_EQ(found.distance("x", "rest"), 64);
  EXPECT_EQ(found.distance("x", "columns"), kApart) << "its rows are not side by side";
  EXPECT_EQ(found.distance("x", "odd"), kApart) << "no multiple of 64 bytes";
}

TEST(View, AConcatenationIsWhereItsPartsAre) {
  const auto text = [](const std::string& operations) {
    return R"(
      tensor x : f32[2,16] stream
      tensor y : f32[1,16] stream
      tensor z : f32[3,16] activation
      function train
      repeat 1
      x, y = stream_in() stream="s"
)" + operations;
  };
  const Found found(text(R"(
      z = concat(x, y) axis=0
      stream_out(z) stream="o"
  )"));
  EXPECT_EQ(found.distance("x", "z"), 0);
  EXPECT_EQ(found.distance("z", "y"), 128);

  const Found twice(R"(
      tensor x : f32[2,16] stream
      tensor z : f32[4,16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      z = concat(x, x) axis=0
      stream_out(z) stream="o"
  )");
  EXPECT_EQ(twice.distance("x", "z"), kApart) << "x cannot lie at two places";
}

/// A host that writes random numbers from its own generator, and records what it reads.
class RandomHost final : public HostIo {
 public:
  Status write(const std::string& /*stream*/, const StreamPart& part) override {
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const HostTensor& tensor : part.tensors) {
      for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
        const float value = uniform(random_);
        std::memcpy(tensor.bytes.data() + at, &value, sizeof(value));
      }
    }
    return {};
  }
  Status read(const std::string& /*stream*/, const StreamPart& part) override {
    for (const HostTensor& tensor : part.tensors) {
      for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(std::uint32_t)) {
        std::memcpy(&read_.emplace_back(), tensor.bytes.data() + at, sizeof(std::uint32_t));
      }
    }
    return {};
  }
  [[nodiscard]] const std::vector<std::uint32_t>& what_it_read() const { return read_; }

 private:
  std::mt19937 random_{7};
  std::vector<std::uint32_t> read_;
};

struct Ran {
  std::vector<std::uint32_t> bits;  ///< Everything that the host read.
  std::uint64_t bound = 0;          ///< Lower bound of the plan's memory, in bytes.
};

/// Compiles a graph and runs it twice with poison in dead bytes.
Ran run(const Graph& graph, bool in_place) {
  CompileOptions options;
  options.device = *find_device("mk2");
  options.in_place = in_place;
  const auto program = plan_graph(graph, options);
  EXPECT_TRUE(program) << program.error().message;
  const auto world = LocalWorld::create({});
  EXPECT_TRUE(world);
  RandomHost host;
  auto engine =
      Engine::create(*program, (*world)->communicator(ReplicaId{0}), host, {.poison_dead = true}, [](auto) {});
  EXPECT_TRUE(engine) << engine.error().message;
  for (int time = 0; time < 2; ++time) {
    const Status status = (*engine)->run("train");
    EXPECT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ(static_cast<std::uint64_t>((*engine)->high_water()[0].count()), program->memory(0).images_peak());
  return {host.what_it_read(), program->memory(0).lower_bound()};
}

/// A random graph of tensors of a few sizes, whose operations read any earlier tensors.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_(seed) {
    const std::vector<Place> places = graph_.add_function("train", {1, 3, 1});
    for (const Place place : places) {
      for (int i = 0; i < (place.region == 1 ? 30 : 4); ++i) {
        add(place);
      }
      graph_.at(place).operations.push_back({"stream_out", {any(), any()}, {}, {{"stream", std::string{"o"}}}});
      if (place.region == 1) {
        made_.resize(before_);  // Operations after a repeated region do not read the tensors of its rounds.
      }
      before_ = made_.size();
    }
  }

  [[nodiscard]] const Graph& graph() const { return graph_; }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  TensorId any() { return made_[below(made_.size())]; }

  [[nodiscard]] const Shape& shape(TensorId id) const { return graph_.tensor(id).type.shape; }

  TensorId make(Place place, std::string kind, std::vector<TensorId> inputs, Attributes attributes) {
    Operation operation{std::move(kind), std::move(inputs), {}, std::move(attributes)};
    const auto types = find_operator(operation.kind)->shape(signature_of(graph_, operation));
    EXPECT_TRUE(types) << types.error().message;
    for (const TensorType& type : *types) {
      operation.outputs.push_back(graph_.add_tensor({fmt::format("t{}", count_++), type}));
    }
    graph_.at(place).operations.push_back(operation);
    made_.insert(made_.end(), operation.outputs.begin(), operation.outputs.end());
    return operation.outputs[0];
  }

  void stream_in(Place place) {
    const Shape shapes[] = {{4, 16}, {2, 32}, {64}, {8, 16}};
    const TensorId id =
        graph_.add_tensor({fmt::format("t{}", count_++), {DataType::kF32, shapes[below(4)], {}}, Role::kStream});
    graph_.at(place).operations.push_back({"stream_in", {}, {id}, {{"stream", std::string{"s"}}}});
    made_.push_back(id);
  }

  void add(Place place) {
    if (made_.empty() || below(8) == 0) {
      stream_in(place);
      return;
    }
    const TensorId x = any();
    const std::int64_t rows = shape(x)[0];
    switch (below(9)) {
      case 0:
      case 1: {
        const char* kinds[] = {"relu", "gelu", "tanh", "sin", "softsign", "softmax"};
        make(place, kinds[below(6)], {x}, {});
        break;
      }
      case 2:
      case 3: {
        std::vector<TensorId> alike;
        std::ranges::copy_if(made_, std::back_inserter(alike), [&](TensorId id) { return shape(id) == shape(x); });
        // There is no "mul", since 30 products would overflow.
        const char* kinds[] = {"add", "min", "sub", "max", "relu_gradient", "gelu_gradient"};
        make(place, kinds[below(6)], {x, alike[below(alike.size())]}, {});
        break;
      }
      case 4:
        make(place, "dropout", {x}, {{"rate", 0.25}, {"key", fmt::format("k{}", count_)}});
        break;
      case 5: {
        const std::int64_t n = graph_.tensor(x).type.elements();
        const Shape to = n % 16 != 0 || below(2) == 0 ? Shape{n} : Shape{n / 16, 16};
        make(place, "reshape", {x}, {{"shape", to}, {"layout", std::string{"row-major"}}});
        break;
      }
      case 6: {
        const auto begin = static_cast<std::int64_t>(below(static_cast<std::size_t>(rows)));
        make(place, "slice", {x}, {{"axis", std::int64_t{0}}, {"begin", begin}, {"count", rows - begin}});
        break;
      }
      case 7: {
        std::vector<TensorId> alike;
        std::ranges::copy_if(made_, std::back_inserter(alike), [&](TensorId id) {
          return shape(id).size() == shape(x).size() &&
                 std::equal(shape(id).begin() + 1, shape(id).end(), shape(x).begin() + 1);
        });
        if (rows < 64) {
          make(place, "concat", {x, alike[below(alike.size())]}, {{"axis", std::int64_t{0}}});
        }
        break;
      }
      default:
        if (rows % 2 == 0) {
          make(place, "split", {x}, {{"axis", std::int64_t{0}}, {"sizes", Shape{rows / 2, rows / 2}}});
        }
    }
  }

  std::mt19937 random_;
  Graph graph_;
  std::vector<TensorId> made_;
  std::size_t before_ = 0;
  int count_ = 0;
};

/// The parameter is the seed.
class AliasesProperty : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(AliasesProperty, ChangeNoBitAndNeedNoMoreBytes) {
  const RandomGraph random(GetParam());
  const Ran apart = run(random.graph(), false);

  const Ran together = run(random.graph(), true);

  EXPECT_EQ(together.bits, apart.bits) << to_text(random.graph());
  EXPECT_FALSE(apart.bits.empty());
  EXPECT_LE(together.bound, apart.bound);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AliasesProperty, ::testing::Range(0U, 200U));

/// Returns the error that ends a run of a function on x of 64 bytes, or "".
std::string end_of(const std::string& operations) {
  const auto graph = parse_graph(in_function(operations));
  EXPECT_TRUE(graph);
  CompileOptions options;
  options.device = *find_device("mk2");
  options.in_place = true;
  const auto program = plan_graph(*graph, options);
  EXPECT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->memory(0).images_peak(), 64U) << "in place";
  const auto world = LocalWorld::create({});
  RandomHost host;
  auto engine = Engine::create(*program, (*world)->communicator(ReplicaId{0}), host, {}, [](auto) {});
  const Status status = (*engine)->run("train");
  return status ? "" : status.error().message;
}

TEST(InPlace, ACheckOfResultsStillKnowsTheOperandsThatTheyOverwrote) {
  EXPECT_THAT(end_of(R"(
      a = sqrt(x)          # x was fine
      stream_out(a) stream="o"
  )"),
              AllOf(HasSubstr("NaN in element"), HasSubstr("'a' f32[16], produced by sqrt")));
  EXPECT_THAT(end_of(R"(
      a = relu(x)
      b = reciprocal(a)    # of 0
      stream_out(b) stream="o"
  )"),
              AllOf(HasSubstr("infinity in element"), HasSubstr("'b' f32[16], produced by rec")));
  EXPECT_EQ(end_of(R"(
      a = clip(x) max=-3.4028234663852886e38 min=-3.4028234663852886e38
      b = add(a, a)        # infinite, as the numbers it is made of as good as are
      stream_out(b) stream="o"
  )"),
            "");
}

TEST(Aliases, OfAPipelineKeepEveryValue) {
  for (const std::string& text : {testing::pipelined(7), testing::plain(7)}) {
    const auto graph = parse_graph(text);
    ASSERT_TRUE(graph);
    CompileOptions options;
    options.device = *find_device("mk2");
    options.ipus_per_replica = 2;
    options.in_place = true;
    const auto with = plan_graph(*graph, options);
    options.in_place = false;
    const auto without = plan_graph(*graph, options);
    ASSERT_TRUE(with) << with.error().message;
    ASSERT_TRUE(without);
    EXPECT_LE(with->memory(0).lower_bound(), without->memory(0).lower_bound());
  }
}

TEST(Aliases, AViewTakesNoTimeAndACopyDoes) {
  const auto graph = parse_graph(R"(
      tensor x : f32[4,16] stream
      tensor v : f32[64] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      v = reshape(x) layout="row-major" shape=[64]
      stream_out(v) stream="o"
  )");
  ASSERT_TRUE(graph);
  CompileOptions options;
  options.device = *find_device("mk2");
  for (const bool in_place : {true, false}) {
    options.in_place = in_place;
    const auto program = plan_graph(*graph, options);
    ASSERT_TRUE(program);
    const proto::Step& reshape = program->functions(0).steps(1);
    EXPECT_EQ(reshape.cost().ByteSizeLong() == 0, in_place);
    EXPECT_EQ(program->memory(0).images_peak(), in_place ? 256U : 512U);
    EXPECT_EQ(reshape.releases_size(), in_place ? 0 : 1) << "x's bytes live on as v's";
  }
}

}  // namespace
}  // namespace poprun::aliases_test
