#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/job.h"

/// Passes over a job's graph. One file of this folder is one pass with its verifier; passes.cc says
/// in which order they run.
namespace poprun {

struct Pass {
  std::string_view name;

  /// Whether the options ask for it.
  bool (*applies)(const CompileOptions&) = nullptr;

  /// Errors: kUsage, model, data and options do not fit each other.
  Status (*run)(const CompileOptions&, Job&) = nullptr;

  /// Proves what the pass promises, from the job before and after it, sharing no code with `run`.
  /// Errors: kBug, what does not hold for which tensor.
  Status (*verify)(const CompileOptions&, const Job& before, const Job& after) = nullptr;

  /// Whether a job without it has the same results, in other time and memory.
  bool is_optional = false;
};

/// For passes that every job goes through, and those that every training job does.
inline bool always(const CompileOptions& /*options*/) {
  return true;
}
inline bool in_training(const CompileOptions& options) {
  return !options.inference;
}

/// Whether weights come from the host and go to it one by one, so that they need not meet on the
/// chip: where the options let them be elsewhere, or in parts.
bool streams_weights_one_by_one(const CompileOptions& options);

/// Which operations of a region write a tensor. Valid as long as the region stays as it is.
class Writers {
 public:
  Writers(const Graph& graph, Place place);

  [[nodiscard]] const std::vector<const Operation*>& of(TensorId tensor) const {
    return writers_.at(index_of(tensor));
  }

 private:
  std::vector<std::vector<const Operation*>> writers_;  ///< By tensor.
};

/// `pass {name}: '{tensor}' {what}` as a kBug error, for verifiers.
tl::unexpected<Error> pass_bug(std::string_view name, const Graph& graph, TensorId tensor,
                               std::string_view what);

}  // namespace poprun
