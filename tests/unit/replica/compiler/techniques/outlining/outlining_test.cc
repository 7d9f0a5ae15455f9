/// Tests outlining from text to text, and on jobs that a broken pass could produce.

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/compile.h"
#include "replica/compiler/passes.h"
#include "replica/compiler/proofs/equivalence.h"
#include "replica/compiler/proofs/occupancy.h"
#include "tests/unit/replica/texts.h"

namespace poprun::outlining_test {
namespace {

using ::testing::HasSubstr;

const Pass& outlining() {
  return *std::ranges::find(all_passes(), "outlining", &Pass::name);
}

CompileOptions options_with(Outlining choice) {
  CompileOptions options;
  options.device = *find_device("mk2");
  options.ipus_per_replica = 2;
  options.outlining = choice;
  return options;
}

/// Returns two layers of four operations with dropout; each has a parameter, and both read one mask. `second` is
/// operation 2 of layer b, `layer_b` the origin of that layer, and `ipu` the suffix of its tensors' types.
std::string two_layers(const std::string& second = R"(hb2 = dropout(hb1) key="b.dropout" rate=0.5)",
                       const std::string& layer_b = "b:0:forward", const std::string& ipu = "") {
  return fmt::format(R"(
    layer a
    layer b
    tensor x : f32[64] stream
    tensor mask : f32[64] stream
    tensor wa : f32[64] parameter
    tensor wb : f32[64] parameter{2}
    tensor ha1 : f32[64] activation
    tensor ha2 : f32[64] activation
    tensor ha3 : f32[64] activation
    tensor ha4 : f32[64] activation
    tensor in : f32[64] activation{2}
    tensor hb1 : f32[64] activation{2}
    tensor hb2 : f32[64] activation{2}
    tensor hb3 : f32[64] activation{2}
    tensor hb4 : f32[64] activation{2}
    function load
    repeat 1
    wa = initialise() uniform=0.5
    wb = initialise() uniform=0.25
    function train
    repeat 3
    call() function="forward.0" micro_batch=0
    function forward.0
    repeat 1
    x, mask = stream_in() stream="train"
    @a:0:forward ha1 = mul(x, wa)
    @a:0:forward ha2 = dropout(ha1) key="a.dropout" rate=0.5
    @a:0:forward ha3 = relu(ha2)
    @a:0:forward ha4 = mul(ha3, mask)
    in = copy(ha4)
    @{1} hb1 = mul(in, wb)
    @{1} {0}
    @{1} hb3 = relu(hb2)
    @{1} hb4 = mul(hb3, mask)
    stream_out(hb4) stream="step"
)",
                     second, layer_b, ipu);
}

Job job_of(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  Job job;
  job.graph = *std::move(graph);
  return job;
}

/// Returns the job after the pass, and expects that the verifier and value numbering accept it.
Job outlined(std::string_view text, Outlining choice = Outlining::kOn) {
  const CompileOptions options = options_with(choice);
  const Job before = job_of(text);
  Job job = before;
  const auto expect_ok = [](const Status& status) { EXPECT_TRUE(status) << status.error().message; };
  expect_ok(verify_operations(job.graph));
  expect_ok(outlining().run(options, job));
  expect_ok(verify_operations(job.graph));
  expect_ok(outlining().verify(options, before, job));
  expect_ok(verify_equivalence(before.graph, job.graph));
  const auto program = plan_graph(job.graph, options);
  EXPECT_TRUE(program) << program.error().message;
  return job;
}

/// Returns the text of a job's functions from `first` on.
std::string functions_of(const Job& job, const std::string& first) {
  const std::string text = to_text(job.graph);
  return text.substr(text.find("function " + first + "\n"));
}

bool outlines(std::string_view text, Outlining choice = Outlining::kOn) {
  return find_function(outlined(text, choice).graph, "outlined.0") != nullptr;
}

TEST(Outlining, LetsEqualLayersShareAFunction) {
  const Job job = outlined(two_layers());
  EXPECT_EQ(functions_of(job, "forward.0"), R"(function forward.0
repeat 1
x, mask = stream_in() stream="train"
@a:0:forward outlined.0/x, outlined.0/wa = copy(x, wa)
@a:0:forward call() function="outlined.0" micro_batch=0 salt0="a.dropout"
outlined.0/x = copy(outlined.0/ha4)
@b:0:forward outlined.0/wa = copy(wb)
@b:0:forward call() function="outlined.0" micro_batch=0 salt0="b.dropout"
@b:0:forward hb4 = copy(outlined.0/ha4)
stream_out(hb4) stream="step"
function outlined.0
repeat 1
@a:0:forward outlined.0/ha1 = mul(outlined.0/x, outlined.0/wa)
@a:0:forward outlined.0/ha2 = dropout(outlined.0/ha1) key=0 rate=0.5
@a:0:forward outlined.0/ha3 = relu(outlined.0/ha2)
@a:0:forward outlined.0/ha4 = mul(outlined.0/ha3, mask)
)");
  const Tensor& own = job.graph.tensor(job.graph.find("outlined.0/wa"));
  EXPECT_EQ(own.role, Role::kActivation);
  EXPECT_EQ(own.copy_of, job.graph.find("wa"));
  ASSERT_EQ(job.notes.size(), 1U);
  EXPECT_EQ(job.notes[0].code, "outlining.outlined");
  EXPECT_THAT(job.notes[0].facts, ::testing::IsSupersetOf({Fact{"ipu", 0}, Fact{"runs", 2}, Fact{"operations", 8}}));
  EXPECT_THAT(job.notes[0].text, HasSubstr("outlining on IPU 0: 2 runs with 8 operations share 1 "
                                           "function; on each tile, this saves about"));
}

TEST(Outlining, NeedsEqualOperations) {
  EXPECT_TRUE(outlines(two_layers()));
  EXPECT_FALSE(outlines(two_layers(R"(hb2 = dropout(hb1) key="b.dropout" rate=0.25)")));
  EXPECT_FALSE(outlines(two_layers("hb2 = relu(hb1)")));
  EXPECT_FALSE(outlines(two_layers(R"(hb2 = dropout(in) key="b.dropout" rate=0.5)")));
  EXPECT_FALSE(outlines(two_layers(R"(hb2 = dropout(hb1) available_memory=100 key="b.dropout" rate=0.5)")))
      << "equal layers with unequal proportions of memory do not share code (Graphcore's note on the available memory "
         "proportion)";
}

/// Recomputed operations can share code with forward operations.
TEST(Outlining, TakesWhatIsRecomputedForWhatIsForward) {
  EXPECT_TRUE(outlines(two_layers(R"(hb2 = dropout(hb1) key="b.dropout" rate=0.5)", "b:0:recomputed")));
}

TEST(Outlining, NeedsOneIpu) {
  std::string text = two_layers(R"(hb2 = dropout(hb1) key="b.dropout" rate=0.5)", "b:1:forward", " ipu=1");
  const std::string mask = "mul(hb3, mask)";
  text.replace(text.find(mask), mask.size(), "mul(hb3, wb)");
  EXPECT_FALSE(outlines(text));
}

TEST(Outlining, CopiesWhatIsUpdatedInPlaceInAndOut) {
  const Job job = outlined(R"(
    tensor rate : f32[] stream
    tensor a : f32[64] parameter
    tensor b : f32[64] parameter
    tensor sa : f32[64] gradient
    tensor sb : f32[64] gradient
    tensor a1 : f32[64] activation
    tensor a2 : f32[64] activation
    tensor b1 : f32[64] activation
    tensor b2 : f32[64] activation
    function load
    repeat 1
    a = initialise() uniform=0.5
    b = initialise() uniform=0.25
    function train
    repeat 1
    rate = stream_in() stream="control"
    sa = fill() shape=[64] value=0.0
    sb = fill() shape=[64] value=0.0
    repeat 5
    call() function="body" micro_batch=0
    function body
    repeat 1
    a1 = relu(a)
    a2 = mul(a1, a)
    sa = accumulate(sa, a2) mean=0
    a = sgd(a, sa, rate) nesterov=0 scale=1.0 weight_decay=0.0
    b1 = relu(b)
    b2 = mul(b1, b)
    sb = accumulate(sb, b2) mean=0
    b = sgd(b, sb, rate) nesterov=0 scale=1.0 weight_decay=0.0
)");
  EXPECT_EQ(functions_of(job, "train"), R"(function train
repeat 1
rate = stream_in() stream="control"
sa = fill() shape=[64] value=0.0
sb = fill() shape=[64] value=0.0
repeat 5
call() function="body" micro_batch=0
function body
repeat 1
outlined.0/a, outlined.0/sa = copy(a, sa)
call() function="outlined.0" micro_batch=0
a, sa = copy(outlined.0/a, outlined.0/sa)
outlined.0/a, outlined.0/sa = copy(b, sb)
call() function="outlined.0" micro_batch=0
b, sb = copy(outlined.0/a, outlined.0/sa)
function outlined.0
repeat 1
outlined.0/a1 = relu(outlined.0/a)
outlined.0/a2 = mul(outlined.0/a1, outlined.0/a)
outlined.0/sa = accumulate(outlined.0/sa, outlined.0/a2) mean=0
outlined.0/a = sgd(outlined.0/a, outlined.0/sa, rate) nesterov=0 scale=1.0 weight_decay=0.0
)");
}

/// The updates of two layers whose off-chip state is in the same buffers.
constexpr std::string_view kOffChip = R"(
    tensor rate : f32[] stream
    tensor a : f32[64] parameter
    tensor b : f32[64] parameter
    tensor ga : f32[64] gradient
    tensor gb : f32[64] gradient
    tensor m.remote : f32[3,64] optimizer-state streaming
    tensor va : f32[64] optimizer-state resides=m.remote:1
    tensor vb : f32[64] optimizer-state resides=m.remote:2
    function load
    repeat 1
    a = initialise() uniform=0.5
    b = initialise() uniform=0.25
    va = initialise() constant=0.0
    m.remote = copy(va) to_entries=[1]
    vb = initialise() constant=0.0
    m.remote = copy(vb) to_entries=[2]
    function train
    repeat 1
    rate = stream_in() stream="control"
    ga = relu(a)
    va = copy(m.remote) from_entries=[1]
    a, va = momentum(a, ga, va, rate) momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0
    m.remote = copy(va) to_entries=[1]
    gb = relu(b)
    vb = copy(m.remote) from_entries=[2]
    b, vb = momentum(b, gb, vb, rate) momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0
    m.remote = copy(vb) to_entries=[2]
    function save
    repeat 1
    stream_out(a, b) stream="weights"
)";

