#include "hostio/datasets/image_files.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hostio/formats/idx.h"

namespace poprun::hostio {
namespace {

namespace fs = std::filesystem;

struct SplitFiles {
  fs::path images;
  fs::path labels;
};

struct SplitShape {
  std::uint32_t items;
  std::uint32_t height;
  std::uint32_t width;
};

struct SplitArrays {
  std::vector<std::uint8_t> images;  ///< [items, height, width]
  std::vector<std::uint8_t> labels;  ///< [items]
};

/// Returns the path with .gz if that file exists, and otherwise the path without .gz.
fs::path existing(const fs::path& folder, const std::string& stem) {
  std::error_code ignored;
  const fs::path plain = folder / stem;
  fs::path packed = folder / (stem + ".gz");
  return !fs::exists(packed, ignored) && fs::exists(plain, ignored) ? plain : packed;
}

SplitFiles files_of(const fs::path& folder, const std::string& prefix) {
  return {.images = existing(folder, prefix + "-images-idx3-ubyte"),
          .labels = existing(folder, prefix + "-labels-idx1-ubyte")};
}

Result<SplitShape> shape_of(const SplitFiles& files, const FileScope& scope) {
  POPRUN_ASSIGN(const IdxShape images, read_idx_shape(files.images, scope));
  POPRUN_ASSIGN(const IdxShape labels, read_idx_shape(files.labels, scope));
  if (images.dims.size() != 3 || images.elements == 0) {
    return fail(ErrorCode::kData, fmt::format("{}: expected images [items, height, width], found [{}]",
                                              files.images.string(), fmt::join(images.dims, ", ")));
  }
  if (labels.dims.size() != 1) {
    return fail(ErrorCode::kData, fmt::format("{}: expected labels [items], found [{}]", files.labels.string(),
                                              fmt::join(labels.dims, ", ")));
  }
  if (labels.dims[0] != images.dims[0]) {
    return fail(ErrorCode::kData, fmt::format("{}: expected {} labels, one per image, found {}", files.labels.string(),
                                              images.dims[0], labels.dims[0]));
  }
  return SplitShape{.items = images.dims[0], .height = images.dims[1], .width = images.dims[2]};
}

Result<std::uint32_t> classes_in(const SplitFiles& train, const SplitFiles& test, const FileScope& scope) {
  std::uint32_t classes = 0;
  for (const fs::path& file : {train.labels, test.labels}) {
    POPRUN_ASSIGN(const IdxArray labels, read_idx(file, scope));
    for (const std::uint8_t label : labels.elements) {
      classes = std::max(classes, label + 1U);
    }
  }
  return classes;
}

Status check_labels(const std::vector<std::uint8_t>& labels, std::uint32_t classes, const fs::path& file) {
  const auto bad = std::ranges::find_if(labels, [&](std::uint8_t label) { return label >= classes; });
  if (bad != labels.end()) {
    return fail(ErrorCode::kData, fmt::format("{}: item {}: the label must be below {}, but it is {}", file.string(),
                                              bad - labels.begin(), classes, *bad));
  }
  return {};
}

class StoredImages final : public Stored {
 public:
  StoredImages(proto::Dataset description, SplitArrays train, SplitArrays test)
      : description_(std::move(description)), train_(std::move(train)), test_(std::move(test)) {}

  [[nodiscard]] std::uint64_t bytes() const override {
    const auto of = [](const SplitArrays& a) { return a.images.size() + a.labels.size(); };
    return of(train_) + of(test_);
  }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override;

  [[nodiscard]] const SplitArrays& part(proto::Split split) const {
    return split == proto::SPLIT_TEST ? test_ : train_;
  }

