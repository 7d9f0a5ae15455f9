#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include <onnx/onnx_pb.h>

#include "replica/base/pattern.h"
#include "replica/models/onnx/constant.h"

/// Decides which of a file's real tensors a job trains.
///
/// Exporters store learnt tensors as initialisers, and the numbers in a model's code as Constant nodes. How a tensor is
/// used proves nothing: norms without weights use ones and zeros, and some convolutions have fixed filters. Therefore:
///
///   initialisers         are trained
///   Constant nodes       are not trained, unless no initialiser holds a tensor of several reals
///
/// These initialisers are exceptions and remain constants:
///
///   a scalar [], unless its name is one that the exporter gives to variables:
///     PyTorch's names are paths of attributes ("clip.logit_scale"), and tf2onnx's contain ReadVariableOp.
///     Simplifiers store the numbers of a program as initialisers, under names that the exporter generated.
///   fixed tables: masks, sines and cosines, a filter repeated for every channel
///
/// model.trained-constants adds tensors that the rule excludes; training.frozen excludes tensors that the rule trains.
namespace poprun::onnx_import {

/// Describes how a file stores weights.
class Storage {
 public:
  Storage() = default;

  /// `trained` is a regular expression for names to train regardless of the rule, or empty.
  Storage(const ::onnx::ModelProto& model, const std::string& trained);

  [[nodiscard]] bool in_nodes() const { return in_nodes_; }  ///< Whether weights are stored in Constant nodes.

  /// Returns whether the file's exporter gives variables names like this one.
  [[nodiscard]] bool names_variable(const std::string& name) const;

  /// Returns whether an Identity with this output stands for a second weight with equal values, as in PyTorch's files.
  [[nodiscard]] bool copies_weight(const std::string& output) const { return pytorch_ && names_variable(output); }
  [[nodiscard]] bool forces(const std::string& name) const;  ///< Whether the user wants this tensor to be trained.

 private:
  bool pytorch_ = false;
  bool in_nodes_ = false;
  std::optional<Pattern> trained_;
};

/// If a tensor is evidently not learnt, returns what it is, such as "a mask". Returns nothing if it may be learnt.
std::optional<std::string> fixed_table(const Constant& constant);

struct Verdict {
  bool learnt = false;
  std::string reason = {};  ///< Why it is not learnt, if it could be taken for a weight.
};

/// Names of tensors that are trained although they look like constants, or constant although they look like weights.
struct Surprises {
  std::set<std::string> numbers;                 ///< Single numbers that are trained.
  std::map<std::string, std::string> constants;  ///< Tensors that are not trained, with the reason.
  bool in_nodes = false;                         ///< Whether Constant nodes are trained.

  void add(const Surprises& others);

  /// Returns one note on all tensors but those numbers that `frozen` (a regex or "") matches; "" if none remain.
  [[nodiscard]] std::string note(const std::string& frozen) const;
};

/// Applies the rule to the tensor called `name`. `node` is true for a Constant node, false for an initialiser.
Verdict judge(const Storage& storage, const std::string& name, const Constant& constant, bool node);

}  // namespace poprun::onnx_import
