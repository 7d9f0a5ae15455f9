#include "replica/loops/step_labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace poprun {
namespace {

/// Label counts are exchanged as two digits of this base, so that the sums do not overflow.
constexpr std::uint64_t kDigit = 1 << 16;

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

/// Returns the note that pieces of the data have from `fewest` to `most` labels each.
Note unequal_labels_note(std::int32_t fewest, std::int32_t most) {
  return {
      "loss.unequal-labels",
      fmt::format("the micro-batches (or compute batches) of a step have {} to {} labels each, and their mean losses "
                  "are averaged, so a label counts for more in a batch with few labels; training.loss-mean = "
                  "tokens weights all labels of a step equally",
                  fewest, most),
      {{"fewest", fewest}, {"most", most}}};
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
    const std::string text = batch.tensors[tensors_[t].field].text();
    const std::string_view bytes = text;
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

StepLabels::StepLabels(const std::vector<LabelTensor>& tensors, std::size_t samples, std::size_t pieces,
                       double weighted_mean_of)
    : counts_(tensors, samples, pieces), weighted_mean_of_(weighted_mean_of) {
  for (const LabelTensor& tensor : tensors) {
    if (are_shared()) {
      means_.emplace_back(tensor.name);
    }
  }
}

Status StepLabels::share(Communicator& communicator) {
  std::vector<std::int32_t> digits;
  for (const std::uint64_t sum : counts_.sums()) {
    digits.push_back(static_cast<std::int32_t>(sum / kDigit));
    digits.push_back(static_cast<std::int32_t>(sum % kDigit));
  }
  const Buffer buffer{ElementType::kI32, std::as_writable_bytes(std::span(digits)), "labels of the step"};
  POPRUN_TRY(communicator.all_reduce(Reduction::kSum, std::span(&buffer, 1)));
  for (std::size_t t = 0; t < means_.size(); ++t) {
    const double sum =
        static_cast<double>(digits[2 * t]) * static_cast<double>(kDigit) + static_cast<double>(digits[2 * t + 1]);
    means_[t].count = sum == 0 ? 1.0F : static_cast<float>(sum / weighted_mean_of_);
    of_first_ = t == 0 ? sum : of_first_;
  }
  return {};
}

Status StepLabels::check(const Metrics& metrics, std::size_t replicas, std::uint64_t step) const {
  const double counted = metrics.items.value() * static_cast<double>(replicas);
  if (are_shared() && std::abs(counted - of_first_) > 1e-5 * of_first_) {
    return fail(ErrorCode::kData,
                fmt::format("training.loss-mean = tokens: the data has {:.0f} labels in step {}, but the model's loss "
                            "counts {:.0f}; use class numbers of 0 and above as labels, and negative numbers for "
                            "positions to ignore",
                            of_first_, step, counted));
  }
  return {};
}

Result<std::optional<Note>> StepLabels::note_if_unequal(Communicator& communicator) {
  std::vector<std::int32_t> extremes;
  for (const LabelCounts::Range& range : counts_.ranges()) {
    extremes.push_back(-static_cast<std::int32_t>(range.fewest));
    extremes.push_back(static_cast<std::int32_t>(range.most));
  }
  const Buffer buffer{ElementType::kI32, std::as_writable_bytes(std::span(extremes)), "label counts"};
  POPRUN_TRY(communicator.all_reduce(Reduction::kMax, std::span(&buffer, 1)));
  for (std::size_t t = 0; t + 1 < extremes.size(); t += 2) {
    if (-extremes[t] != extremes[t + 1]) {
      noted_ = true;
      return unequal_labels_note(-extremes[t], extremes[t + 1]);
    }
  }
  return std::nullopt;
}

}  // namespace poprun
