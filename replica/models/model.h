#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/ops/builder/builder.h"

/// Built-in models. One file of this folder is one model, in all its sizes.
namespace poprun {

/// What the host streams bring, and what the dataset says of them.
struct ModelInputs {
  std::vector<std::string> names;  ///< "images", "labels".
  std::vector<TensorId> tensors;   ///< In the order of `names`.
  std::int64_t classes = 0;
  double mean = 0;  ///< Normalisation of u8 images.
  double deviation = 1;
  bool training = true;  ///< False: built for evaluation, on the variables that training made.
  std::map<std::string, std::int64_t> sizes;  ///< Those that were given; see check_sizes.

  /// The size of that name, or `fallback` where it was not given.
  [[nodiscard]] std::int64_t size(const std::string& name, std::int64_t fallback) const;

  /// Whether the dataset has a tensor of that name.
  [[nodiscard]] bool has(std::string_view name) const;

  /// The tensor of that name; makes `builder` refuse (kUsage) where the dataset has none.
  [[nodiscard]] TensorId find(Builder& builder, std::string_view name) const;
};

/// What every model ends in: scalars over the micro-batch.
struct ModelOutputs {
  TensorId loss;     ///< Mean over `count` items; what training lowers.
  TensorId correct;  ///< Items answered right.
  TensorId count;    ///< Items that count: padding does not.
};

struct Model {
  std::string name;
  std::string description;  ///< One line.

  /// What ModelInputs::size asks for: names of the sizes that may be given, sorted.
  std::vector<std::string> sizes;

  ModelOutputs (*build)(Builder& builder, const ModelInputs& inputs) = nullptr;
};

/// Every model there is, sorted by name.
std::vector<Model> all_models();

/// Errors: kUsage, lists the models there are.
Result<Model> find_model(std::string_view name);

/// Errors: kUsage, a size that the model does not have, with those it has.
Status check_sizes(const Model& model, const std::map<std::string, std::int64_t>& sizes);

}  // namespace poprun
