#include "replica/tools/onnx_check/onnx_check.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include <fmt/format.h>

#include "collectives/local/local_world.h"
#include "replica/base/text.h"
#include "replica/compiler/compile.h"
#include "replica/engine/engine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

using onnx_import::Constant;
using onnx_import::GraphInput;
using onnx_import::Imported;
using onnx_import::OnnxModel;

using Weights = std::map<std::string, std::shared_ptr<const Constant>>;

/// The host of one run. It writes weights and inputs by name, and stores the outputs.
class OneRun final : public HostIo {
 public:
  OneRun(const Weights& weights, std::map<std::string, Constant> inputs)
      : weights_(weights), inputs_(std::move(inputs)) {}

  Status write(const std::string& stream, const StreamPart& part) override {
    for (const HostTensor& tensor : part.tensors) {
      const std::string name{tensor.name};
      const Constant& value = stream == "weights" ? *weights_.at(name) : inputs_.at(name);
      POPRUN_ASSIGN(const std::string bytes, onnx_import::device_bytes(value, tensor.type.data));
      POPRUN_CHECK(bytes.size() == tensor.bytes.size());
      std::ranges::copy(std::as_bytes(std::span(bytes)), tensor.bytes.begin());
    }
    return {};
  }

  Status read(const std::string& /*stream*/, const StreamPart& part) override {
    for (const HostTensor& tensor : part.tensors) {
      const auto n = static_cast<std::size_t>(tensor.type.elements());
      Constant value;
      value.shape = tensor.type.shape;
      if (tensor.type.data == DataType::kF32) {
        value.reals.resize(n);
        std::ranges::copy(tensor.bytes, std::as_writable_bytes(std::span(value.reals)).begin());
      } else {
        std::vector<std::int32_t> integers(n);
        std::ranges::copy(tensor.bytes, std::as_writable_bytes(std::span(integers)).begin());
        value = Constant::of_integers({integers.begin(), integers.end()}, tensor.type.shape);
      }
      outputs.push_back(std::move(value));
    }
    return {};
  }

  std::vector<Constant> outputs;

 private:
  const Weights& weights_;
  std::map<std::string, Constant> inputs_;
};

/// Initialises variables with the model's values. Single numbers become constants; the host writes the others.
void load_weights(Graph& graph, const Weights& weights) {
  auto& operations = graph.at(graph.load()).operations;
  std::vector<TensorId> written;
  std::erase_if(operations, [&](Operation& operation) {
    const TensorId id = operation.outputs[0];
    const Constant& value = *weights.at(graph.tensor(id).name);
    if (value.real() && value.reals.size() == 1) {
      operation.attributes = {{"constant", static_cast<double>(value.reals[0])}};
      return false;
    }
    written.push_back(id);
    return true;
  });
  if (!written.empty()) {
    operations.push_back(StreamIn{"weights", written}.operation());
  }
}

Result<TensorType> input_type(const GraphInput& input, const Constant& value) {
  const bool integer = onnx_import::is_integer(value.element);
  if (value.elements() == 0 || value.element != input.element) {
    return fail(ErrorCode::kUsage,
                fmt::format("input '{}' needs at least one element of type {}, but was given {} of type {}", input.name,
                            onnx_import::element_name(input.element), value.elements(),
                            onnx_import::element_name(value.element)));
  }
  return TensorType{integer ? DataType::kI32 : DataType::kF32, value.shape, Layout::kRowMajor};
}

/// Returns whether an input has no elements, such as an empty list of axes. It is then known at import.
bool is_empty(const Constant& input) {
  return input.elements() == 0;
}

/// Stores inputs without elements in the model instead of `inputs`, because tensors on the device have elements.
/// Returns the model's bytes.
std::string with_empty_inputs(const std::string& bytes, std::vector<Constant>& inputs) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) {
    return bytes;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<int>(i) < model.graph().input_size() && is_empty(inputs[i])) {
      ::onnx::TensorProto& stored = *model.mutable_graph()->add_initializer();
      stored.set_name(model.graph().input(static_cast<int>(i)).name());
      stored.set_data_type(inputs[i].element);
      stored.mutable_dims()->Assign(inputs[i].shape.begin(), inputs[i].shape.end());
    }
  }
  std::erase_if(inputs, is_empty);
  return model.SerializeAsString();
}

/// Builds the functions "load" and "run". In "run", the model's operations are between the streams.
Result<Graph> graph_of(const OnnxModel& model, const std::vector<Constant>& inputs, Imported& imported) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"run", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  onnx_import::ImportOptions options;
  options.as_written = true;
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GraphInput& input = model.inputs()[i];
    POPRUN_ASSIGN(TensorType type, input_type(input, inputs[i]));
    names.push_back(input.name);
    types.push_back(std::move(type));
    options.samples[input.name] = inputs[i];
  }
  if (!inputs.empty()) {
    options.inputs = builder.stream_in("inputs", names, types);
  }
  POPRUN_ASSIGN(imported, import_model(builder, model, options));
  std::vector<TensorId> outputs;
  for (const onnx_import::ImportedOutput& output : imported.outputs) {
    outputs.push_back(output.tensor);
  }
  builder.append(StreamOut{"outputs", outputs}.operation());
  load_weights(graph, imported.weights);
  return graph;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

