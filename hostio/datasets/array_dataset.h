#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "hostio/datasets/array_tensors.h"
#include "hostio/datasets/dataset.h"
#include "hostio/datasets/source.h"
#include "replica/base/error.h"

/// A dataset made of named NumPy arrays, with one item per row. An array's name states its part and its tensor.
///
///   train, test     x_train, y_train, x_test, y_test, as in Keras' mnist.npz; also train_images, ...
///                   If no name has such a part, all arrays are for training, and there is nothing
///                   to evaluate on. If some names have parts, arrays without one are ignored; an array that is a
///                   single number is always ignored.
///   x, images       "images"; y, labels: "labels"; input_ids, tokens: "tokens"; token_type_ids, segments: "segments";
///                   next_sentence_label: "next_sentence"; any other name is also the tensor's name
///
///   images          uint8 or floats: [N,H,W], [N,C,H,W], or features [N,F]
///   labels, ...     integers of any type are read as i32, floats as f32. Labels [N,1] of images become [N].
///
/// Channels come first. Images whose last dimension looks like the channels are refused, unless parameter `channels` is
/// `first` or `last`. Images are normalised with the parameters `mean` and `deviation`. For uint8 images, the replica
/// computes (x / 255 - mean) / deviation (defaults: 0.5 and 0.5). For float images, (x - mean) / deviation is computed
/// here when they are read (defaults: 0 and 1).
namespace poprun::hostio {

/// The source parameters, for DatasetFamily::parameters.
inline constexpr std::array<std::string_view, 3> kArrayParameters = {"channels", "deviation", "mean"};

/// The parameters that change the stored data, for DatasetFamily::stored.
inline constexpr std::array<std::string_view, 1> kStoredArrayParameters = {"channels"};

/// Errors of both functions
///   kUsage  a parameter is out of range.
///   kData   the arrays do not form a dataset, or an array is damaged; the message names it and the remedy.
/// Cost: reads labels, tokens and the first few images, to count the classes and write the notes.
Result<proto::Dataset> describe_arrays(const std::vector<ArrayFile>& arrays, const Source& source);

Result<std::shared_ptr<const Stored>> read_arrays(const std::vector<ArrayFile>& arrays, const Source& source);

}  // namespace poprun::hostio
