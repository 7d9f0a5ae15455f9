#pragma once

#include <memory>
#include <string>

#include "hostio/datasets/dataset.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// Images that look different in every epoch. Training only; evaluation sees them as they are.
///
///   none        as they are
///   flip        mirrored left to right, every second one
///   crop        moved by -4 to 4 pixels each way, black where nothing is left (the usual pad-and-
///               crop of He et al., arXiv:1512.03385, section 4.2). Black is zero before the
///               images are normalised, whatever type they have.
///   flip+crop   both
///
/// A function of (seed, epoch, item).
///
/// Errors
///   kUsage  another name, or the dataset's first tensor is not images [C, H, W].
Status check_augmentation(const std::string& name, const proto::Dataset& description);

/// Requires: check_augmentation() says yes.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> dataset, const std::string& name);

}  // namespace poprun::hostio
