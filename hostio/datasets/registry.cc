#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/formats/open_file.h"
#include "replica/base/random.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"

namespace poprun::hostio {

namespace families {
#define POPRUN_FAMILY(stem) const DatasetFamily& stem();
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
}  // namespace families

namespace {

/// Parameter that all families accept: "augment" (see check_augmentation).
constexpr const char* kAugment = "augment";

constexpr std::uint32_t kPad = 4;

/// How augmentation moves the pixels of an image.
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

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    if (tensor != 0 || sample.split != proto::SPLIT_TRAIN) {
      return dataset_->read(sample, tensor, destination);
    }
    std::vector<std::byte> image(destination.size());
    POPRUN_TRY(dataset_->read(sample, tensor, image));
    const proto::StreamTensor& images = description().tensors(0);
    const Planes planes{.height = images.sample_shape(1),
                        .width = images.sample_shape(2),
                        .pixel = static_cast<std::int64_t>(border_.size())};
    move_image(planes, draw(sample), image, border_, destination);
    return {};
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

/// Augmentation makes training images look different in every epoch. Evaluation sees the original images.
///
///   none        the original image
///   flip        mirrored left to right, with probability 1/2
///   crop        shifted by -4 to 4 pixels in each direction, with a black border (the usual pad-and-crop of He et al.,
///               arXiv:1512.03385, section 4.2). Black is zero before the images are normalised, whatever their type.
///   flip+crop   both
///
/// The result is a function of (seed, epoch, item). Errors: kUsage if `name` is not in this list, or the dataset's
/// first tensor is not images [C, H, W].
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

Status check_parameters(const DatasetFamily& family, const Source& source) {
  for (const auto& [key, value] : source.parameters) {
    if (key != kAugment && std::ranges::find(family.parameters, key) == family.parameters.end()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("data.{} = {} is not a parameter of source \"{}\"; remove it", key, value, source.text));
    }
  }
  return {};
}

/// Returns a digest of contents and description. Notes are left out, because they follow from both.
std::string fingerprint_of(const std::string& digest, proto::Dataset description) {
  description.clear_fingerprint();
  description.clear_notes();
  return sha256_of(digest + description.SerializeAsString());
}

/// Returns `scope` with a reading: its own if it has one, or a new one.
FileScope in_reading(const FileScope& scope) {
  return scope.reading() != nullptr ? scope : scope.during(std::make_shared<Reading>());
}

/// Returns the digest of all files that the reading opened.
Result<std::string> digest_of(const FileScope& scope) {
  POPRUN_ASSIGN(const std::string digest, fingerprint_of(scope.reading()->files(), scope.unrestricted()));
  POPRUN_TRY(scope.reading()->check_unchanged());
  return digest;
}

constexpr auto kFamilies = std::to_array<const DatasetFamily& (*)()>({
#define POPRUN_FAMILY(stem) &families::stem,
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
});

/// Returns the family of `source`, after checking that it accepts all parameters.
Result<const DatasetFamily*> family_of(const Source& source) {
  for (const auto family : kFamilies) {
    if (family().accepts(source.text)) {
      POPRUN_TRY(check_parameters(family(), source));
      return &family();
    }
  }
  return fail(ErrorCode::kUsage,
              fmt::format("unknown dataset source \"{}\"; {}", source.text, suggestion(source.text, dataset_forms())));
}

}  // namespace

std::vector<std::string> dataset_forms() {
  std::vector<std::string> forms;
  for (const auto family : kFamilies) {
    forms.emplace_back(family().form);
  }
  return forms;
}

Result<proto::Dataset> describe_dataset(std::string_view text, const FileScope& scope, bool with_fingerprint) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  source.scope = in_reading(scope);
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  POPRUN_ASSIGN(proto::Dataset description, family->describe(source));
  POPRUN_TRY(check_augmentation(source.parameter(kAugment, "none"), description));
  if (with_fingerprint) {
    POPRUN_ASSIGN(const std::string digest, digest_of(source.scope));
    description.set_fingerprint(fingerprint_of(digest, description));
  }
  return description;
}

Result<ReadDataset> read_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  source.scope = in_reading(scope);
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  ReadDataset read;
  POPRUN_ASSIGN(read.stored, family->read(source));
  POPRUN_ASSIGN(read.digest, digest_of(source.scope));
  return read;
}

Result<std::unique_ptr<Dataset>> view_dataset(const ReadDataset& read, std::string_view text) {
  POPRUN_ASSIGN(const Source source, Source::parse(text));
  POPRUN_TRY(family_of(source));
  POPRUN_ASSIGN(std::unique_ptr<Dataset> dataset, read.stored->view(source));
  const std::string augmentation = source.parameter(kAugment, "none");
  POPRUN_TRY(check_augmentation(augmentation, dataset->description()));
  if (augmentation != "none") {
    dataset = std::make_unique<AugmentedImages>(std::move(dataset), augmentation.starts_with("flip"),
                                                augmentation.ends_with("crop"));
  }
  dataset->set_fingerprint(fingerprint_of(read.digest, dataset->description()));
  return dataset;
}

Result<std::unique_ptr<Dataset>> load_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(const ReadDataset read, read_dataset(text, scope));
  return view_dataset(read, text);
}

std::string stored_name(std::string_view text) {
  const Result<Source> source = Source::parse(text);
  const Result<const DatasetFamily*> family = source.and_then([](const Source& parsed) { return family_of(parsed); });
  if (!family) {
    return std::string{text};
  }
  std::string name = source->text + "?";
  for (const auto& [key, value] : source->parameters) {
    if (std::ranges::find((*family)->stored, key) != (*family)->stored.end()) {
      name += fmt::format("{}={},", key, value);
    }
  }
  return name;
}

void add_tensor(proto::Dataset& description, const std::string& name, const std::string& element,
                const std::vector<std::uint32_t>& sample_shape) {
  proto::StreamTensor& tensor = *description.add_tensors();
  tensor.set_name(name);
  tensor.set_element(element);
  tensor.mutable_sample_shape()->Assign(sample_shape.begin(), sample_shape.end());
}

std::uint64_t items_of(const proto::Dataset& description, proto::Split split) {
  return split == proto::SPLIT_TEST ? description.test_items() : description.train_items();
}

std::uint64_t sample_bytes(const proto::StreamTensor& tensor) {
  std::uint64_t bytes = tensor.element() == "u8" ? 1 : 4;
  for (const std::uint32_t dim : tensor.sample_shape()) {
    bytes *= dim;
  }
  return bytes;
}

}  // namespace poprun::hostio
