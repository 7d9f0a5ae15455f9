#include "hostio/datasets/encoded_images.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "hostio/datasets/tables.h"
#include "hostio/formats/picture.h"
#include "hostio/formats/printable.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::uint32_t kImageSideMax = 4096;
constexpr std::int64_t kLabelMax = (1 << 24) - 1;

std::array<std::byte, 8> checksum_of(std::span<const std::byte> bytes) {
  const std::string digest = sha256_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::array<std::byte, 8> first{};
  std::memcpy(first.data(), digest.data(), first.size());
  return first;
}

/// Returns the name of an image for messages.
std::string name_of(const EncodedImages& images, const EncodedImage& image) {
  const std::string& file = images.files[image.file];
  return image.offset == 0 ? file : fmt::format("{}: image at byte {}", file, grouped(image.offset));
}

/// Reads the encoded image.
Status read_encoded(const EncodedImages& images, const EncodedImage& image, const OpenFile& file,
                    const FileScope& scope, std::vector<std::byte>& bytes) {
  const std::string name = name_of(images, image);
  if (image.bytes > kPictureBytesMax) {
    return fail(ErrorCode::kData, fmt::format("{}: the image has {}, but the limit is {}; replace or remove it", name,
                                              mebibytes_text(image.bytes), mebibytes_text(kPictureBytesMax)));
  }
  bytes.resize(image.bytes);
  POPRUN_TRY(read_at(file, image.offset, bytes, name));
  scope.advance(image.bytes);
  return {};
}

/// Parses data.image-size, "HxW" or "N" for both.
Result<std::optional<PictureSize>> wished_size(const Source& source) {
  const auto found = source.parameters.find("image-size");
  if (found == source.parameters.end()) {
    return std::optional<PictureSize>();
  }
  const std::string& text = found->second;
  const std::size_t cross = text.find('x');
  const auto side = [](std::string_view digits) -> std::uint32_t {
    const std::uint32_t value = parse_number<std::uint32_t>(digits).value_or(0);
    return value <= kImageSideMax ? value : 0;
  };
  const PictureSize size{.height = side(std::string_view(text).substr(0, cross)),
                         .width = side(cross == std::string::npos ? text : std::string_view(text).substr(cross + 1))};
  if (size.height == 0 || size.width == 0) {
    return fail(ErrorCode::kUsage, fmt::format("data.image-size = {} must have the form HxW, with numbers from 1 to {}",
                                               text, kImageSideMax));
  }
  return std::optional(size);
}

/// Examines all images: sets their checksums, and returns the size to which they are decoded.
Result<PictureSize> examine(EncodedImages& images, const Source& source) {
  POPRUN_ASSIGN(const std::optional<PictureSize> wished, wished_size(source));
  PictureSize common{.channels = 1};
  std::string first;
  std::optional<OpenFile> file;
  std::uint32_t opened = 0;
  std::vector<std::byte> bytes;
  for (std::vector<EncodedImage>* part : {&images.train, &images.test}) {
    for (EncodedImage& image : *part) {
      if (!file || opened != image.file) {
        POPRUN_ASSIGN(OpenFile next, OpenFile::open(images.files[image.file], source.scope));
        file.emplace(std::move(next));
        opened = image.file;
        image.bytes = image.bytes == 0 ? file->size() : image.bytes;
      }
      POPRUN_TRY(read_encoded(images, image, *file, source.scope, bytes));
      const std::string name = name_of(images, image);
      POPRUN_ASSIGN(const PictureSize size, picture_size(bytes, name));
      image.checksum = checksum_of(bytes);
      common.channels = std::max(common.channels, size.channels);
      if (first.empty()) {
        first = name;
        common.height = size.height;
        common.width = size.width;
      }
      if (!wished && (size.height != common.height || size.width != common.width)) {
        return fail(
            ErrorCode::kData,
            fmt::format("{} has {} x {} pixels, but {} has {} x {}; set data.image-size to the height and width "
                        "that all images should have, such as 224x224",
                        first, common.width, common.height, name, size.width, size.height));
      }
    }
  }
  if (wished) {
    common.height = wished->height;
    common.width = wished->width;
  }
  if (common.height > kImageSideMax || common.width > kImageSideMax) {
    return fail(ErrorCode::kData, fmt::format("{} has {} x {} pixels, but the limit is {} in each direction; set "
                                              "data.image-size",
                                              first, common.width, common.height, grouped(kImageSideMax)));
  }
  return common;
}

