#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/source.h"
#include "replica/base/error.h"

/// Labelled JPEG and PNG images, each a file or part of a file. Tensor 0 is "images", u8 [C, H, W], and tensor 1 is
/// "labels", i32. C is 1 if all images are grey, and otherwise 3. H x W is data.image-size: images are scaled until
/// they just cover it, and cut at the centre (resize.h). Without this key, all images must have the same size.
///
/// The server keeps a list of the images, 32 bytes each, and the paths of the files, and decodes an image when a batch
/// needs it. If all decoded images fit kDecodedBytesMax, they are kept; otherwise, each is decoded again in every
/// epoch. A checksum ensures that an image is still the one that was described.
namespace poprun::hostio {

/// The source parameters, for DatasetFamily::parameters.
inline constexpr std::array<std::string_view, 4> kEncodedImageParameters = {"deviation", "image-size", "mean",
                                                                            "test-fraction"};

/// The parameters that change the stored data, for DatasetFamily::stored.
inline constexpr std::array<std::string_view, 2> kStoredEncodedImageParameters = {"image-size", "test-fraction"};

/// Memory for the decoded images of a dataset.
inline constexpr std::uint64_t kDecodedBytesMax = std::uint64_t{1} << 30;

/// Where an image is.
struct EncodedImage {
  std::uint32_t file = 0;  ///< Index in EncodedImages::files.
  std::uint32_t label = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::array<std::byte, 8> checksum{};  ///< First bytes of the SHA-256 digest; set when the images are examined.
};

/// The images that a family has found.
struct EncodedImages {
  std::vector<std::string> files;
  std::vector<EncodedImage> train;
  std::vector<EncodedImage> test;
  std::uint32_t classes = 0;
  std::vector<std::string> notes;
};

/// Examines every image's header. Errors: that of `found`; kUsage if a parameter is wrong; kData if an image is missing
/// or damaged, or if sizes differ without data.image-size; the message names the image. Cost: reads the files once.
Result<proto::Dataset> describe_encoded_images(Result<EncodedImages> found, const Source& source);
Result<std::shared_ptr<const Stored>> read_encoded_images(Result<EncodedImages> found, const Source& source);

/// Numbers the classes of labels that are numbers or names.
class ClassNumbers {
 public:
  /// With `names_only`, digits are also names.
  explicit ClassNumbers(bool names_only) : names_only_(names_only) {}

  /// Returns a provisional number for the label.
  std::uint32_t add(std::string_view label) {
    return names_.try_emplace(std::string{label}, static_cast<std::uint32_t>(names_.size())).first->second;
  }

  /// Replaces provisional numbers by classes: integers count as they are, and names are numbered in the order of their
  /// bytes, with a note. Errors: kData, if there are both or an integer is negative or too large.
  Status finish(EncodedImages& images, const Source& source) const;

 private:
  bool names_only_;
  std::map<std::string, std::uint32_t, std::less<>> names_;
};

}  // namespace poprun::hostio