TEST(Outlining, LetsCallsSayAtWhichEntryOfARemoteBufferTheyBegin) {
  const Job job = outlined(kOffChip);
  EXPECT_EQ(functions_of(job, "outlined.0"), R"(function outlined.0
repeat 1
outlined.0/ga = relu(outlined.0/a)
outlined.0/va = copy(m.remote) from_entries=[0]
outlined.0/a, outlined.0/va = momentum(outlined.0/a, outlined.0/ga, outlined.0/va, rate) )"
                                             R"(momentum=0.9 nesterov=0 scale=1.0 weight_decay=0.0
m.remote = copy(outlined.0/va) to_entries=[0]
)");
  EXPECT_THAT(functions_of(job, "train"), AllOf(HasSubstr(R"(call() entry=1 function="outlined.0")"),
                                                HasSubstr(R"(call() entry=2 function="outlined.0")")));
}

/// A copy that involved both IPUs would make one IPU wait for the other.
TEST(Outlining, CopiesForEachIpuByItself) {
  std::string tensors;
  std::string load = "    function load\n    repeat 1\n";
  std::string body = "    function train\n    repeat 1\n";
  for (const std::string name : {"a", "b", "c", "d"}) {
    const std::string_view ipu = name < "c" ? "" : " ipu=1";
    tensors += fmt::format("    tensor {0} : f32[64] parameter{1}\n", name, ipu);
    load += fmt::format("    {} = initialise() uniform=0.5\n", name);
    for (const std::string part : {"1", "2", "3", "4"}) {
      tensors += fmt::format("    tensor {}{} : f32[64] activation{}\n", name, part, ipu);
    }
    body += fmt::format(R"(
    {0}1 = relu({0})
    {0}2 = tanh({0}1)
    {0}3 = mul({0}2, {0}1)
    {0}4 = relu({0}3)
)",
                        name);
  }
  const std::string train =
      functions_of(outlined(tensors + load + body + "    stream_out(a4, b4, c4, d4) stream=\"step\"\n"), "train");
  EXPECT_THAT(train, HasSubstr("\nb4 = copy(outlined.0/a4)\noutlined.1/c = copy(c)\n"));
}

