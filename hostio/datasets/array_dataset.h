#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/source.h"
#include "hostio/formats/npy.h"
#include "replica/base/error.h"

/// A dataset made of named NumPy arrays, one item a row. What an array is, its name says: which
/// part, then which tensor.
///
///   train, test     x_train, y_train, x_test, y_test as in Keras' mnist.npz; train_images, ...
///                   Without such a part in any name all arrays are for training, and there is
///                   nothing to evaluate on. Where names have parts, arrays without are left aside,
///                   as is a single number always.
///   x, images       "images"; y, labels: "labels"; input_ids, tokens: "tokens"; token_type_ids,
///                   segments: "segments"; next_sentence_label: "next_sentence"; any other name is
///                   the tensor's own
///
///   images          uint8 or floats: [N,H,W], [N,C,H,W], or features [N,F]
///   labels, ...     integers of any type, as i32; floats as f32. Labels [N,1] of images are [N].
///
/// Channels come first; an array whose last dimension looks like the channels is refused, unless
/// the parameter channels says first or last. Parameters mean and deviation: of uint8 images
/// (x / 255 - mean) / deviation is computed on the replica (default 0.5 and 0.5), of float images
/// (x - mean) / deviation here as they are read (default 0 and 1).
namespace poprun::hostio {

/// The parameters, for a family's list.
inline constexpr std::array<std::string_view, 3> kArrayParameters = {"channels", "deviation",
                                                                     "mean"};

/// Those of them that change what is stored.
inline constexpr std::array<std::string_view, 1> kStoredArrayParameters = {"channels"};

/// An array that can be read.
struct ArrayFile {
  std::string name;          ///< "x_train".
  std::string place;         ///< In messages.
  Result<NpyHeader> header;  ///< An error matters only where the array is used.
  /// The bytes after the header, `most` of them. Requires: a header without error.
  std::function<Result<std::vector<std::byte>>(std::uint64_t most)> data;
};

/// Errors, of both functions
///   kUsage  a parameter is out of range.
///   kData   the arrays make no dataset, or one is damaged; names it and the remedy.
/// Cost: labels, tokens and the first few images are read, to know how many classes there are and
/// what to note.
Result<proto::Dataset> describe_arrays(const std::vector<ArrayFile>& arrays, const Source& source);

Result<std::shared_ptr<const Stored>> read_arrays(const std::vector<ArrayFile>& arrays,
                                                  const Source& source);

}  // namespace poprun::hostio
