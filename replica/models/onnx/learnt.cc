#include "replica/models/onnx/learnt.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun::onnx_import {
namespace {

using ::onnx::GraphProto;
using ::onnx::TensorProto;

bool holds_weights(const TensorProto& tensor) {
  return is_real(tensor.data_type()) && std::ranges::any_of(tensor.dims(), [](std::int64_t d) { return d > 1; }) &&
         std::ranges::all_of(tensor.dims(), [](std::int64_t d) { return d > 0; });
}

bool weights_in_nodes(const GraphProto& graph) {
  if (std::ranges::any_of(graph.initializer(), holds_weights)) {
    return false;
  }
  return std::ranges::any_of(graph.node(), [](const auto& node) {
    return node.op_type() == "Constant" && std::ranges::any_of(node.attribute(), [](const auto& attribute) {
             return attribute.has_t() && holds_weights(attribute.t());
           });
  });
}

/// Returns whether PyTorch generated the name, such as "/gelu/Constant_output_0", "onnx::Mul_12", "12" or "val_12".
bool is_made_by_pytorch(const std::string& name) {
  static const Pattern made("/.*|onnx::.*|[0-9]+|_?val_[0-9]+|.*[Cc]onstant.*");
  return made.matches(name);
}

bool are_alike(const Constant& x) {
  return std::ranges::all_of(x.reals, [&](float v) { return v == x.reals[0]; });
}

/// Attention scores at or below this are masked.
constexpr float kUnseen = -1e4F;

/// Returns whether x holds only 0 and one number low enough to vanish in a softmax, such as -100 in Swin Transformers.
bool hides_scores(const Constant& x) {
  constexpr float kLow = -100;
  const float low = std::ranges::min(x.reals);
  return low <= kLow && x.shape.size() >= 2 &&
         std::ranges::all_of(x.reals, [&](float v) { return v == 0 || v == low; });
}

/// Returns whether x is [...,N,N] with one number below the diagonal (or up to it) and a different one elsewhere.
bool is_triangle(const Constant& x) {
  const std::size_t rank = x.shape.size();
  if (rank < 2 || x.shape[rank - 1] != x.shape[rank - 2] || x.shape[rank - 1] < 3) {
    return false;
  }
  const std::int64_t N = x.shape[rank - 1];
  const auto splits = [&](std::int64_t diagonal_is_left) {
    const float left = x.real_at(N * (N - 1));
    const float right = x.real_at(N - 1);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const std::int64_t row = i / N % N;
      const std::int64_t column = i % N;
      if (x.real_at(i) != (column < row + diagonal_is_left ? left : right)) {
        return false;
      }
    }
    return left != right;
  };
  return splits(0) || splits(1);
}

/// Returns whether the columns of x [N,D] are sines or cosines: x[0] is 0 or 1, and x[p+1] + x[p-1] = 2 cos(w) x[p].
bool oscillates(const Constant& x, std::int64_t N, std::int64_t D) {
  constexpr double kError = 2e-3;
  const auto at = [&](std::int64_t p, std::int64_t d) { return static_cast<double>(x.real_at(p * D + d)); };
  for (std::int64_t d = 0; d < D; ++d) {
    if (at(0, d) != 0 && at(0, d) != 1) {
      return false;
    }
    double products = 0;
    double squares = 0;
    for (std::int64_t p = 1; p + 1 < N; ++p) {
      products += at(p, d) * (at(p - 1, d) + at(p + 1, d));
      squares += at(p, d) * at(p, d);
    }
    const double factor = squares > 0 ? products / squares : 0;
    for (std::int64_t p = 1; p + 1 < N; ++p) {
      if (std::abs(at(p - 1, d) + at(p + 1, d) - factor * at(p, d)) > kError) {
        return false;
      }
    }
  }
  return true;
}

/// Returns whether x, [N,D] with any further dimensions of 1, holds sines and cosines of positions, as in RoPE.
bool is_sinusoid(const Constant& x) {
  Shape shape = x.shape;
  std::erase(shape, 1);
  return shape.size() == 2 && shape[0] >= 4 && !are_alike(x) &&
         std::ranges::all_of(x.reals, [](float v) { return std::abs(v) <= 1.001F; }) &&
         std::ranges::any_of(x.reals, [](float v) { return std::abs(v) > 0.8F; }) && oscillates(x, shape[0], shape[1]);
}