/// Examines the images and describes them, apart from the normalisation.
Result<proto::Dataset> examined_facts(EncodedImages& images, const Source& source) {
  if (images.train.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: no training images found", source.text));
  }
  POPRUN_ASSIGN(const PictureSize size, examine(images, source));
  proto::Dataset facts;
  add_tensor(facts, "images", "u8", {size.channels, size.height, size.width});
  add_tensor(facts, "labels", "i32", {});
  facts.set_train_items(images.train.size());
  facts.set_test_items(images.test.size());
  facts.set_classes(images.classes);
  facts.set_mean(0.5F);
  facts.set_deviation(0.5F);
  return facts;
}

Status set_normalisation(proto::Dataset& facts, const Source& source) {
  POPRUN_ASSIGN(const double mean, real_parameter(source, "mean", facts.mean()));
  POPRUN_ASSIGN(const double deviation, real_parameter(source, "deviation", facts.deviation()));
  facts.set_mean(static_cast<float>(mean));
  facts.set_deviation(static_cast<float>(deviation));
  return {};
}

/// The list of images and, if they fit, the decoded images.
class StoredEncodedImages final : public Stored {
 public:
  StoredEncodedImages(EncodedImages images, proto::Dataset facts, FileScope scope)
      : images_(std::move(images)),
        facts_(std::move(facts)),
        scope_(std::move(scope)),
        image_bytes_(sample_bytes(facts_.tensors(0))) {
    const std::uint64_t items = images_.train.size() + images_.test.size();
    if (items <= kDecodedBytesMax / image_bytes_ && check_room("", items * image_bytes_)) {
      kept_ = std::make_unique_for_overwrite<std::byte[]>(items * image_bytes_);
      states_ = std::vector<std::atomic<std::uint8_t>>(items);
    }
  }

  [[nodiscard]] std::uint64_t bytes() const override {
    std::uint64_t bytes = (images_.train.size() + images_.test.size()) * sizeof(EncodedImage);
    for (const std::string& file : images_.files) {
      bytes += sizeof(file) + file.size();
    }
    return bytes + states_.size() * image_bytes_;
  }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override;

  [[nodiscard]] std::uint32_t label(const Sample& sample) const { return part(sample.split)[sample.item].label; }

  /// Decodes an image, or copies it if it has been kept. Threads: any.
  Status pixels(const Sample& sample, std::span<std::byte> out) const {
    if (const auto pixels = kept(sample); !pixels.empty()) {
      std::memcpy(out.data(), pixels.data(), pixels.size());
      return {};
    }
    POPRUN_TRY(decode(part(sample.split)[sample.item], out));
    const std::uint64_t index = index_of(sample);
    std::uint8_t empty = kEmpty;
    if (!states_.empty() && states_[index].compare_exchange_strong(empty, kFilling)) {
      std::memcpy(kept_.get() + index * image_bytes_, out.data(), image_bytes_);
      states_[index].store(kReady, std::memory_order_release);
    }
    return {};
  }

  /// Returns a decoded image if it has been kept, and otherwise nothing. Threads: any.
  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample) const {
    const std::uint64_t index = index_of(sample);
    const bool is_ready = !states_.empty() && states_[index].load(std::memory_order_acquire) == kReady;
    return is_ready ? std::span(kept_.get() + index * image_bytes_, image_bytes_) : std::span<std::byte>();
  }

 private:
  enum State : std::uint8_t { kEmpty, kFilling, kReady };

  [[nodiscard]] std::uint64_t index_of(const Sample& sample) const {
    return sample.item + (sample.split == proto::SPLIT_TEST ? images_.train.size() : 0);
  }

  [[nodiscard]] const std::vector<EncodedImage>& part(proto::Split split) const {
    return split == proto::SPLIT_TEST ? images_.test : images_.train;
  }

  Status decode(const EncodedImage& image, std::span<std::byte> out) const {
    POPRUN_ASSIGN(const OpenFile file, OpenFile::open(images_.files[image.file], scope_));
    std::vector<std::byte> bytes;
    POPRUN_TRY(read_encoded(images_, image, file, scope_, bytes));
    if (checksum_of(bytes) != image.checksum) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: changed after the job began; restore the old image and continue from "
                              "a checkpoint, or start a new job",
                              name_of(images_, image)));
    }
    const proto::StreamTensor& tensor = facts_.tensors(0);
    const PictureSize size{
        .height = tensor.sample_shape(1), .width = tensor.sample_shape(2), .channels = tensor.sample_shape(0)};
    return decode_picture(bytes, size, out, name_of(images_, image));
  }

  EncodedImages images_;
  proto::Dataset facts_;
  FileScope scope_;  ///< Without a reading.
  std::uint64_t image_bytes_;
  std::unique_ptr<std::byte[]> kept_;  ///< [images, C, H, W], of which `states_` are kReady.
  mutable std::vector<std::atomic<std::uint8_t>> states_;
};

