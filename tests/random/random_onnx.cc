#include "random_onnx.h"

#include <algorithm>
#include <vector>

#include "tests/unit/replica/onnx_models.h"

namespace poprun::testing {
namespace {

const std::string kFirst = "W2";  ///< The first weight.

/// Returns names that passes, loops and datasets use, among them those of tensors that belong to W2.
std::vector<std::string> awkward_names() {
  return {"W2.gradient",
          "W2.gradient.1",
          "W2.momentum",
          "W2.momentum.shard",
          "W2.m",
          "W2.v",
          "W2.master",
          "W2.accumulator",
          "W2.accumulator.1",
          "W2.accumulator.slice0",
          "W2.gradient.mean",
          "W2.gradient.sum-of-squares",
          "W2.sums-of-squares",
          "W2.shard",
          "W2.remote",
          "W2.recomputed",
          "W2@ipu0",
          "W2@ipu1",
          "W2@stage1",
          "W2@stage1.stash",
          "W2.stash",
          "W2.restored",
          "W2.sent",
          "W2.arrived",
          "W2.updated",
          "W2.exchanged",
          "W2.1",
          "W2~2",
          "gradient-factor",
          "learning-rate",
          "step",
          "loss-scale",
          "train.metrics",
          "evaluate/metrics",
          "evaluate/W2",
          "evaluate/loss",
          "evaluate/images",
          "constants/W2",
          "constants/b",
          "constants~/b",
          "loss",
          "loss~",
          "loss.gradient",
          "loss.correct",
          "loss.count",
          "images",
          "labels",
          "x.normalized",
          "images.normalized",
          "outlined.0",
          "outlined.0/W2",
          "train",
          "load",
          "relu",
          "linear",
          "W 2",
          "W.2",
          "0",
          ".",
          "a/b/../c",
          "\xC3\x9F\xE2\x86\x92\xE9\x87\x8D",
          "#",
          "'",
          "\"",
          "\\",
          "{}",
          "%s",
          "-",
          "__metadata__",
          std::string(300, 'w')};
}

class Model {
 public:
  explicit Model(const std::function<std::uint64_t(std::uint64_t)>& below) : below_(below), names_(awkward_names()) {
    std::erase(names_, kFirst);
  }

  std::string draw(std::int64_t features, std::int64_t outputs) {
    const std::string input = below_(2) == 0 ? "x" : name();
    builder_.input(input, {-1, -1, -1, -1});
    std::string value = apply("Flatten", {input});
    std::int64_t width = features;
    for (std::uint64_t layer = below_(3); layer > 0; --layer) {
      const std::int64_t next = std::vector<std::int64_t>{1, 2, 3, 5, 42}[below_(5)];
      value = dense(value, width, next);
      width = next;
    }
    value = dense(value, width, outputs, /*is_last=*/true);
    builder_.output(value, {-1, outputs});
    return builder_.bytes();
  }

 private:
  /// Takes a name that is not in use yet.
  std::string name() {
    const std::size_t k = below_(names_.size());
    std::string taken = names_[k];
    names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(k));
    return taken;
  }

  std::string apply(const std::string& op, const std::vector<std::string>& inputs) {
    const std::string output = name();
    builder_.node(op, inputs, {output});
    return output;
  }

  std::string weight(const std::vector<std::int64_t>& dims) {
    std::int64_t elements = 1;
    for (const std::int64_t d : dims) {
      elements *= d;
    }
    std::vector<float> values(static_cast<std::size_t>(elements));
    std::ranges::generate(values, [this] { return static_cast<float>(below_(2001)) / 2000.0F - 0.5F; });
    const std::string own = has_first_ ? name() : kFirst;
    has_first_ = true;
    builder_.weight(own, dims, values);
    return own;
  }

  std::string dense(std::string value, std::int64_t in, std::int64_t out, bool is_last = false) {
    value = apply("MatMul", {value, weight({in, out})});
    if (below_(3) > 0) {
      value = apply("Add", {value, weight({out})});
    }
    if (below_(4) == 0) {
      value = apply("Mul", {value, weight({1, out})});
    }
    if (below_(4) == 0) {
      value = apply("Add", {value, value});
    }
    return is_last || below_(4) == 0 ? value : apply("Relu", {value});
  }

  const std::function<std::uint64_t(std::uint64_t)>& below_;
  std::vector<std::string> names_;
  bool has_first_ = false;
  OnnxBuilder builder_;
};

}  // namespace

std::string random_onnx(const std::function<std::uint64_t(std::uint64_t)>& below, std::int64_t features,
                        std::int64_t outputs) {
  return Model(below).draw(features, outputs);
}

}  // namespace poprun::testing