/// Returns two layers of two products each, whose weights have `w` elements.
std::string two_large_layers(int w) {
  std::string text = fmt::format("    layer a\n    layer b\n    tensor x : f32[{}] stream\n", w);
  std::string load = "    function load\n    repeat 1\n";
  std::string train;
  std::string in = "x";
  for (const std::string layer : {"a", "b"}) {
    for (const std::string part : {"1", "2"}) {
      const std::string name = layer + part;
      text += fmt::format("    tensor w{0} : f32[{1}] parameter\n", name, w);
      load += fmt::format("    w{} = initialise() uniform=0.5\n", name);
      for (const std::string h : {"p", "q", "r", "s"}) {
        text += fmt::format("    tensor {}{} : f32[{}] activation\n", h, name, w);
      }
      train += fmt::format(R"(
    @{0}:0:forward p{1} = mul({2}, w{1})
    @{0}:0:forward q{1} = relu(p{1})
    @{0}:0:forward r{1} = gelu(q{1})
    @{0}:0:forward s{1} = mul(r{1}, w{1}))",
                           layer, name, in);
      in = "s" + name;
    }
  }
  return text + load + "    function train\n    repeat 1\n    x = stream_in() stream=\"train\"" + train +
         "\n    stream_out(sb2) stream=\"step\"\n    function save\n    repeat 1\n"
         "    stream_out(wa1, wa2, wb1, wb2) stream=\"weights\"\n";
}

