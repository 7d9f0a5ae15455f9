#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hostio/formats/resize.h"
#include "replica/base/error.h"

/// Decodes JPEG with libjpeg-turbo, and PNG with libpng. Any input yields an image or a one-line error that names the
/// file and the fault. The kind of a file is known by its first bytes.
namespace poprun::hostio {

/// Largest encoded image, in bytes.
inline constexpr std::uint64_t kPictureBytesMax = std::uint64_t{64} << 20;

/// Largest image to decode. A decoder needs up to 8 bytes per pixel, and images of more than a quarter of the limit are
/// decoded one at a time.
inline constexpr std::uint64_t kPixelsMax = std::uint64_t{1} << 26;

/// Reads the header. Errors: kData if it is not JPEG or PNG, is damaged, or has more than kPixelsMax pixels.
Result<PictureSize> picture_size(std::span<const std::byte> file, std::string_view name);

/// Decodes and resizes to bytes [C, H, W]. Grey images become RGB if to.channels is 3, and transparent pixels are
/// blended with black; 16-bit channels lose their lower 8 bits. Requires: `out` has this size; picture_size(file) has
/// no more channels than `to`. Errors: kData if the file is damaged or incomplete.
Status decode_picture(std::span<const std::byte> file, const PictureSize& to, std::span<std::byte> out,
                      std::string_view name);

}  // namespace poprun::hostio
