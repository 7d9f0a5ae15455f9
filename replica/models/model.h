#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/ops/builder/builder.h"

/// Built-in models. One file of this folder is one model.
namespace poprun {

/// What the host streams bring, and what the dataset says of them.
struct ModelInputs {
  std::vector<std::string> names;  ///< "images", "labels".
  std::vector<TensorId> tensors;   ///< In the order of `names`.
  std::int64_t classes = 0;
  double mean = 0;  ///< Normalisation of u8 images.
  double deviation = 1;
  bool training = true;  ///< False: built for evaluation, on the variables that training made.

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
  ModelOutputs (*build)(Builder& builder, const ModelInputs& inputs) = nullptr;
};

/// Every model there is, sorted by name.
std::vector<Model> all_models();

/// Errors: kUsage, lists the models there are.
Result<Model> find_model(std::string_view name);

}  // namespace poprun
