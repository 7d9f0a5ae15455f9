#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/types.h"

/// Matches the tensors of a file of initial weights with the model's weights. Files of Hugging Face's models name them
/// by the class that was saved: without the prefix of the whole model, with the names of older versions, with buffers,
/// and with or without the twin of a tied weight.
namespace poprun {

struct FileTensor {
  std::string type;  ///< "f32".
  Shape shape;
  std::uint64_t digest = 0;  ///< Equal for equal bytes, of tensors of one file.
  std::string data = {};     ///< Its bytes; empty if only the description is known.
};
using FileTensors = std::map<std::string, FileTensor, std::less<>>;

struct WantedWeight {
  std::string name;
  Shape shape;
};

struct WeightMatch {
  std::map<std::string, std::string, std::less<>> sources;  ///< The file's name by the model's.
  std::set<std::string, std::less<>> absent;                ///< Weights that the file lacks.
  std::vector<std::string> notes;                           ///< What was mapped or left out: a line for each kind.
};

struct MatchOptions {
  bool may_lack = false;  ///< Weights that the file lacks have values without it.
  std::string otherwise;  ///< What these are: "initialisation".
};

/// The file's tensor for each weight:
///
///   by its own name
///   gamma, beta      are weight, bias, unless the model has such a name itself
///   a prefix         that half of the model's or the file's names have more or less than the
///                    other's: "transformer."; none where two fit equally well
///   tied weights     lm_head.weight is the token embedding; a second copy must equal the first
///
/// Shapes must be equal. Buffers and tensors that the model lacks are left out.
///
/// Errors
///   kData  a weight is missing, with the nearest name and the remedy; has another shape, or
///   elements
///          that are no floats; or the copies of a tied weight differ.
Result<WeightMatch> match_weights(const std::vector<WantedWeight>& wanted, const FileTensors& file,
                                  const MatchOptions& options);

}  // namespace poprun
