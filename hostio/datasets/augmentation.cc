#include "hostio/datasets/augmentation.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/random.h"

namespace poprun::hostio {
namespace {

constexpr std::uint32_t kPad = 4;

/// The source of a pixel in the result.
struct Move {
  bool flip = false;
  std::int64_t down = 0;
  std::int64_t right = 0;
};

struct Planes {
  std::int64_t height;
  std::int64_t width;
  std::int64_t pixel;  ///< Bytes per pixel.
};

void move_image(const Planes& planes, const Move& move, std::span<const std::byte> from,
                std::span<const std::byte> border, std::span<std::byte> to) {
  for (std::size_t at = 0; at < to.size(); at += border.size()) {
    std::memcpy(to.data() + at, border.data(), border.size());
  }
  const auto rows = static_cast<std::int64_t>(from.size()) / (planes.width * planes.pixel);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t y = row % planes.height + move.down;
    for (std::int64_t x = 0; x < planes.width; ++x) {
      const std::int64_t source = (move.flip ? planes.width - 1 - x : x) + move.right;
      if (y >= 0 && y < planes.height && source >= 0 && source < planes.width) {
        std::memcpy(to.data() + (row * planes.width + x) * planes.pixel,
                    from.data() + ((row + move.down) * planes.width + source) * planes.pixel,
                    static_cast<std::size_t>(planes.pixel));
      }
    }
  }
}

class AugmentedImages final : public Dataset {
 public:
  AugmentedImages(std::unique_ptr<Dataset> dataset, bool flip, bool crop)
      : Dataset(dataset->description()),
        dataset_(std::move(dataset)),
        border_(dataset_->black()),
        flip_(flip),
        crop_(crop) {}

  void read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    if (tensor != 0 || sample.split != proto::SPLIT_TRAIN) {
      dataset_->read(sample, tensor, destination);
      return;
    }
    std::vector<std::byte> image(destination.size());
    dataset_->read(sample, tensor, image);
    const proto::StreamTensor& images = description().tensors(0);
    const Planes planes{.height = images.sample_shape(1),
                        .width = images.sample_shape(2),
                        .pixel = static_cast<std::int64_t>(border_.size())};
    move_image(planes, draw(sample), image, border_, destination);
  }

 private:
  [[nodiscard]] Move draw(const Sample& sample) const {
    const auto words = philox(random_key(sample.seed, "augmentation"), sample.item, sample.epoch);
    const auto shift = [&](std::uint32_t word) {
      return crop_ ? std::int64_t{word % (2 * kPad + 1)} - std::int64_t{kPad} : 0;
    };
    return {.flip = flip_ && (words[0] & 1U) != 0, .down = shift(words[1]), .right = shift(words[2])};
  }

  std::unique_ptr<Dataset> dataset_;
  std::vector<std::byte> border_;  ///< A single pixel.
  bool flip_;
  bool crop_;
};

}  // namespace

Status check_augmentation(const std::string& name, const proto::Dataset& description) {
  if (name != "none" && name != "flip" && name != "crop" && name != "flip+crop") {
    return fail(ErrorCode::kUsage,
                fmt::format("data.augment = {} is not allowed; allowed: none, flip, crop, flip+crop", name));
  }
  const proto::StreamTensor& first = description.tensors(0);
  if (name != "none" && (first.name() != "images" || first.sample_shape_size() != 3)) {
    return fail(ErrorCode::kUsage, fmt::format("data.augment = {} needs images [C, H, W], but the dataset has {} [{}]",
                                               name, first.name(), fmt::join(first.sample_shape(), ", ")));
  }
  return {};
}

std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> dataset, const std::string& name) {
  const bool flip = name.starts_with("flip");
  const bool crop = name.ends_with("crop");
  return std::make_unique<AugmentedImages>(std::move(dataset), flip, crop);
}

}  // namespace poprun::hostio
