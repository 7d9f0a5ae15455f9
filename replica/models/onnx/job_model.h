#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/note.h"
#include "replica/choices/choices.h"
#include "replica/models/layers/model.h"
#include "replica/models/onnx/cuts.h"
#include "replica/models/onnx/importer.h"

namespace poprun::onnx_import {

/// An ONNX file as a model: it reads the dataset's tensors, and its first output gets a loss. It belongs to one thread.
class JobModel {
 public:
  /// `trained_constants` is model.trained-constants (learnt.h). Errors: those of OnnxModel::parse, which name `file`.
  static Result<std::shared_ptr<JobModel>> parse(const std::string& file, std::string_view bytes, Loss loss,
                                                 const std::string& trained_constants = "");

  /// Appends the model and, if it is scored, its loss.
  ///
  /// An input reads the dataset's tensor of the same name ("input_ids" reads "tokens", and "token_type_ids" reads
  /// "segments"). If no tensor has that name, a model's only input reads the first tensor other than labels. Images
  /// arrive as normalised floats, tokens as integers. The batch dimension comes from the data, regardless of the file.
  /// If the input is [N,C,L], floats [N,1,C,L] are treated as a sequence.
  ///
  ///   cross-entropy       compares the output, logits [N,K], [N,...,K] or [N,K,...], with "labels" i32[N] or
  ///                       i32[N,...]; a Softmax at the end is removed, since the loss includes one
  ///   mean-squared-error  compares the output [N,D] with "labels": f32 with as many elements, or classes i32[N],
  ///                       which become one-hot rows
  ///   binary-cross-entropy, contrastive, global-contrastive, ctc   see layers/losses.h; the output consists of logits:
  ///   no Sigmoid or
  ///                       Softmax is removed
  ///
  /// Makes `builder` refuse data (kUsage) or a model (kData) that does not follow these rules.
  ModelOutputs build(Builder& builder, const ModelInputs& inputs);

  /// Returns the initial values of the variables of all builds, as device bytes, except those of `separate`.
  [[nodiscard]] Result<std::map<std::string, std::string, std::less<>>> weights() const;

  /// Returns the names of the weights of all builds that come with the job's initial weights, not with the file.
  [[nodiscard]] std::vector<std::string> separate() const;

  /// Returns the names for CompileOptions::given_names.
  [[nodiscard]] const std::set<std::string>& names() const { return model_.names(); }

  /// Returns one note on each decision that the builds made.
  [[nodiscard]] std::vector<Note> notes() const;

 private:
  JobModel(std::string file, OnnxModel model, Loss loss, std::string trained)
      : file_(std::move(file)), model_(std::move(model)), loss_(loss), trained_(std::move(trained)) {}

  /// Assigns layers to the operations from `first` on. Those from `first_imported` on come from the file's nodes.
  void mark_layers(Builder& builder, std::size_t first, std::size_t first_imported, const Imported& imported);
  [[nodiscard]] Status check_first_output(const Builder& builder, const Imported& imported,
                                          const ModelInputs& inputs) const;
  Result<ModelOutputs> try_build(Builder& builder, const ModelInputs& inputs);
  [[nodiscard]] Result<TensorId> input_of(Builder& builder, const GraphInput& input, const ModelInputs& given) const;

  std::string file_;
  OnnxModel model_;
  Loss loss_;
  std::string trained_;
  std::string frozen_;  ///< training.frozen of the last build for training.
  std::map<std::string, std::shared_ptr<const Constant>> weights_;
  std::vector<Note> notes_;
  Surprises surprises_;
  std::vector<Piece> layers_;  ///< Found by the first build and used by all.
};

}  // namespace poprun::onnx_import