 private:
  proto::Dataset description_;
  SplitArrays train_;
  SplitArrays test_;
};

class ImageDataset final : public Dataset {
 public:
  ImageDataset(proto::Dataset description, std::shared_ptr<const StoredImages> stored)
      : Dataset(std::move(description)),
        image_bytes_(sample_bytes(this->description().tensors(0))),
        stored_(std::move(stored)) {}

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    const SplitArrays& arrays = stored_->part(sample.split);
    const std::uint64_t item = sample.item;
    POPRUN_CHECK(item < arrays.labels.size());
    if (tensor == 0) {
      POPRUN_CHECK(destination.size() == image_bytes_);
      std::memcpy(destination.data(), kept(sample, tensor).data(), image_bytes_);
      return {};
    }
    POPRUN_CHECK(tensor == 1 && destination.size() == 4);
    std::ranges::fill(destination, std::byte{0});
    destination[0] = std::byte{arrays.labels[item]};
    return {};
  }

  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample, int tensor) const override {
    const std::span images(stored_->part(sample.split).images);
    return tensor == 0 ? std::as_bytes(images.subspan(sample.item * image_bytes_, image_bytes_))
                       : std::span<const std::byte>();
  }

 private:
  std::size_t image_bytes_;
  std::shared_ptr<const StoredImages> stored_;  ///< Shared by the jobs that read from it.
};

Result<std::unique_ptr<Dataset>> StoredImages::view(const Source& /*source*/) const {
  return std::make_unique<ImageDataset>(description_, std::static_pointer_cast<const StoredImages>(shared_from_this()));
}

Result<SplitArrays> load_split(const SplitFiles& files, std::uint64_t items, const proto::Dataset& description,
                               const FileScope& scope) {
  POPRUN_ASSIGN(IdxArray images, read_idx(files.images, scope));
  POPRUN_ASSIGN(IdxArray labels, read_idx(files.labels, scope));
  if (images.elements.size() != items * sample_bytes(description.tensors(0)) || labels.elements.size() != items) {
    return fail(ErrorCode::kData, fmt::format("{}: changed while it was being read", files.images.string()));
  }
  POPRUN_TRY(check_labels(labels.elements, description.classes(), files.labels));
  return SplitArrays{.images = std::move(images.elements), .labels = std::move(labels.elements)};
}

}  // namespace

std::optional<fs::path> missing_image_file(const fs::path& folder) {
  for (const std::string prefix : {"train", "t10k"}) {
    const SplitFiles files = files_of(folder, prefix);
    for (const fs::path& file : {files.images, files.labels}) {
      std::error_code ignored;
      if (!fs::exists(file, ignored)) {
        return file;
      }
    }
  }
  return std::nullopt;
}

Result<proto::Dataset> describe_image_files(const fs::path& folder, const ImageFacts& facts, const FileScope& scope) {
  POPRUN_TRY(scope.admits(folder));
  if (const auto missing = missing_image_file(folder)) {
    return fail(ErrorCode::kData, fmt::format("{} is missing", missing->string()));
  }
  const SplitFiles train_files = files_of(folder, "train");
  const SplitFiles test_files = files_of(folder, "t10k");
  POPRUN_ASSIGN(const SplitShape train, shape_of(train_files, scope));
  POPRUN_ASSIGN(const SplitShape test, shape_of(test_files, scope));
  if (test.height != train.height || test.width != train.width) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected images of {} x {}, as in training, found {} x {}", test_files.images.string(),
                            train.height, train.width, test.height, test.width));
  }

  proto::Dataset description;
  add_tensor(description, "images", "u8", {1, train.height, train.width});
  add_tensor(description, "labels", "i32", {});
  description.set_train_items(train.items);
  description.set_test_items(test.items);
  description.set_mean(facts.mean);
  description.set_deviation(facts.deviation);
  std::uint32_t classes = facts.classes;
  if (classes == 0) {
    POPRUN_ASSIGN(classes, classes_in(train_files, test_files, scope));
  }
  description.set_classes(classes);
  return description;
}

Result<std::shared_ptr<const Stored>> read_image_files(const fs::path& folder, const ImageFacts& facts,
                                                       const FileScope& scope) {
  POPRUN_ASSIGN(proto::Dataset description, describe_image_files(folder, facts, scope));
  POPRUN_ASSIGN(SplitArrays train,
                load_split(files_of(folder, "train"), description.train_items(), description, scope));
  POPRUN_ASSIGN(SplitArrays test, load_split(files_of(folder, "t10k"), description.test_items(), description, scope));
  return std::make_shared<StoredImages>(std::move(description), std::move(train), std::move(test));
}

}  // namespace poprun::hostio
