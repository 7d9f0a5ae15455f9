#include "replica/graph/graph.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText =
    "tensor x : f32[2,3] stream\n"
    "tensor w : f32[4,3] parameter\n"
    "tensor y : f32[2,4] activation keeps-f32\n"
    "function load\n"
    "repeat 1\n"
    "w = initialise() uniform=0.1\n"
    "function train\n"
    "repeat 4\n"
    "x = stream_in() stream=\"train\"\n"
    "y = matmul(x, w) alpha=0.25 pad=[1,-2] rank=3\n"
    "stream_out(y) stream=\"step\"\n";

TEST(GraphText, PrintsWhatItParses) {
  const auto graph = parse_graph(kText);

  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(to_text(*graph), kText);
  EXPECT_EQ(graph->functions[1].regions[0].repeat, 4);
  EXPECT_TRUE(graph->tensor(graph->find("y")).keeps_f32);
  EXPECT_FALSE(graph->tensor(graph->find("w")).keeps_f32);
  EXPECT_EQ(graph->functions[1].regions[0].operations[1].attributes.integers("pad"),
            (std::vector<std::int64_t>{1, -2}));
}

TEST(GraphText, NamesTheLineAtFault) {
  const auto graph = parse_graph("tensor x : f32[2] stream\nfunction f\nrepeat 1\ny = relu(x)\n");

  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "line 4: there is no tensor 'y'");
}

TEST(GraphText, RefusesWhatIsNoGraph) {
  EXPECT_THAT(parse_graph("tensor x : f33[2] stream").error().message, HasSubstr("f33[2]"));
  EXPECT_THAT(parse_graph("tensor x : f32[2] hero").error().message, HasSubstr("'hero' is not a role"));
  EXPECT_THAT(parse_graph("repeat 1").error().message, HasSubstr("must come after a function"));
  EXPECT_THAT(parse_graph("function f\nrepeat x").error().message, HasSubstr("not a repeat count"));
  EXPECT_FALSE(parse_graph("function f\nrepeat 1\nnonsense"));
  EXPECT_FALSE(parse_graph("function f\nrepeat 1\n= two words()"));
  EXPECT_EQ(parse_graph("\ntensor a : f32[] metric resides=b\n", 5).error().message, "line 6: there is no tensor 'b'");
  EXPECT_FALSE(parse_graph("tensor a : f32[] metric\ntensor a : f32[] metric"));
}

TEST(Graph, NumbersANameThatIsTakenOrKeptForTheModel) {
  Graph graph;
  const auto add = [&graph](const std::string& name) {
    return graph.tensor(graph.add_tensor({name, {}, Role::kActivation})).name;
  };
  graph.reserve({"w.gradient", "w.gradient.1"});

  EXPECT_EQ(add("w"), "w");
  EXPECT_EQ(add("w"), "w.1");
  EXPECT_EQ(add("w.gradient"), "w.gradient.2");
  EXPECT_EQ(graph.find("w.gradient.2"), TensorId{2});
  EXPECT_FALSE(graph.has("w.gradient"));

  const TensorId given = graph.add_given({"w.gradient", {}, Role::kParameter});
  EXPECT_EQ(graph.tensor(given).name, "w.gradient");
  graph.release("w.gradient.1");
  EXPECT_EQ(add("w.gradient"), "w.gradient.1");
}

TEST(Attributes, KeepTextsWithBlanksQuotesAndBackslashes) {
  for (const std::string text : {"W 2", " ", "\"", "\\", "a\" b=\"c", "\\\"", "[1,2]", ""}) {
    const Attributes attributes{{"a", text}, {"b", std::int64_t{1}}};
    const auto parsed = parse_attributes(to_text(attributes));
    ASSERT_TRUE(parsed) << to_text(attributes) << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, attributes) << to_text(attributes);
  }
  for (const char* broken : {"a=\"b", "a=\"b\"c", "a=\"b\\", "a=\""}) {
    EXPECT_FALSE(parse_attributes(broken)) << broken;
  }
}

TEST(Attributes, KeepEveryDigitAndTheTypeOfNumbers) {
  const double third = 1.0 / 3.0;
  const Attributes attributes{{"a", third},
                              {"b", 1.0},
                              {"c", std::int64_t{1}},
                              {"d", 1e-300},
                              {"e", std::numeric_limits<double>::max()},
                              {"f", std::vector{1.0, third, -1e-300}},
                              {"g", std::vector{1.0, 2.0}}};

  const auto parsed = parse_attributes(to_text(attributes));

  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, attributes);
  EXPECT_EQ(parsed->real("a"), third);
  EXPECT_EQ(parsed->integer("c"), 1);
}

TEST(TensorType, CountsElementsAndBytes) {
  const TensorType type{DataType::kF32, {16, 32, 28, 28}, Layout::kChannelsLast};

  EXPECT_EQ(type.elements(), 401'408);
  EXPECT_EQ(type.bytes(), Bytes{1'605'632});
  EXPECT_EQ(to_text(type), "f32[16,32,28,28]{nhwc}");
  EXPECT_EQ(*parse_type("f32[16,32,28,28]{nhwc}"), type);
  EXPECT_EQ(parse_type("u8[]")->elements(), 1);
}

TEST(VerifyGraph, RefusesAReadBeforeTheFirstWrite) {
  const auto graph = parse_graph(
      "tensor a : f32[2] activation\ntensor b : f32[2] activation\n"
      "function f\nrepeat 1\nb = relu(a)\n");

  const Status status = verify_graph(*graph);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "function f: relu reads the unwritten tensor 'a'");
}