Result<Constant> read_value(const std::filesystem::path& path) {
  ::onnx::TensorProto tensor;
  if (!tensor.ParseFromString(read_file(path))) {
    return fail(ErrorCode::kData, fmt::format("{}: not a serialised ONNX tensor", path.string()));
  }
  return onnx_import::read_tensor(tensor);
}

/// Reads WHAT_0.pb, WHAT_1.pb, ... from a folder.
Result<std::vector<Constant>> read_values(const std::filesystem::path& folder, const std::string& what) {
  std::vector<Constant> values;
  for (std::size_t n = 0;; ++n) {
    const auto path = folder / fmt::format("{}_{}.pb", what, n);
    if (!std::filesystem::exists(path)) {
      return values;
    }
    POPRUN_ASSIGN(Constant value, read_value(path));
    values.push_back(std::move(value));
  }
}

/// Returns the input for a network without test data: arange(n) / n.
Result<Constant> arange_input(const OnnxModel& model) {
  if (model.inputs().size() != 1) {
    return fail(ErrorCode::kData, "a network without test data sets must have exactly one input");
  }
  const Shape& shape = model.inputs()[0].dims;
  POPRUN_ASSIGN(const std::int64_t n, onnx_import::checked_elements(shape));
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(i) / static_cast<float>(n));
  }
  return Constant::of_reals(std::move(values), shape);
}

struct Tolerance {
  double relative;
  double absolute;
};
constexpr Tolerance kOperator{1e-3, 1e-7};
constexpr Tolerance kNetwork{1e-3, 1e-5};

/// bfloat16 is computed in float32; the expected values are rounded to 8 bits.
constexpr onnx_import::Element kBrain = ::onnx::TensorProto::BFLOAT16;
constexpr double kBrainError = 0x1p-7;

double value_at(const Constant& c, std::int64_t i) {
  return c.real() ? static_cast<double>(c.real_at(i)) : static_cast<double>(c.integer_at(i));
}

/// Describes the difference, if there is one.
std::optional<std::string> difference(const Constant& had, const Constant& wanted, const Tolerance& tolerance) {
  if (had.shape != wanted.shape) {
    return fmt::format("shape {} instead of {}", to_text(TensorType{DataType::kF32, had.shape, {}}),
                       to_text(TensorType{DataType::kF32, wanted.shape, {}}));
  }
  double worst = 0;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < wanted.elements(); ++i) {
    const double a = value_at(had, i);
    const double b = value_at(wanted, i);
    const double relative = had.element == kBrain ? kBrainError : tolerance.relative;
    const double allowed = wanted.real() ? tolerance.absolute + relative * std::fabs(b) : 0;
    const bool equal = a == b || (std::isnan(a) && std::isnan(b));
    if (equal || (std::isfinite(b) && std::fabs(a - b) <= allowed)) {
      continue;
    }
    ++wrong;
    worst = std::isfinite(a - b) ? std::max(worst, std::fabs(a - b)) : HUGE_VAL;
  }
  if (wrong == 0) {
    return std::nullopt;
  }
  return fmt::format("{} of {} elements differ, largest deviation {:.3g}", wrong, wanted.elements(), worst);
}

struct Verdict {
  enum class Kind : std::uint8_t { kPass, kFail, kUnsupported };
  Kind kind = Kind::kPass;
  std::string why;
};

/// Returns the verdict for an error. An error before the run means that the model is not supported; an error in the run
/// means that the case failed.
Verdict verdict_of(const Error& error) {
  const bool refused = error.code == ErrorCode::kUsage || error.code == ErrorCode::kData;
  return {refused ? Verdict::Kind::kUnsupported : Verdict::Kind::kFail,
          error.message.substr(0, error.message.find_first_of(";\n"))};
}

Verdict compare(const OnnxModel& model, const std::vector<Constant>& inputs, const std::vector<Constant>& wanted,
                const Tolerance& tolerance) {
  const auto had = run_onnx(model, inputs, "mk2");
  if (!had) {
    return verdict_of(had.error());
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (k >= had->size()) {
      return {Verdict::Kind::kFail, "fewer outputs than expected"};
    }
    if ((*had)[k].element == kBrain && !wanted[k].real()) {
      return {Verdict::Kind::kUnsupported, fmt::format("output {} is bfloat16, but the expected output is {}", k,
                                                       onnx_import::element_name(wanted[k].element))};
    }
    if (const auto what = difference((*had)[k], wanted[k], tolerance); what) {
      return {Verdict::Kind::kFail, fmt::format("output {}: {}", k, *what)};
    }
  }
  return {};
}