/// Weights keep their own memory while a function has copies of them.
TEST(Outlining, CutsALayerWhereCopiesOfItsWeightsWouldTakeMoreThanTheCodeOfTwoFunctions) {
  EXPECT_EQ(find_function(outlined(two_large_layers(64)).graph, "outlined.1"), nullptr);
  const Job job = outlined(two_large_layers(1'000'000));
  EXPECT_THAT(functions_of(job, "train"), HasSubstr(R"(@a:0:forward outlined.0/x, outlined.0/wa1 = copy(x, wa1)
@a:0:forward call() function="outlined.0" micro_batch=0
@a:0:forward outlined.1/wa2 = copy(wa2)
@a:0:forward call() function="outlined.1" micro_batch=0
)"));
  EXPECT_THAT(functions_of(job, "outlined.1"), HasSubstr("outlined.1/pa2 = mul(outlined.0/sa1, outlined.1/wa2)"))
      << "what the first function leaves needs no copy";
}

/// Function 1 reads g0 and writes g1, and function 0 reads both values, one after the other, from the same tensor.
TEST(Outlining, WritesAValueBesideTheOneBeforeIt) {
  std::string tensors = R"(
    layer a0
    layer b0
    layer a1
    layer b1
    tensor x : f32[64] stream
    tensor mask : f32[64] stream
    tensor g0 : f32[64] activation
)";
  std::string body = "    x, mask = stream_in() stream=\"train\"\n    g0 = tanh(x)\n";
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* name : {"m1", "m2", "m3", "m4", "n1", "n2", "n3"}) {
      tensors += fmt::format("    tensor {}.{} : f32[64] activation\n", name, layer);
    }
    tensors += fmt::format("    tensor g{} : f32[64] activation\n", layer + 1);
    body += fmt::format(R"(
    @a{0}:0:forward m1.{0} = relu(g{0})
    @a{0}:0:forward m2.{0} = tanh(m1.{0})
    @a{0}:0:forward m3.{0} = relu(m2.{0})
    @a{0}:0:forward m4.{0} = mul(m3.{0}, mask)
    @b{0}:0:forward n1.{0} = add(g{0}, m4.{0})
    @b{0}:0:forward n2.{0} = tanh(n1.{0})
    @b{0}:0:forward n3.{0} = relu(n2.{0})
    @b{0}:0:forward g{1} = mul(n3.{0}, mask)
)",
                        layer, layer + 1);
  }
  const Job job = outlined(tensors + R"(
    function load
    repeat 1
    function train
    repeat 3
    call() function="forward.0" micro_batch=0
    function forward.0
    repeat 1
)" + body + "    stream_out(g2) stream=\"step\"\n");
  EXPECT_EQ(functions_of(job, "outlined.1"), R"(function outlined.1
repeat 1
@b0:0:forward outlined.1/n1.0 = add(outlined.0/g0, outlined.0/m4.0)
@b0:0:forward outlined.1/n2.0 = tanh(outlined.1/n1.0)
@b0:0:forward outlined.1/n3.0 = relu(outlined.1/n2.0)
@b0:0:forward outlined.1/g1 = mul(outlined.1/n3.0, mask)
)");
}

