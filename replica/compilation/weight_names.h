#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/graph/types.h"

/// Matches the tensors of a file of initial weights with the model's weights. Names in files of Hugging Face's models
/// depend on the class that was saved: they may lack the prefix of the full model, be those of older versions, and
/// include buffers and second copies of tied weights.
namespace poprun {

struct FileTensor {
  std::string type;  ///< "f32".
  Shape shape;
  std::uint64_t digest = 0;  ///< Equal for tensors of one file with equal bytes.
  std::string data = {};     ///< Its bytes; empty if only the description is known.
};
using FileTensors = std::map<std::string, FileTensor, std::less<>>;

struct WantedWeight {
  std::string name;
  Shape shape;
};

struct WeightMatch {
  std::map<std::string, std::string, std::less<>> sources;  ///< Names in the file, by the model's names.
  std::set<std::string, std::less<>> absent;                ///< Weights that the file lacks.
  std::vector<Note> notes;                                  ///< Mapped and ignored names, one line per kind.
};

struct MatchOptions {
  bool may_lack = false;  ///< Weights that the file lacks have other values.
  std::string otherwise;  ///< Their name in notes: "initialisation".
};

/// Finds the file's tensor for each weight:
///
///   by its own name
///   gamma, beta      are weight, bias, unless the model has such a name itself
///   a prefix         such as "transformer.", which half of the model's or the file's names have and
///                    the other's lack; none if two fit equally well
///   tied weights     lm_head.weight is the token embedding; a second copy must equal the first
///
/// Shapes must be equal. Buffers and tensors that the model lacks are left out.
///
/// Errors
///   kData  a weight is missing, with the nearest name and the remedy; has another shape, or
///   elements
///          that are not floats; or the copies of a tied weight differ.
Result<WeightMatch> match_weights(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                                  const MatchOptions& options);

}  // namespace poprun
