#include "replica/loops/label_counts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

namespace poprun {
namespace {

template <typename T>
T element_at(std::string_view bytes, std::size_t i) {
  T element{};
  std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
  return element;
}

std::uint32_t count_integers(std::string_view bytes) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < bytes.size() / sizeof(std::int32_t); ++i) {
    count += element_at<std::int32_t>(bytes, i) >= 0 ? 1U : 0U;
  }
  return count;
}

std::uint32_t count_samples(std::string_view bytes, std::size_t samples) {
  const std::size_t row = bytes.size() / sizeof(float) / samples;
  std::uint32_t count = 0;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    bool known = true;
    for (std::size_t i = 0; i < row; ++i) {
      known = known && !std::isnan(element_at<float>(bytes, sample * row + i));
    }
    count += known ? 1U : 0U;
  }
  return count;
}

}  // namespace

LabelCounts::LabelCounts(std::vector<LabelTensor> tensors, std::size_t samples, std::size_t pieces)
    : tensors_(std::move(tensors)),
      samples_(samples),
      pieces_(pieces),
      sums_(tensors_.size()),
      ranges_(tensors_.size()) {}

void LabelCounts::begin_step() {
  std::ranges::fill(sums_, 0);
}

void LabelCounts::add(const HostBatch& batch) {
  for (std::size_t t = 0; t < tensors_.size() && tensors_[t].field < batch.tensors.size(); ++t) {
    const std::string_view bytes = batch.tensors[tensors_[t].field];
    const std::size_t size = bytes.size() / pieces_;
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      const std::string_view part = bytes.substr(piece * size, size);
      const std::uint32_t count =
          tensors_[t].is_integer ? count_integers(part) : count_samples(part, samples_ / pieces_);
      Range& range = ranges_[t];
      range = empty_ && piece == 0 ? Range{count, count}
                                   : Range{std::min(range.fewest, count), std::max(range.most, count)};
      sums_[t] += count;
    }
  }
  empty_ = false;
}

}  // namespace poprun