TEST(VerifyGraph, RefusesASecondWriteThatIsNoUpdate) {
  const auto graph = parse_graph(
      "tensor a : f32[2] activation\ntensor b : f32[2] activation\n"
      "function f\nrepeat 1\na = fill() value=0.0\nb = relu(a)\nb = relu(a)\n");

  EXPECT_THAT(verify_graph(*graph).error().message, HasSubstr("rewrites the tensor 'b'"));
}

TEST(VerifyGraph, AllowsSeveralCopiesToOneTensor) {
  const std::string text =
      "tensor a : f32[2] activation\ntensor b : f32[2] activation\n"
      "function f\nrepeat 1\na = fill() value=0.0\nb = copy(a)\nrepeat 2\nb = copy(a)\n";

  EXPECT_TRUE(verify_graph(*parse_graph(text)));
  EXPECT_THAT(verify_graph(*parse_graph(text + "b = relu(a)\n")).error().message, HasSubstr("rewrites the tensor 'b'"));
}

TEST(TensorType, ComesOutInRowMajorOrder) {
  // Two images of two channels, 1 x 3 pixels: bytes are named image, channel, pixel.
  const TensorType type{DataType::kU8, {2, 2, 1, 3}, Layout::kChannelsLast};
  const std::vector<std::byte> stored = [] {
    std::vector<std::byte> bytes;
    for (const int name : {0, 10, 1, 11, 2, 12, 100, 110, 101, 111, 102, 112}) {
      bytes.push_back(std::byte(name));
    }
    return bytes;
  }();
  std::vector<std::byte> storage;
  const auto got = row_major(type, stored, storage);
  std::vector<int> names;
  for (const std::byte byte : got) {
    names.push_back(std::to_integer<int>(byte));
  }
  EXPECT_EQ(names, (std::vector<int>{0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112}));

  const TensorType flat{DataType::kU8, {12}, Layout::kRowMajor};
  EXPECT_EQ(row_major(flat, stored, storage).data(), stored.data());
}

TEST(GraphText, SaysWhereTensorsAndOperationsBelong) {
  const std::string text =
      "layer embeddings uncounted\n"
      "layer block.0\n"
      "tensor x : f32[4] stream\n"
      "tensor y : f32[4] activation ipu=3\n"
      "tensor w : f32[4] parameter keeps-f32 ipu=1\n"
      "tensor w@ipu2 : f32[4] activation keeps-f32 ipu=2 copy-of=w\n"
      "tensor w@ipu0 : f32[4] activation copy-of=w\n"
      "function train\n"
      "repeat 1\n"
      "@embeddings:0:forward x = stream_in() stream=\"s\"\n"
      "@block.0:3:forward y = relu(x)\n"
      "@:2:backward w = relu(y)\n"
      "@block.0:0:recomputed relu(y)\n";

  const auto graph = parse_graph(text);

  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(to_text(*graph), text);
  EXPECT_FALSE(graph->layers[0].counted);
  EXPECT_EQ(graph->tensors()[1].ipu, 3U);
  EXPECT_EQ(graph->tensors()[2].copy_of, std::nullopt);
  EXPECT_EQ(graph->tensors()[3].copy_of, graph->find("w"));
  const Origin& origin = graph->functions[0].regions[0].operations[1].origin;
  EXPECT_EQ(origin, (Origin{1, 3, Direction::kForward}));
}

TEST(GraphText, RefusesOriginsThatDoNotExist) {
  const std::string head = "layer a\ntensor x : f32[4] stream\nfunction f\nrepeat 1\n";
  for (const char* origin : {"@b:0:forward", "@a:x:forward", "@a:0:sideways", "@a"}) {
    const auto graph = parse_graph(head + origin + " x = stream_in() stream=\"s\"\n");
    EXPECT_FALSE(graph) << origin;
  }
}

TEST(VerifyGraph, FollowsCalls) {
  const std::string text =
      "tensor x : f32[4] activation\n"
      "tensor y : f32[4] activation\n"
      "function train\nrepeat 2\n"
      "call() function=\"make\" micro_batch=0\n"
      "call() function=\"read\" micro_batch=0\n"
      "function read\nrepeat 1\ny = relu(x)\n"
      "function make\nrepeat 1\nx = stream_in() stream=\"s\"\n";
  EXPECT_TRUE(verify_graph(*parse_graph(text)));

  Graph swapped = *parse_graph(text);
  std::swap(swapped.functions[0].regions[0].operations[0], swapped.functions[0].regions[0].operations[1]);
  EXPECT_EQ(verify_graph(swapped).error().message, "function read: relu reads the unwritten tensor 'x'");

  Graph nobody = *parse_graph(text);
  nobody.functions[1].name = "other";
  EXPECT_EQ(verify_graph(nobody).error().message,
            "function train calls 'read', which is undefined or the calling function itself");
}

}  // namespace
}  // namespace poprun
