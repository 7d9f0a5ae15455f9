#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Resizes images as they are decoded, row by row, in memory for a few rows.
namespace poprun::hostio {

struct PictureSize {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;  ///< 1: grey, 3: RGB.

  friend bool operator==(const PictureSize&, const PictureSize&) = default;
};

/// Scales an image so that it just covers H x W, and keeps the centre. Bilinear with antialiasing: each output pixel is
/// the mean of the input under a triangle, which is 2 pixels wide at the coarser of the two resolutions, in each
/// direction (Pillow's `resize` with BILINEAR). Weights have 22 fractional bits, and sums are integers, so results are
/// bit-identical on all hosts. An image that already has this size is unchanged.
class RowResizer {
 public:
  /// Writes to `out` [C, H, W], which must outlive the resizer. Requires: from.channels is 1 or to.channels.
  RowResizer(const PictureSize& from, const PictureSize& to, std::span<std::byte> out);

  /// Adds the next row of the image: from.width pixels of from.channels bytes.
  void add(const std::uint8_t* row);

 private:
  /// The pixels that contribute to one pixel of the result.
  struct Taps {
    std::uint32_t first = 0;
    std::vector<std::int32_t> weights;  ///< Their sum is about 2^22.
  };

  static std::vector<Taps> taps_of(std::uint32_t from, std::uint32_t to, double scale);
  void write_row(std::uint32_t y);

  PictureSize from_;
  PictureSize to_;
  std::span<std::byte> out_;
  std::vector<Taps> columns_;
  std::vector<Taps> rows_;
  std::uint32_t kept_ = 1;          ///< Rows in the ring: as many as a row of the result needs.
  std::vector<std::uint8_t> ring_;  ///< [kept, W, channels of the image]: rows that have been resized horizontally.
  std::uint32_t row_ = 0;           ///< Rows of the image added so far.
  std::uint32_t written_ = 0;       ///< Rows of the result.
};

}  // namespace poprun::hostio