/// Returns a graph whose function forward.0 has `body`, which computes a value from x. All tensors have one type.
std::string graph_of(const std::vector<std::string>& layers, const std::string& body) {
  std::string text;
  for (const std::string& layer : layers) {
    text += "layer " + layer + "\n";
  }
  std::string tensors = "tensor x : f32[16] stream\n";
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.starts_with('@') ? line.find(' ') + 1 : 0;
    tensors += "tensor " + line.substr(name, line.find(" =") - name) + " : f32[16] activation\n";
  }
  const std::size_t last = body.rfind('\n', body.size() - 2) + 1;
  const std::size_t name = body[last] == '@' ? body.find(' ', last) + 1 : last;
  return text + tensors +
         "function load\nrepeat 1\nfunction train\nrepeat 3\ncall() function=\"forward.0\" "
         "micro_batch=0\nfunction forward.0\nrepeat 1\nx = stream_in() stream=\"train\"\n" +
         body + "stream_out(" + body.substr(name, body.find(" =", last) - name) + ") stream=\"step\"\n";
}

/// Returns the four operations of a layer.
std::string layer_of(const std::string& name, const std::string& from, const std::string& to) {
  return fmt::format(
      "@{0}:0:forward {0}.1 = relu({1})\n@{0}:0:forward {0}.2 = tanh({0}.1)\n"
      "@{0}:0:forward {0}.3 = relu({0}.2)\n@{0}:0:forward {2} = mul({0}.3, {1})\n",
      name, from, to);
}

/// A squeeze-and-excitation block reads a value together with the output that its layers compute from that value.
TEST(Outlining, CopiesAValueThatIsNeededBesideTheNextOneOfItsTensor) {
  const Job job = outlined(graph_of({"a", "b"}, "p = tanh(x)\n" + layer_of("a", "p", "q") + "r = add(q, p)\n" +
                                                    layer_of("b", "r", "s") + "t = add(s, r)\n"));
  EXPECT_EQ(functions_of(job, "forward.0"), R"(function forward.0
repeat 1
x = stream_in() stream="train"
outlined.0/p = tanh(x)
@a:0:forward call() function="outlined.0" micro_batch=0
r = add(outlined.0/q, outlined.0/p)
@b:0:forward outlined.0/p = copy(r)
@b:0:forward call() function="outlined.0" micro_batch=0
t = add(outlined.0/q, r)
stream_out(t) stream="step"
function outlined.0
repeat 1
@a:0:forward outlined.0/a.1 = relu(outlined.0/p)
@a:0:forward outlined.0/a.2 = tanh(outlined.0/a.1)
@a:0:forward outlined.0/a.3 = relu(outlined.0/a.2)
@a:0:forward outlined.0/q = mul(outlined.0/a.3, outlined.0/p)
)");
}