Verdict check_data_set(const OnnxModel& model, const std::filesystem::path& folder) {
  auto inputs = read_values(folder, "input");
  const auto outputs = read_values(folder, "output");
  if (!inputs || !outputs) {
    return verdict_of(inputs ? outputs.error() : inputs.error());
  }
  if (std::ranges::none_of(*inputs, is_empty)) {
    return compare(model, *inputs, *outputs, kOperator);
  }
  const auto stored = OnnxModel::parse(with_empty_inputs(read_file(folder.parent_path() / "model.onnx"), *inputs));
  return stored ? compare(*stored, *inputs, *outputs, kOperator) : verdict_of(stored.error());
}

Verdict check_network(const OnnxModel& model, const std::filesystem::path& folder) {
  auto input = arange_input(model);
  const auto outputs = read_values(folder, "output");
  if (!input || !outputs) {
    return verdict_of(input ? outputs.error() : input.error());
  }
  return compare(model, {std::move(*input)}, *outputs, kNetwork);
}

Verdict check_case(const std::filesystem::path& folder) {
  const auto model = OnnxModel::parse(read_file(folder / "model.onnx"));
  if (!model) {
    return verdict_of(model.error());
  }
  std::vector<std::filesystem::path> sets;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("test_data_set_")) {
      sets.push_back(entry.path());
    }
  }
  std::ranges::sort(sets);
  if (sets.empty()) {
    return check_network(*model, folder);
  }
  for (const auto& set : sets) {
    if (Verdict verdict = check_data_set(*model, set); verdict.kind != Verdict::Kind::kPass) {
      return verdict;
    }
  }
  return {};
}

std::vector<std::filesystem::path> cases_below(const std::string& directory) {
  std::vector<std::filesystem::path> cases;
  std::error_code error;
  for (auto at = std::filesystem::recursive_directory_iterator(directory, error);
       at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().filename() == "model.onnx") {
      cases.push_back(at->path().parent_path());
    }
  }
  std::ranges::sort(cases);
  return cases;
}

}  // namespace

Result<std::vector<Constant>> run_onnx(const OnnxModel& model, const std::vector<Constant>& inputs,
                                       const std::string& device) {
  if (inputs.size() != model.inputs().size()) {
    return fail(ErrorCode::kData, fmt::format("the model has {}, but was given {}",
                                              counted(model.inputs().size(), "input"), inputs.size()));
  }
  Imported imported;
  POPRUN_ASSIGN(const Graph graph, graph_of(model, inputs, imported));
  CompileOptions options;
  options.model = "model";
  POPRUN_ASSIGN(options.device, find_device(device));
  POPRUN_ASSIGN(const Program program, plan_graph(graph, options));
  std::map<std::string, Constant> streamed;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    streamed[model.inputs()[i].name] = inputs[i];
  }
  OneRun host(imported.weights, std::move(streamed));
  POPRUN_ASSIGN(const auto world, LocalWorld::create({}));
  POPRUN_ASSIGN(const auto engine, Engine::create(program, world->communicator(ReplicaId{0}), host,
                                                  {.poison_dead = true, .check_finite = false}, [](auto) {}));
  POPRUN_TRY(engine->run("load"));
  POPRUN_TRY(engine->run("run"));
  for (std::size_t k = 0; k < host.outputs.size(); ++k) {
    if (imported.outputs[k].element == kBrain) {
      host.outputs[k].element = kBrain;
    }
  }
  return std::move(host.outputs);
}

Status check_onnx(const std::string& directory, const std::function<void(std::string_view)>& print) {
  const auto cases = cases_below(directory);
  if (cases.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: there is no model.onnx in or below this folder", directory));
  }
  std::size_t passed = 0;
  std::size_t failed = 0;
  for (const auto& folder : cases) {
    const Verdict verdict = check_case(folder);
    const std::string name = folder.lexically_relative(directory).string();
    const bool pass = verdict.kind == Verdict::Kind::kPass;
    const bool fails = verdict.kind == Verdict::Kind::kFail;
    print(fmt::format("{:<11}  {}{}\n",
                      pass    ? "pass"
                      : fails ? "FAIL"
                              : "unsupported",
                      name, verdict.why.empty() ? "" : fmt::format("  ({})", verdict.why)));
    passed += pass ? 1 : 0;
    failed += fails ? 1 : 0;
  }
  print(fmt::format("{}: {} pass, {} FAIL, {} unsupported\n", counted(cases.size(), "case"), passed, failed,
                    cases.size() - passed - failed));
  if (failed > 0) {
    return fail(ErrorCode::kBug, fmt::format("{} of {} cases fail", failed, cases.size()));
  }
  return {};
}

}  // namespace poprun
