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
/// Exporters store what was learnt as initialisers, and write numbers of the program as Constant nodes. Where a tensor
/// is used says nothing: a norm without weights of its own gets ones and zeros, and a fixed filter is a convolution's
/// operand like any other. So
///
///   initialisers         are trained
///   Constant nodes       are not, unless no initialiser holds a tensor of several reals
///
/// except these initialisers, which are constants:
///
///   a number [] without dimensions, unless its name is one that the exporter gives variables:
///     PyTorch's are paths of attributes ("clip.logit_scale"), tf2onnx's say ReadVariableOp.
///     Simplifiers store the numbers of a program as initialisers, with the exporter's own names.
///   what nobody learns: masks, tables of sines and cosines, a filter repeated for every channel
///
/// model.trained-constants trains what the rule does not, and training.frozen the reverse.
namespace poprun::onnx_import {

/// How a file stores weights.
class Storage {
 public:
  Storage() = default;

  /// `trained`: names to train whatever the rule says; empty: none.
  Storage(const ::onnx::ModelProto& model, const std::string& trained);

  /// Whether weights are Constant nodes.
  [[nodiscard]] bool in_nodes() const { return in_nodes_; }

  /// Whether the file's exporter gives variables names like this one.
  [[nodiscard]] bool names_variable(const std::string& name) const;

  /// PyTorch writes Identity where an initialiser equals another one, under whose name it is kept.
  [[nodiscard]] bool copies_weight(const std::string& output) const { return pytorch_ && names_variable(output); }

  /// Whether the user wants `name` to be trained.
  [[nodiscard]] bool forces(const std::string& name) const;

 private:
  bool pytorch_ = false;
  bool in_nodes_ = false;
  std::optional<std::regex> trained_;
};

/// The evident kind of a tensor that no training made, such as "a mask"; nothing if it may be learnt.
std::optional<std::string> fixed_table(const Constant& constant);

struct Verdict {
  bool learnt = false;
  std::string reason = {};  ///< Why not, where it could be taken for a weight.
};

/// Names the tensors that are trained, or are not, although they look otherwise.
struct Surprises {
  std::set<std::string> numbers;                 ///< Single numbers that are trained.
  std::map<std::string, std::string> constants;  ///< Not trained: why, by name.
  bool in_nodes = false;                         ///< Constant nodes are trained.

  void add(const Surprises& others);

  /// As one note, without what `frozen` (a regular expression or "") matches; "" where there are none.
  [[nodiscard]] std::string note(const std::string& frozen) const;
};

/// The rule for a real tensor of `name`, an initialiser or a Constant `node`.
Verdict judge(const Storage& storage, const std::string& name, const Constant& constant, bool node);

}  // namespace poprun::onnx_import