/// Identical branches read p. A run of a later function also reads p, and keeps it in a tensor of that function.
TEST(Outlining, ReadsWhatEveryRunSharesWhereALaterFunctionLeavesIt) {
  const auto block = [](const std::string& name, const std::string& to) {
    return fmt::format(
        "@{0}:0:forward {0}.1 = tanh(p)\n@{0}:0:forward {0}.2 = relu({0}.1)\n"
        "@{0}:0:forward {0}.3 = tanh({0}.2)\n@{0}:0:forward {1} = add({0}.3, p)\n",
        name, to);
  };
  outlined(graph_of({"a", "b", "c", "d"}, "p = tanh(x)\n" + block("a", "q") + "u = relu(q)\n" + block("b", "r") +
                                              "v = add(u, r)\n" + layer_of("c", "p", "w") + "y = add(v, w)\n" +
                                              layer_of("d", "y", "z") + "o = relu(z)\n"));
}

/// Nets of layers of three kinds with operations between them, all of which read any earlier values.
TEST(Outlining, KeepsEveryValueOfRandomNets) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t bound) { return random() % bound; };
    const std::vector<std::string> kinds = {"relu", "tanh", "sin"};
    std::vector<std::string> values = {"x"};
    std::vector<std::string> layers;
    std::string body;
    const auto any = [&] {
      const std::size_t late = below(3) > 0 ? std::min<std::size_t>(values.size(), 4) : values.size();
      return values[values.size() - 1 - below(late)];
    };
    const auto add = [&](const std::string& beginning, const std::string& what) {
      values.push_back(fmt::format("v{}", values.size()));
      body += fmt::format("{}{} = {}\n", beginning, values.back(), what);
    };
    const std::size_t blocks = 3 + below(8);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::string& kind = kinds[below(kinds.size())];
      layers.push_back(fmt::format("l{}", block));
      const std::string here = fmt::format("@{}:0:forward ", layers.back());
      const std::string first = any();
      const std::string second = any();
      add(here, fmt::format("{}({})", kind, first));
      add(here, fmt::format("mul({}, {})", values.back(), kind == "tanh" ? first : second));
      add(here, fmt::format("{}({})", kind, values.back()));
      add(here, fmt::format("add({}, {})", values.back(), kind == "relu" ? first : second));
      for (std::size_t between = below(4); between > 0; --between) {
        below(2) > 0 ? add("", fmt::format("add({}, {})", any(), any()))
                     : add("", fmt::format("{}({})", kinds[below(kinds.size())], any()));
      }
    }
    outlined(graph_of(layers, body));
    if (HasFailure()) {
      FAIL() << graph_of(layers, body);
    }
  }
}

/// The random numbers that are drawn for a tensor depend on its name.
TEST(Outlining, InitialisesTensorsUnderTheirOwnNames) {
  const Job job = outlined(R"(
    layer a
    layer b
    tensor wa : f32[64] activation
    tensor wb : f32[64] activation
    tensor a1 : f32[64] activation
    tensor a2 : f32[64] activation
    tensor a3 : f32[64] activation
    tensor b1 : f32[64] activation
    tensor b2 : f32[64] activation
    tensor b3 : f32[64] activation
    tensor va : f32[64] parameter
    tensor vb : f32[64] parameter
    function load
    repeat 1
    wa = initialise() uniform=0.5
    @a:0:forward a1 = relu(wa)
    @a:0:forward a2 = tanh(a1)
    @a:0:forward a3 = relu(a2)
    @a:0:forward va = mul(a3, wa)
    wb = initialise() uniform=0.25
    @b:0:forward b1 = relu(wb)
    @b:0:forward b2 = tanh(b1)
    @b:0:forward b3 = relu(b2)
    @b:0:forward vb = mul(b3, wb)
    function save
    repeat 1
    stream_out(va, vb) stream="weights"
)");
  EXPECT_THAT(functions_of(job, "load"), HasSubstr("\nwa = initialise() uniform=0.5\n"));
  EXPECT_THAT(functions_of(job, "load"), HasSubstr("\nwb = initialise() uniform=0.25\n"));
  EXPECT_NE(find_function(job.graph, "outlined.0"), nullptr);
}

