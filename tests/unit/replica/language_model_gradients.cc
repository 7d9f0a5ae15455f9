/// Writes what a tiny language model computes, for another framework to compare with:
///
///   language_model_gradients gpt2|bert-base|gpt2:masked|bert-base:masked FILE
///
/// ":masked" is the model with an attention mask, BERT without what else is not needed then.
/// FILE is a .safetensors of its inputs (i32), parameters, "NAME.gradient" of each and "loss".
/// Parameters and inputs are random from a fixed seed.

#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <span>

#include <nlohmann/json.hpp>

#include "graph_runner.h"
#include "replica/compiler/differentiation/differentiate.h"
#include "replica/models/model.h"

namespace poprun {
namespace {

using testing::GraphRunner;

constexpr std::int64_t kSequences = 3;
constexpr std::int64_t kTokens = 10;
constexpr std::int64_t kMasks = 4;
constexpr std::int64_t kVocabulary = 37;

/// Names of tensors in the file, in its order, and where they are.
class SafetensorsFile {
 public:
  void add(const std::string& name, const TensorType& type, const std::byte* data) {
    const auto bytes = static_cast<std::size_t>(type.bytes().count());
    header_[name] = {{"dtype", type.data == DataType::kF32 ? "F32" : "I32"},
                     {"shape", type.shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes}}};
    data_.append(reinterpret_cast<const char*>(data), bytes);  // NOLINT: bytes as characters.
  }
  void write(std::ostream& out) const {
    const std::string text = header_.dump();
    const std::uint64_t length = text.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));  // NOLINT: little-endian.
    out << text << data_;
  }

 private:
  nlohmann::json header_;
  std::string data_;
};

struct Input {
  std::string name;
  Shape shape;
  std::int32_t least;
  std::int32_t most;
};

std::vector<Input> inputs_of(const std::string& model) {
  if (model.ends_with(":masked")) {
    return {{"tokens", {kSequences, kTokens}, 0, kVocabulary - 1},
            {"attention_mask", {kSequences, kTokens}, 0, 1},
            {"labels", {kSequences, kTokens}, -1, kVocabulary - 1}};
  }
  if (model == "gpt2") {
    return {{"tokens", {kSequences, kTokens}, 0, kVocabulary - 1},
            {"labels", {kSequences, kTokens}, -1, kVocabulary - 1}};
  }
  return {{"tokens", {kSequences, kTokens}, 0, kVocabulary - 1},
          {"segments", {kSequences, kTokens}, 0, 1},
          {"positions", {kSequences, kMasks}, 0, kTokens - 1},
          {"labels", {kSequences, kMasks}, -1, kVocabulary - 1},
          {"next_sentence", {kSequences}, 0, 1}};
}

void randomise(const Graph& graph, const std::vector<Input>& inputs, GraphRunner& runner) {
  std::mt19937 random(81);
  std::normal_distribution<float> normal(0.0F, 0.15F);
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (graph.tensors()[t].role == Role::kParameter) {
      std::ranges::generate(runner.floats(TensorId{t}), [&] { return normal(random); });
    }
  }
  for (const Input& input : inputs) {
    std::uniform_int_distribution<std::int32_t> uniform(input.least, input.most);
    const TensorId id = graph.find(input.name);
    std::vector<std::int32_t> values(static_cast<std::size_t>(graph.tensor(id).type.elements()));
    std::ranges::generate(values, [&] { return uniform(random); });
    if (input.name == "attention_mask") {
      // Every sequence begins with a token: rows that see padding only mean nothing.
      for (std::size_t first = 0; first < values.size(); first += kTokens) {
        values[first] = 1;
      }
    }
    std::memcpy(runner.bytes(id), values.data(), values.size() * sizeof(std::int32_t));
  }
}

Status run(const std::string& name, const std::string& path) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, 1, 0, "");
  const std::vector<Input> inputs = inputs_of(name);
  POPRUN_ASSIGN(const Model model, find_model(name.substr(0, name.find(':'))));
  ModelInputs given;
  POPRUN_ASSIGN(given.sizes, sizes_of(model, {{"layers", 2},
                                              {"hidden", 24},
                                              {"heads", 3},
                                              {"vocabulary", kVocabulary},
                                              {"sequence-length", kTokens + 2}}));
  for (const Input& input : inputs) {
    given.names.push_back(input.name);
    given.tensors.push_back(
        graph.add_tensor({input.name, {DataType::kI32, input.shape, {}}, Role::kStream}));
  }
  const ModelOutputs outputs = model.build(builder, given);
  POPRUN_TRY(builder.status());
  POPRUN_ASSIGN(
      const std::vector<ParameterGradient> gradients,
      differentiate(builder, outputs.loss,
                    builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "one")));

  GraphRunner runner(graph);
  randomise(graph, inputs, runner);
  runner.run(builder.operations());

  SafetensorsFile file;
  const auto add = [&](const std::string& as, TensorId id) {
    file.add(as, graph.tensor(id).type, runner.bytes(id));
  };
  for (const Input& input : inputs) {
    add(input.name, graph.find(input.name));
  }
  for (const auto& [parameter, gradient] : gradients) {
    add(graph.tensor(parameter).name, parameter);
    add(graph.tensor(parameter).name + ".gradient", gradient);
  }
  add("loss", outputs.loss);
  std::ofstream out(path, std::ios::binary);
  file.write(out);
  return out.good() ? Status{} : fail(ErrorCode::kData, path + ": could not be written");
}

}  // namespace
}  // namespace poprun

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  if (argc != 3) {
    std::cerr << "language_model_gradients MODEL FILE\n";
    return 64;
  }
  const poprun::Status status = poprun::run(arguments[1], arguments[2]);
  if (!status) {
    std::cerr << status.error().message << '\n';
    return static_cast<int>(status.error().code);
  }
  return 0;
}
