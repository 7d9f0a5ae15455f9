#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/graph/types.h"

/// Matches the tensors of a file of initial weights with the model's weights. The names in Hugging Face's files depend
/// on the class that was saved. They may come from older versions or lack the prefix of the full model, and the files
/// may contain buffers and second copies of tied weights.
namespace poprun {

struct FileTensor {
  std::string type;  ///< "f32".
  Shape shape;
  std::uint64_t digest = 0;  ///< Identical for tensors of one file that have the same bytes.
  std::string data = {};     ///< The tensor's bytes; empty if only its description is known.
};
using FileTensors = std::map<std::string, FileTensor, std::less<>>;

struct WantedWeight {
  std::string name;
  Shape shape;
};

struct WeightMatch {
  std::map<std::string, std::string, std::less<>> sources;  ///< Names in the file, keyed by the model's names.
  std::set<std::string, std::less<>> absent;                ///< Weights that are missing from the file.
  std::vector<Note> notes;                                  ///< Mapped and ignored names, one line per kind.
};

struct MatchOptions {
  bool may_lack = false;  ///< Whether weights missing from the file get values from elsewhere.
  std::string otherwise;  ///< Description of these values for notes, such as "initialisation".
};

/// Finds the file's tensor for each weight:
///
///   by its own name
///   gamma, beta      count as weight, bias, unless the model itself has a weight of that name
///   a prefix         such as "transformer.", if it is on half of the names on one side (model or file) and missing on
///                    the other side, and no other prefix fits equally well
///   tied weights     lm_head.weight is the token embedding; if the file has both, they must be identical
///
/// Shapes must be the same. Buffers, and tensors that the model does not have, are left out. Errors: kData if a weight
/// is missing (the message names the nearest tensor and the remedy), has another shape, or has elements that are not
/// floats, or if the copies of a tied weight differ.
Result<WeightMatch> match_weights(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                                  const MatchOptions& options);

}  // namespace poprun
