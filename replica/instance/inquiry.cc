#include "replica/instance/inquiry.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/models/model.h"

namespace poprun {
namespace {

/// 12,345,678.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) {
    text.insert(place - 3, ",");
  }
  return text;
}

struct ModelFigures {
  std::int64_t parameters = 0;
  std::int64_t forward_macs = 0;
};

/// The evaluation's forward pass of one sample.
Result<ModelFigures> figures_of(const Model& model) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"evaluate", {{1, {}}}}};
  Builder builder(graph, 1, 0, "");
  ModelInputs inputs;
  inputs.classes = model.sample.classes;
  inputs.training = false;
  inputs.sizes = model.sizes;
  for (const SampleTensor& tensor : model.sample.tensors) {
    Shape shape{1};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    inputs.names.push_back(tensor.name);
    inputs.tensors.push_back(graph.add_tensor(
        {tensor.name, {tensor.data, std::move(shape), Layout::kRowMajor}, Role::kStream}));
  }
  model.build(builder, inputs);
  POPRUN_TRY(builder.status());
  ModelFigures figures;
  for (const Tensor& tensor : graph.tensors()) {
    figures.parameters += tensor.role == Role::kParameter ? tensor.type.elements() : 0;
  }
  for (const Operation& operation : builder.operations()) {
    Signature signature{{}, {}, operation.attributes};
    for (const TensorId id : operation.inputs) {
      signature.inputs.push_back(graph.tensor(id).type);
    }
    for (const TensorId id : operation.outputs) {
      signature.outputs.push_back(graph.tensor(id).type);
    }
    figures.forward_macs += find_operator(operation.kind)->work(signature).macs;
  }
  return figures;
}

/// "images u8[3,224,224], 1000 classes"; labels of one element go without saying.
std::string sample_text(const Sample& sample) {
  std::vector<std::string> parts;
  for (const SampleTensor& tensor : sample.tensors) {
    if (!tensor.shape.empty()) {
      parts.push_back(
          fmt::format("{} {}", tensor.name, to_text(TensorType{tensor.data, tensor.shape, {}})));
    }
  }
  if (sample.classes > 0) {
    parts.push_back(fmt::format("{} classes", sample.classes));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string sizes_text(const Model& model) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : model.sizes) {
    parts.push_back(fmt::format("{}={}", name, value));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

Answer list_models() {
  Answer answer;
  const auto row = [&answer](const auto&... cells) {
    answer.text += fmt::format("{:<18} {:>13}  {:>14}  {:<72} {}\n", cells...);
  };
  row("model", "parameters", "forward GMAC", "sizes, with their defaults", "one sample");
  for (const Model& model : all_models()) {
    const auto figures = figures_of(model);
    if (!figures) {
      answer.status = tl::unexpected<Error>{figures.error()};
      return answer;
    }
    row(model.name, grouped(figures->parameters),
        fmt::format("{:.9f}", static_cast<double>(figures->forward_macs) / 1e9), sizes_text(model),
        sample_text(model.sample));
  }
  return answer;
}

}  // namespace

Answer answer_inquiry(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--list-models") {
    return list_models();
  }
  return {"",
          fail(ErrorCode::kUsage,
               fmt::format("'{}' is no question for poprun-emu-replica; there is: --list-models",
                           fmt::join(arguments, " ")))};
}

}  // namespace poprun
