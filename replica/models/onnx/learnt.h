#pragma once

#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include <onnx/onnx_pb.h>

#include "replica/models/onnx/constant.h"

/// Decides which of a file's real tensors a job trains.
///
/// Exporters store learnt tensors as initialisers, and a program's numbers as Constant nodes. A tensor's use says
/// nothing: norms without weights get ones and zeros, and fixed filters are convolutions' operands. Therefore
///
///   initialisers         are trained
///   Constant nodes       are not, unless no initialiser holds a tensor of several reals
///
/// except these initialisers, which are constants:
///
///   a scalar [], unless its name is one that the exporter gives to variables:
///     PyTorch's are paths of attributes ("clip.logit_scale"), tf2onnx's contain ReadVariableOp.
///     Simplifiers store the numbers of a program as initialisers, with the exporter's own names.
///   fixed tables: masks, sines and cosines, a filter repeated for every channel
///
/// model.trained-constants trains tensors that the rule excludes; training.frozen excludes tensors that it trains.
namespace poprun::onnx_import {

/// How a file stores weights.
class Storage {
 public:
  Storage() = default;

  /// `trained`: regular expression of names to train whatever the rule says; empty for none.
  Storage(const ::onnx::ModelProto& model, const std::string& trained);

  [[nodiscard]] bool in_nodes() const { return in_nodes_; }  ///< Whether weights are stored in Constant nodes.

  /// Returns whether the file's exporter gives variables names like this one.
  [[nodiscard]] bool names_variable(const std::string& name) const;

  /// Returns whether an Identity with this output is PyTorch's copy of a weight, written for an equal initialiser.
  [[nodiscard]] bool copies_weight(const std::string& output) const { return pytorch_ && names_variable(output); }
  [[nodiscard]] bool forces(const std::string& name) const;  ///< Whether the user wants it to be trained.

 private:
  bool pytorch_ = false;
  bool in_nodes_ = false;
  std::optional<std::regex> trained_;
};

/// Returns the kind of a tensor that is evidently not learnt, such as "a mask"; nothing if it may be learnt.
std::optional<std::string> fixed_table(const Constant& constant);

struct Verdict {
  bool learnt = false;
  std::string reason = {};  ///< Why it is not learnt, if it could be taken for a weight.
};

/// Names of the tensors that are trained although they look like constants, and the reverse.
struct Surprises {
  std::set<std::string> numbers;                 ///< Single numbers that are trained.
  std::map<std::string, std::string> constants;  ///< Tensors that are not trained, with the reason.
  bool in_nodes = false;                         ///< Constant nodes are trained.

  void add(const Surprises& others);

  /// Returns one note on them, without numbers that `frozen` (a regular expression or "") matches; "" if none remain.
  [[nodiscard]] std::string note(const std::string& frozen) const;
};

/// Applies the rule to a tensor called `name`, which is a Constant node if `node`, else an initialiser.
Verdict judge(const Storage& storage, const std::string& name, const Constant& constant, bool node);

}  // namespace poprun::onnx_import
