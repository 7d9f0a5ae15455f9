#include "hostio/formats/resize.h"

#include <algorithm>
#include <cmath>

#include "replica/base/error.h"

namespace poprun::hostio {
namespace {

constexpr int kFractionBits = 22;

/// Rounds a sum of weighted pixels to a pixel.
std::uint8_t pixel_of(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kFractionBits - 1))) >> kFractionBits, 0, 255));
}

}  // namespace

/// Returns the taps of each of `to` pixels; `scale` is the number of input pixels per output pixel.
std::vector<RowResizer::Taps> RowResizer::taps_of(std::uint32_t from, std::uint32_t to, double scale) {
  const double begin = (from - to * scale) / 2;  // Start of the part that is kept.
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all(to);
  std::vector<double> weights;
  for (std::uint32_t i = 0; i < to; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const auto first = static_cast<std::uint32_t>(std::max(0.0, std::floor(centre - support + 0.5)));
    const auto end = static_cast<std::uint32_t>(std::min<double>(from, std::floor(centre + support + 0.5)));
    weights.clear();
    double sum = 0;
    for (std::uint32_t x = first; x < end; ++x) {
      weights.push_back(std::max(0.0, 1 - std::abs((x + 0.5 - centre) / support)));
      sum += weights.back();
    }
    all[i].first = first;
    for (const double weight : weights) {
      all[i].weights.push_back(static_cast<std::int32_t>(std::floor(weight / sum * (1 << kFractionBits) + 0.5)));
    }
    POPRUN_CHECK(sum > 0);
  }
  return all;
}

RowResizer::RowResizer(const PictureSize& from, const PictureSize& to, std::span<std::byte> out)
    : from_(from), to_(to), out_(out) {
  POPRUN_CHECK(from.channels == 1 || from.channels == to.channels);
  POPRUN_CHECK(out.size() == std::size_t{to.channels} * to.height * to.width);
  const double scale =
      std::min(static_cast<double>(from.height) / to.height, static_cast<double>(from.width) / to.width);
  columns_ = taps_of(from.width, to.width, scale);
  rows_ = taps_of(from.height, to.height, scale);
  for (const Taps& taps : rows_) {
    kept_ = std::max(kept_, static_cast<std::uint32_t>(taps.weights.size()));
  }
  ring_.resize(std::size_t{kept_} * to.width * from.channels);
}

void RowResizer::add(const std::uint8_t* row) {
  const std::uint32_t y = row_++;
  if (written_ == to_.height || y < rows_[written_].first) {
    return;
  }
  const std::size_t channels = from_.channels;
  std::uint8_t* kept = ring_.data() + std::size_t{y % kept_} * to_.width * channels;
  for (const Taps& taps : columns_) {
    const std::uint8_t* pixels = row + taps.first * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < taps.weights.size(); ++k) {
        sum += taps.weights[k] * pixels[k * channels + c];
      }
      *kept++ = pixel_of(sum);
    }
  }
  while (written_ < to_.height && rows_[written_].first + rows_[written_].weights.size() <= row_) {
    write_row(written_++);
  }
}

void RowResizer::write_row(std::uint32_t y) {
  const Taps& taps = rows_[y];
  const std::size_t channels = from_.channels;
  const std::size_t row_bytes = to_.width * channels;
  const std::size_t plane = std::size_t{to_.height} * to_.width;
  for (std::size_t x = 0; x < to_.width; ++x) {
    for (std::size_t c = 0; c < to_.channels; ++c) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < taps.weights.size(); ++k) {
        sum += taps.weights[k] * ring_[(taps.first + k) % kept_ * row_bytes + x * channels + (channels == 1 ? 0 : c)];
      }
      out_[c * plane + std::size_t{y} * to_.width + x] = static_cast<std::byte>(pixel_of(sum));
    }
  }
}

}  // namespace poprun::hostio