class EncodedImageDataset final : public Dataset {
 public:
  EncodedImageDataset(proto::Dataset description, std::shared_ptr<const StoredEncodedImages> stored)
      : Dataset(std::move(description)), stored_(std::move(stored)) {}

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    POPRUN_CHECK(sample.item < items_of(description(), sample.split));
    if (tensor == 0) {
      return stored_->pixels(sample, destination);
    }
    const std::uint32_t label = stored_->label(sample);
    std::memcpy(destination.data(), &label, sizeof(label));
    return {};
  }

  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample, int tensor) const override {
    return tensor == 0 ? stored_->kept(sample) : std::span<const std::byte>();
  }

 private:
  std::shared_ptr<const StoredEncodedImages> stored_;  ///< Shared by the jobs that read from it.
};

Result<std::unique_ptr<Dataset>> StoredEncodedImages::view(const Source& source) const {
  proto::Dataset description = facts_;
  POPRUN_TRY(set_normalisation(description, source));
  return std::make_unique<EncodedImageDataset>(std::move(description),
                                               std::static_pointer_cast<const StoredEncodedImages>(shared_from_this()));
}

}  // namespace

Result<proto::Dataset> describe_encoded_images(Result<EncodedImages> found, const Source& source) {
  POPRUN_TRY(found);
  POPRUN_ASSIGN(proto::Dataset description, examined_facts(*found, source));
  POPRUN_TRY(set_normalisation(description, source));
  for (const std::string& note : found->notes) {
    description.add_notes(note);
  }
  return description;
}

Result<std::shared_ptr<const Stored>> read_encoded_images(Result<EncodedImages> found, const Source& source) {
  POPRUN_TRY(found);
  POPRUN_ASSIGN(proto::Dataset facts, examined_facts(*found, source));
  return std::make_shared<StoredEncodedImages>(std::move(*found), std::move(facts), source.scope.during(nullptr));
}

Status ClassNumbers::finish(EncodedImages& images, const Source& source) const {
  std::vector<std::uint32_t> classes(names_.size());
  std::uint32_t position = 0;
  std::size_t numbers = 0;
  std::string list;
  for (const auto& [name, provisional] : names_) {
    const std::optional<std::int64_t> number = names_only_ ? std::nullopt : integer_in(name);
    numbers += number ? 1U : 0U;
    if (number && (*number < 0 || *number > kLabelMax)) {
      return fail(ErrorCode::kData, fmt::format("{}: label {} must be from 0 to {}; number the classes from 0",
                                                source.text, *number, grouped(kLabelMax)));
    }
    classes[provisional] = number ? static_cast<std::uint32_t>(*number) : position;
    images.classes = std::max(images.classes, classes[provisional] + 1);
    list += position < 4 ? fmt::format("{}{} = {}", position == 0 ? "" : ", ", position, printable(name, 40)) : "";
    ++position;
  }
  if (numbers != 0 && numbers != names_.size()) {
    return fail(ErrorCode::kData,
                fmt::format("{}: some labels are numbers and others are names, such as {}; use only one "
                            "kind",
                            source.text, printable(names_.rbegin()->first)));
  }
  if (numbers == 0) {
    images.notes.push_back(fmt::format("{}: classes are numbered in the order of their names: {}{}", source.text, list,
                                       position > 4 ? ", ..." : ""));
  }
  for (std::vector<EncodedImage>* part : {&images.train, &images.test}) {
    for (EncodedImage& image : *part) {
      image.label = classes[image.label];
    }
  }
  return {};
}

}  // namespace poprun::hostio
