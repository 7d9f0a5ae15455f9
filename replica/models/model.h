#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/builder/model_outputs.h"

/// Built-in models. One file of this folder is one model, in all its sizes.
namespace poprun {

/// What the host streams bring, and what the dataset says of them.
struct ModelInputs {
  std::vector<std::string> names;  ///< "images", "labels".
  std::vector<TensorId> tensors;   ///< In the order of `names`.
  std::int64_t classes = 0;        ///< The largest label or token plus one.
  std::int64_t label_classes = 0;  ///< The largest label plus one.
  double mean = 0;                 ///< Normalisation of u8 images.
  double deviation = 1;
  double dropout = 0;    ///< Where the model has dropout, in training.
  bool half = false;     ///< Activations will be stored as float16.
  bool training = true;  ///< False: built for evaluation, on the variables that training made.
  std::map<std::string, std::int64_t> sizes;  ///< All of the model's: see sizes_of.

  /// The size of that name. Requires: the model declares it.
  [[nodiscard]] std::int64_t size(const std::string& name) const;

  /// Whether the dataset has a tensor of that name.
  [[nodiscard]] bool has(std::string_view name) const;

  /// Whether outputs are compared with the dataset's "labels": training needs them, a forward pass
  /// alone takes them where they are.
  [[nodiscard]] bool scored() const { return training || has("labels"); }

  /// The tensor of that name; makes `builder` refuse (kUsage) where the dataset has none.
  [[nodiscard]] TensorId find(Builder& builder, std::string_view name) const;
};

/// One tensor of a sample.
struct SampleTensor {
  std::string name;
  DataType data;
  Shape shape;  ///< Without the batch dimension.
};

/// Data of the kind that a model was published on, for figures of its work.
struct Sample {
  std::vector<SampleTensor> tensors;
  std::int64_t classes = 0;
};

/// In Model::sizes: what the data says, where the size is not given.
inline constexpr std::int64_t kOfData = 0;

struct Model {
  std::string name;
  std::string description;  ///< One line.

  /// Every size that may be given, with its value where it is not: what ModelInputs::size finds.
  std::map<std::string, std::int64_t> sizes;

  Sample sample;  ///< For the sizes as they are above.

  bool has_dropout = false;  ///< Looks at ModelInputs::dropout.

  ModelOutputs (*build)(Builder& builder, const ModelInputs& inputs) = nullptr;
};

/// Every model there is, sorted by name.
std::vector<Model> all_models();

/// Errors: kUsage, lists the models there are.
Result<Model> find_model(std::string_view name);

/// The model's sizes with the `given` ones in place of their defaults.
/// Errors: kUsage, a size that the model does not have, with those it has.
Result<std::map<std::string, std::int64_t>> sizes_of(
    const Model& model, const std::map<std::string, std::int64_t>& given);

}  // namespace poprun
