#include "replica/program/host_contract.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

static_assert(sizeof(Metrics) == 9 * sizeof(float), "must match a tensor f32[3,3]");

template <typename T>
NamedBytes field(std::string_view name, T& value) {
  return {name, std::as_writable_bytes(std::span(&value, 1))};
}

/// Copies between each field and the tensor with the same index.
template <typename Copy>
Status copy_in_order(JobStream stream, std::span<const NamedBytes> fields, std::span<const NamedBytes> tensors,
                     Copy copy) {
  if (fields.size() != tensors.size()) {
    return fail(ErrorCode::kBug,
                fmt::format("host stream {}: the Program has {}, but needs {}, from '{}' to '{}'", name_of(stream),
                            counted(tensors.size(), "tensor"), fields.size(), fields.front().name, fields.back().name));
  }
  for (std::size_t k = 0; k < fields.size(); ++k) {
    if (tensors[k].bytes.size() != fields[k].bytes.size()) {
      return fail(
          ErrorCode::kBug,
          fmt::format("host stream {}: the Program's tensor '{}' has {} B, but '{}' needs {} B", name_of(stream),
                      tensors[k].name, tensors[k].bytes.size(), fields[k].name, fields[k].bytes.size()));
    }
    copy(fields[k].bytes, tensors[k].bytes);
  }
  return {};
}

}  // namespace

const char* name_of(JobFunction function) {
  switch (function) {
    case JobFunction::kLoad:
      return "load";
    case JobFunction::kTrain:
      return "train";
    case JobFunction::kEvaluateBegin:
      return "evaluate_begin";
    case JobFunction::kEvaluate:
      return "evaluate";
    case JobFunction::kEvaluateEnd:
      return "evaluate_end";
    case JobFunction::kSave:
      return "save";
  }
  return "";
}

const char* name_of(JobStream stream) {
  switch (stream) {
    case JobStream::kControl:
      return "control";
    case JobStream::kTrain:
      return "train";
    case JobStream::kTest:
      return "test";
    case JobStream::kStep:
      return "step";
    case JobStream::kEvaluation:
      return "evaluation";
    case JobStream::kOutputs:
      return "outputs";
    case JobStream::kWeights:
      return "weights";
  }
  return "";
}

bool is_labels(std::string_view name) {
  return name == "labels" || name == "next_sentence";
}

std::vector<NamedBytes> StepControl::fields() {
  std::vector<NamedBytes> all = {field(kLearningRate, learning_rate), field(kUpdate, update)};
  if (loss_scale) {
    all.push_back(field(kLossScale, *loss_scale));
  }
  for (MeanLabels& mean : mean_labels) {
    all.push_back(field(mean.name, mean.count));
  }
  return all;
}

double PartedSum::value() const {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]) + static_cast<double>(parts[2]);
}

double Metrics::loss() const {
  return items.value() > 0 ? losses.value() / items.value() : 0.0;
}

double Metrics::accuracy() const {
  return items.value() > 0 ? correct.value() / items.value() : 0.0;
}

std::vector<NamedBytes> StepOutcome::fields() {
  std::vector<NamedBytes> all = {field(kMetrics, metrics)};
  if (gradient_factor) {
    all.push_back(field(kGradientFactor, *gradient_factor));
  }
  return all;
}

std::vector<NamedBytes> EvaluationOutcome::fields() {
  return {field(kMetrics, metrics)};
}

Status pack(JobStream stream, std::span<const NamedBytes> fields, std::span<const NamedBytes> tensors) {
  return copy_in_order(stream, fields, tensors,
                       [](auto field, auto tensor) { std::ranges::copy(field, tensor.begin()); });
}

Status unpack(JobStream stream, std::span<const NamedBytes> fields, std::span<const NamedBytes> tensors) {
  return copy_in_order(stream, fields, tensors,
                       [](auto field, auto tensor) { std::ranges::copy(tensor, field.begin()); });
}

}  // namespace poprun
