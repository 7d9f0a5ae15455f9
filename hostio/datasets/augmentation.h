#pragma once

#include <memory>
#include <string>

#include "hostio/datasets/dataset.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// Augmentation: images that look different in every epoch. For training only; evaluation sees the original images.
///
///   none        the original image
///   flip        mirrored left to right, with probability 1/2
///   crop        shifted by -4 to 4 pixels in each direction, with a black border (the usual
///               pad-and-crop of He et al., arXiv:1512.03385, section 4.2). Black is zero before
///               the images are normalised, whatever their type.
///   flip+crop   both
///
/// The result is a function of (seed, epoch, item).
///
/// Errors
///   kUsage  another name, or the dataset's first tensor is not images [C, H, W].
Status check_augmentation(const std::string& name, const proto::Dataset& description);

/// Returns the dataset with augmented images. Requires: check_augmentation() succeeded.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> dataset, const std::string& name);

}  // namespace poprun::hostio
