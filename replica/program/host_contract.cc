#include "replica/program/host_contract.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun {
namespace {

static_assert(sizeof(Metrics) == 9 * sizeof(float), "must match a tensor f32[3,3]");

template <typename T>
NamedBytes field(std::string_view name, T& value) {
  return {name, std::as_writable_bytes(std::span(&value, 1))};
}

/// Copies between the fields and their tensors.
template <typename Copy>
Status copy_by_name(JobStream stream, std::span<const NamedBytes> fields,
                    std::span<const NamedBytes> tensors, Copy copy) {
  for (const NamedBytes& tensor : tensors) {
    if (std::ranges::find(fields, tensor.name, &NamedBytes::name) == fields.end()) {
      return fail(ErrorCode::kBug, fmt::format("host stream {}: the host has nothing for the "
                                               "Program's tensor '{}'",
                                               name_of(stream), tensor.name));
    }
  }
  for (const NamedBytes& field : fields) {
    const auto tensor = std::ranges::find(tensors, field.name, &NamedBytes::name);
    if (tensor == tensors.end()) {
      return fail(ErrorCode::kBug, fmt::format("host stream {}: the Program has no tensor '{}'",
                                               name_of(stream), field.name));
    }
    if (tensor->bytes.size() != field.bytes.size()) {
      return fail(
          ErrorCode::kBug,
          fmt::format("host stream {}: the Program's tensor '{}' has {} B, needed {} B",
                      name_of(stream), field.name, tensor->bytes.size(), field.bytes.size()));
    }
    copy(field.bytes, tensor->bytes);
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
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]) +
         static_cast<double>(parts[2]);
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

Status pack(JobStream stream, std::span<const NamedBytes> fields,
            std::span<const NamedBytes> tensors) {
  return copy_by_name(stream, fields, tensors,
                      [](auto field, auto tensor) { std::ranges::copy(field, tensor.begin()); });
}

Status unpack(JobStream stream, std::span<const NamedBytes> fields,
              std::span<const NamedBytes> tensors) {
  return copy_by_name(stream, fields, tensors,
                      [](auto field, auto tensor) { std::ranges::copy(tensor, field.begin()); });
}

}  // namespace poprun