/// Returns whether x is a falling sequence 1, r, r^2, ..., such as RoPE's frequencies.
bool is_geometric(const Constant& x) {
  constexpr float kError = 1e-3F;
  if (x.shape.size() != 1 || x.reals.size() < 4 || x.reals[0] != 1 || x.reals[1] >= 1 || x.reals[1] <= 0) {
    return false;
  }
  for (std::size_t i = 1; i < x.reals.size(); ++i) {
    if (std::abs(x.reals[i] - x.reals[i - 1] * x.reals[1]) > kError * x.reals[i]) {
      return false;
    }
  }
  return true;
}

/// Returns whether x is a depthwise filter [C,1,...] that is the same for each channel, such as a blur.
bool repeats_filter(const Constant& x) {
  if (x.shape.size() < 3 || x.shape[0] < 2 || x.shape[1] != 1 || are_alike(x)) {
    return false;
  }
  const auto filter = static_cast<std::size_t>(x.elements() / x.shape[0]);
  for (std::size_t i = filter; i < x.reals.size(); ++i) {
    if (x.reals[i] != x.reals[i - filter]) {
      return false;
    }
  }
  return filter > 1;
}

/// Lists the first few names and counts the rest.
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kShown = 8;
  const std::size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

Storage::Storage(const ::onnx::ModelProto& model, const std::string& trained)
    : pytorch_(model.producer_name() == "pytorch"), in_nodes_(weights_in_nodes(model.graph())) {
  if (!trained.empty()) {
    trained_.emplace(trained);
  }
}

bool Storage::names_variable(const std::string& name) const {
  return pytorch_ ? !is_made_by_pytorch(name) : name.find("ReadVariableOp") != std::string::npos;
}

bool Storage::forces(const std::string& name) const {
  return trained_ && trained_->finds(name);
}

std::optional<std::string> fixed_table(const Constant& constant) {
  if (!constant.real() || constant.elements() == 0) {
    return std::nullopt;
  }
  if (std::ranges::any_of(constant.reals, [](float x) { return !std::isfinite(x); })) {
    return "a mask";
  }
  if (constant.elements() == 1) {
    return constant.real_at(0) <= kUnseen ? std::optional<std::string>("a mask") : std::nullopt;
  }
  if (constant.reals.size() == 1) {
    return std::nullopt;  // All elements are equal.
  }
  if (hides_scores(constant) || is_triangle(constant)) {
    return "a mask";
  }
  if (is_sinusoid(constant) || is_geometric(constant)) {
    return "a table of sines or frequencies";
  }
  if (repeats_filter(constant)) {
    return "the same filter for every channel";
  }
  return std::nullopt;
}

void Surprises::add(const Surprises& others) {
  numbers.insert(others.numbers.begin(), others.numbers.end());
  constants.insert(others.constants.begin(), others.constants.end());
  in_nodes = in_nodes || others.in_nodes;
}

std::string Surprises::note(const std::string& frozen) const {
  std::vector<std::string> trained;
  const Pattern pattern(frozen);
  for (const std::string& name : numbers) {
    if (frozen.empty() || !pattern.finds(name)) {
      trained.push_back(fmt::format("'{}'", name));
    }
  }
  std::vector<std::string> kept;
  for (const auto& [name, reason] : constants) {
    kept.push_back(fmt::format("'{}' ({})", name, reason));
  }
  std::vector<std::string> parts;
  if (in_nodes) {
    parts.emplace_back("trained: the tensors in Constant nodes, because no initialiser contains weights");
  }
  if (!trained.empty()) {
    parts.push_back(fmt::format("trained, as single numbers that may be weights: {}", listed(std::move(trained))));
  }
  if (!kept.empty()) {
    parts.push_back(fmt::format("not trained: {}", listed(std::move(kept))));
  }
  return parts.empty() ? ""
                       : fmt::format(
                             "{}; to change that: training.frozen = REGEX, "
                             "model.trained-constants = REGEX",
                             fmt::join(parts, "; "));
}

Verdict judge(const Storage& storage, const std::string& name, const Constant& constant, bool node) {
  if (!constant.real() || constant.elements() == 0) {
    return {};
  }
  if (storage.forces(name)) {
    return {.learnt = true};
  }
  if (node && !storage.in_nodes()) {
    return {.learnt = false, .reason = fixed_table(constant) ? "" : "a Constant node"};
  }
  if (const auto table = fixed_table(constant)) {
    return {.learnt = false, .reason = *table};
  }
  if (constant.shape.empty() && (node || !storage.names_variable(name))) {
    return {.learnt = false, .reason = node ? "" : "a scalar"};
  }
  return {.learnt = true};
}

}  // namespace poprun::onnx_import