/// A function that training and evaluation share would keep its tensors always live.
TEST(Outlining, NeedsOneFunctionOfTheHost) {
  std::string text = two_layers();
  const std::string_view in = "    in = copy(ha4)\n";
  text.replace(text.find(in), in.size(),
               "    in = copy(ha4)\n    stream_out(in) stream=\"step\"\n    function evaluate\n"
               "    repeat 1\n");
  EXPECT_FALSE(outlines(text));
}

/// An outlined function runs with its caller's micro-batch, which would change the random numbers.
TEST(Outlining, LeavesRandomNumbersOutsideOfMicroBatchesToTheHostsFunctions) {
  const auto replace = [](std::string text, std::string_view was, std::string_view is) {
    EXPECT_NE(text.find(was), std::string::npos) << was;
    return text.replace(text.find(was), was.size(), is);
  };
  const std::string_view call =
      "    repeat 3\n    call() function=\"forward.0\" micro_batch=0\n    function forward.0\n"
      "    repeat 1\n";
  const std::string_view once = "    repeat 1\n";
  EXPECT_FALSE(outlines(replace(two_layers(), call, once)));
  EXPECT_TRUE(outlines(replace(replace(two_layers("hb2 = relu(hb1)"), call, once),
                               R"(dropout(ha1) key="a.dropout" rate=0.5)", "relu(ha1)")));
}

TEST(Outlining, LeavesWhatItsCopiesMakeDear) {
  EXPECT_FALSE(outlines(two_layers(), Outlining::kAuto));
  Job job = outlined(two_layers("hb2 = relu(hb1)"));
  EXPECT_THAT(testing::texts(job.notes), ::testing::ElementsAre(HasSubstr("memory.outlining = on has no effect")));
}

/// Returns the verdicts of the verifier and value numbering after `was` is replaced by `is` in the pass's result.
std::string complaints(const std::string& was, const std::string& is, const std::string& job = two_layers()) {
  const Job before = job_of(job);
  Job after = before;
  EXPECT_TRUE(outlining().run(options_with(Outlining::kOn), after));
  std::string text = to_text(after.graph);
  EXPECT_NE(text.find(was), std::string::npos);
  text.replace(text.find(was), was.size(), is);
  after = job_of(text);
  const Status verdict = outlining().verify(options_with(Outlining::kOn), before, after);
  const Status proof = verify_equivalence(before.graph, after.graph);
  return (verdict ? "accepted" : verdict.error().message) + "\n" + (proof ? "proven" : proof.error().message);
}

TEST(Outlining, IsVerified) {
  EXPECT_EQ(complaints("copy(wb)", "copy(wb)"), "accepted\nproven");
  EXPECT_THAT(complaints("copy(wb)", "copy(wa)"),
              AllOf(HasSubstr("pass outlining: 'outlined.0/wa' takes the place of 'wb'"), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints(R"(salt0="b.dropout")", R"(salt0="a.dropout")"),
              AllOf(HasSubstr("takes the place of dropout key=\"b.dropout\""), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints("@b:0:forward outlined.0/wa = copy(wb)\n", ""),
              AllOf(HasSubstr("'outlined.0/wa' takes the place of 'wb'"), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints("outlined.0/x = copy(outlined.0/ha4)", "outlined.0/x = copy(x)"),
              AllOf(HasSubstr("'x' takes the place of 'ha4'"), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints("hb4 = copy(outlined.0/ha4)", "hb4 = copy(outlined.0/ha3)"),
              AllOf(HasSubstr("takes the place of"), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints("outlined.0/ha3 = relu", "outlined.0/ha3 = gelu"),
              AllOf(HasSubstr("gelu  takes the place of relu"), HasSubstr("equivalence: ")));
  EXPECT_THAT(complaints("entry=2", "entry=1", std::string(kOffChip)),
              AllOf(HasSubstr("takes the place of copy from_entries=[2]"), HasSubstr("equivalence: ")));
  EXPECT_THAT(
      complaints(" salt0=\"b.dropout\"", ""),
      AllOf(HasSubstr("takes the place of dropout"), HasSubstr("needs 1 salt from its call, but the call passes 0")));
}

}  // namespace
}  // namespace poprun::outlining_test
