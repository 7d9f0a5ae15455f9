#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "hostio/datasets/dataset.h"
#include "replica/base/error.h"

/// Labelled images in four files with MNIST's names, each with or without .gz:
///
///   train-images-idx3-ubyte   [train items, H, W]      t10k-images-idx3-ubyte   [test items, H, W]
///   train-labels-idx1-ubyte   [train items]            t10k-labels-idx1-ubyte   [test items]
///
/// In the dataset, tensor 0 is "images", u8 [1, H, W], and tensor 1 is "labels", i32.
namespace poprun::hostio {

/// Properties of the images that are not stored in the files.
struct ImageFacts {
  std::uint32_t classes;  ///< 0 means the largest label plus one.
  float mean;             ///< Mean of x / 255.
  float deviation;
};

/// Returns the first of the four files that is missing from `folder`, under its name with .gz.
std::optional<std::filesystem::path> missing_image_file(const std::filesystem::path& folder);

/// Describes the images. Reads only headers, and the labels if `facts.classes` is 0. Errors of both functions: those of
/// OpenFile::open, and kData if a file is missing, damaged or empty, or does not match the other files; the message
/// names it.
Result<proto::Dataset> describe_image_files(const std::filesystem::path& folder, const ImageFacts& facts,
                                            const FileScope& scope = {});

Result<std::shared_ptr<const Stored>> read_image_files(const std::filesystem::path& folder, const ImageFacts& facts,
                                                       const FileScope& scope = {});

}  // namespace poprun::hostio
