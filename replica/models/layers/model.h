#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/choices/choices.h"
#include "replica/ops/builder/builder.h"

/// Built-in models. Each .cc file in replica/models defines one model, or one family of models, in all sizes.
namespace poprun {

/// Everything that a model is built from: the tensors of the host streams, facts about these tensors, and job settings.
struct ModelInputs {
  std::vector<std::string> names;  ///< For example, "images" and "labels".
  std::vector<TensorId> tensors;   ///< In the order of `names`.
  std::int64_t classes = 0;        ///< The largest label or token plus one.
  std::int64_t label_classes = 0;  ///< The largest label plus one.
  std::int64_t replicas = 1;       ///< Replicas that train the model together.
  double mean = 0;                 ///< `mean` and `deviation` normalise u8 images.
  double deviation = 1;
  double dropout = 0;                         ///< Dropout rate in training, for models that have dropout.
  bool half = false;                          ///< Whether activations will be stored as float16.
  Normalisation normalisation = {};           ///< Kind of normalisation for models with batch normalisation.
  std::string frozen = {};                    ///< The job's training.frozen, for the text of notes.
  bool training = true;                       ///< False for evaluation, which uses the variables of training.
  std::map<std::string, std::int64_t> sizes;  ///< All of the model's sizes; see sizes_of.

  [[nodiscard]] std::int64_t size(const std::string& name) const;  ///< Requires: the model declares this size.
  [[nodiscard]] bool has(std::string_view name) const;             ///< Whether the dataset has this tensor.

  /// Returns whether outputs are compared with "labels". Training needs them; a forward pass uses them if present.
  [[nodiscard]] bool scored() const { return training || has("labels"); }

  /// Returns the tensor called `name`. If the dataset has none, makes `builder` refuse the dataset (kUsage).
  [[nodiscard]] TensorId find(Builder& builder, std::string_view name) const;
};

struct SampleTensor {
  std::string name;
  DataType data;
  Shape shape;  ///< Without the batch dimension.
};

/// Shapes of the data that a model was published with. They are used to compute the model's work.
struct Sample {
  std::vector<SampleTensor> tensors;
  std::int64_t classes = 0;
};

/// Default in Model::sizes for a size that comes from the data unless the job sets it.
inline constexpr std::int64_t kOfData = 0;

struct Model {
  std::string name;
  std::string description;                    ///< One line.
  std::map<std::string, std::int64_t> sizes;  ///< All settable sizes, with defaults; see ModelInputs::size.
  Sample sample;                              ///< The sample data for the default sizes.
  bool has_dropout = false;                   ///< Whether the model uses ModelInputs::dropout.
  bool has_batch_norm = false;                ///< Whether the model uses ModelInputs::normalisation.

  /// Appends the forward pass. Every operation belongs to a layer (Builder::layer). The layers are named in the order
  /// of the forward pass, and the model can be split into stages between them.
  ModelOutputs (*build)(Builder& builder, const ModelInputs& inputs) = nullptr;
};

std::vector<Model> all_models();  ///< Sorted by name.

/// Finds a model by name. Errors: kUsage if there is none; the message suggests others.
Result<Model> find_model(std::string_view name);

/// Returns the model's sizes with the `given` ones in place of their defaults. Errors: kUsage for a size that is not
/// positive or that the model does not have; the message lists all sizes.
Result<std::map<std::string, std::int64_t>> sizes_of(const Model& model,
                                                     const std::map<std::string, std::int64_t>& given);

}  // namespace poprun
