#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Which IPU each tensor of a job is at home on, while a pipeline is being built, and replicas of
/// variables on other IPUs that read them.
class Homes {
 public:
  /// Nothing has a home yet.
  explicit Homes(Graph& graph) : graph_(graph), homes_(graph.tensors().size()) {}

  [[nodiscard]] std::optional<std::uint32_t> of(TensorId tensor) const;

  /// Sets the home, unless it has one.
  void settle(TensorId tensor, std::uint32_t ipu);

  /// The tensor itself if it is at home there, or has no home and gets it there; else its replica.
  TensorId on(TensorId variable, std::uint32_t ipu);

  /// A new tensor like `like`, at home there; numbered if the model has one of that name.
  TensorId add(const std::string& name, TensorType type, TensorId like, std::uint32_t ipu);

  /// A replica, and what it is a copy of.
  struct Replica {
    TensorId variable;
    TensorId replica;
  };
  [[nodiscard]] const std::vector<Replica>& replicas() const { return replicas_; }

 private:
  Graph& graph_;
  std::vector<std::optional<std::uint32_t>> homes_;  ///< By tensor.
  std::map<std::pair<TensorId, std::uint32_t>, TensorId> replica_on_;
  std::vector<Replica> replicas_;
};

}  // namespace poprun
