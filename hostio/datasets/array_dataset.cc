#include "hostio/datasets/array_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace poprun::hostio {
namespace {

using Element = NpyTarget::Element;

/// Returns the names of the tensors in the order of a batch. Images are first, as augmentation requires; labels are
/// last.
std::vector<std::string> order_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
  }
  const auto front = [&names](const auto& goes_first) {
    // std::ranges::stable_partition is not used, because clang 14 cannot parse its return type.
    std::stable_partition(names.begin(), names.end(), goes_first);
  };
  front([](const std::string& name) { return name == "images"; });
  front([](const std::string& name) { return name != "labels"; });
  return names;
}

/// Returns the facts about the arrays that do not depend on the parameters of the source.
Result<proto::Dataset> facts_of(const Tensors& tensors, const FileScope& scope) {
  constexpr std::array kElements = {"u8", "i32", "f32", "f32"};
  proto::Dataset facts;
  for (const std::string& name : order_of(tensors)) {
    const Tensor& tensor = tensors.at(name);
    add_tensor(facts, name, kElements.at(static_cast<std::size_t>(tensor.target.element)),
               {tensor.sample_shape.begin(), tensor.sample_shape.end()});
  }
  const Tensor& first = tensors.begin()->second;
  facts.set_train_items(first.train->header->shape[0]);
  facts.set_test_items(first.test == nullptr ? 0 : first.test->header->shape[0]);
  POPRUN_ASSIGN(const Classes labels, count_classes(tensors, "labels", scope));
  POPRUN_ASSIGN(const Classes tokens, count_classes(tensors, "tokens", scope));
  facts.set_classes(std::max(labels.count, tokens.count));
  facts.set_label_classes(tokens.count > labels.count ? labels.count : 0);
  facts.set_no_train_label(!labels.train_counts);
  facts.set_no_test_label(!labels.test_counts);
  return facts;
}

struct Normalisation {
  double mean = 0;
  double deviation = 1;  ///< Must be positive.

  [[nodiscard]] double of(double value) const { return (value - mean) / deviation; }
};

/// Returns the normalisation of the images, if there are any.
Result<Normalisation> normalisation_of(const proto::Dataset& facts, const Source& source) {
  const proto::StreamTensor& first = facts.tensors(0);
  const double fallback = first.element() == "u8" ? 0.5 : 0;
  Normalisation normalisation;
  POPRUN_ASSIGN(normalisation.mean, real_parameter(source, "mean", fallback));
  POPRUN_ASSIGN(normalisation.deviation, real_parameter(source, "deviation", 1 - fallback));
  for (const char* key : {"mean", "deviation"}) {
    if (first.name() != "images" && source.parameters.contains(key)) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("data.{} normalises images, but {} contains no images; remove this key", key, source.text));
    }
  }
  return normalisation;
}

/// Returns the facts with the normalisation that the replica applies to uint8 images. Float images arrive normalised.
proto::Dataset description_of(proto::Dataset facts, const Normalisation& normalisation) {
  const bool bytes = facts.tensors(0).name() == "images" && facts.tensors(0).element() == "u8";
  facts.set_mean(bytes ? static_cast<float>(normalisation.mean) : 0);
  facts.set_deviation(bytes ? static_cast<float>(normalisation.deviation) : 1);
  return facts;
}

/// The smallest and the largest finite value.
struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (std::isfinite(value)) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
};

/// Returns the element at `index` of a float array; elements are doubles if `wide`, and otherwise float32.
double float_at(std::span<const std::byte> elements, bool wide, std::uint64_t index) {
  double value = 0;
  float narrow = 0;
  if (wide) {
    std::memcpy(&value, elements.data() + index * sizeof(value), sizeof(value));
    return value;
  }
  std::memcpy(&narrow, elements.data() + index * sizeof(narrow), sizeof(narrow));
  return narrow;
}

/// Returns a note if float images have the range of bytes, because networks train badly on such images.
Result<std::string> pixel_note(const Tensors& tensors, const Source& source) {
  constexpr std::uint64_t kLookedAt = 1 << 18;  // Bytes.
  constexpr double kFarFromOne = 16;
  constexpr double kMostOfByte = 255;
  const auto images = tensors.find("images");
  if (images == tensors.end() || images->second.target.element == Element::kU8 || source.parameters.contains("mean") ||
      source.parameters.contains("deviation")) {
    return std::string();
  }
  const ArrayFile& array = *images->second.train;
  POPRUN_ASSIGN(const std::vector<std::byte> bytes, array.data(kLookedAt));
  NpyHeader beginning = *array.header;
  beginning.fortran_order = false;
  beginning.shape = {bytes.size() / beginning.width};
  beginning.elements = beginning.shape[0];
  POPRUN_ASSIGN(const auto values,
                npy_elements(beginning, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(beginning.bytes())},
                             {.element = Element::kF64}, array.place));
  Range range;
  for (std::uint64_t i = 0; i < beginning.elements; ++i) {
    range.add(float_at(values, /*wide=*/true, i));
  }
  if (range.least < 0 || range.most > kMostOfByte || range.most < kFarFromOne) {
    return std::string();
  }
  return fmt::format(
      "{}: the values of {} go up to {:g} and are used unchanged; if they are pixels "
      "from 0 to 255, set data.mean = 127.5 and data.deviation = 127.5",
      source.text, array.name, range.most);
}

class StoredArrays final : public Stored {
 public:
  struct Part {
    std::vector<std::byte> train;
    std::vector<std::byte> test;

    [[nodiscard]] const std::vector<std::byte>& of(proto::Split split) const {
      return split == proto::SPLIT_TEST ? test : train;
    }
  };

  /// `parts` are in the order of the facts' tensors. `range` covers the values of float images, which are stored as
  /// doubles if `wide`. Messages call the images `place`.
  StoredArrays(proto::Dataset facts, std::vector<Part> parts, const Range& range, bool wide, std::string place)
      : facts_(std::move(facts)), parts_(std::move(parts)), range_(range), wide_(wide), place_(std::move(place)) {}

  [[nodiscard]] std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) {
      bytes += part.train.size() + part.test.size();
    }
    return bytes;
  }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override;

  [[nodiscard]] const Part& part(int tensor) const { return parts_[static_cast<std::size_t>(tensor)]; }
  [[nodiscard]] bool wide() const { return wide_; }

 private:
  proto::Dataset facts_;
  std::vector<Part> parts_;
  Range range_;
  bool wide_;
  std::string place_;
};

class ArrayDataset final : public Dataset {
 public:
  ArrayDataset(proto::Dataset description, std::shared_ptr<const StoredArrays> stored,
               const Normalisation& normalisation)
      : Dataset(std::move(description)),
        stored_(std::move(stored)),
        normalisation_(normalisation),
        changes_images_(this->description().tensors(0).name() == "images" &&
                        this->description().tensors(0).element() == "f32" &&
                        (stored_->wide() || normalisation.mean != 0 || normalisation.deviation != 1)) {}

  Status read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    const std::vector<std::byte>& elements = stored_->part(tensor).of(sample.split);
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    if (tensor == 0 && changes_images_) {
      read_image(elements, sample.item, destination);
      return {};
    }
    const std::span<const std::byte> sample_elements = kept(sample, tensor);
    std::memcpy(destination.data(), sample_elements.data(), sample_elements.size());
    return {};
  }

  [[nodiscard]] std::span<const std::byte> kept(const Sample& sample, int tensor) const override {
    const std::span<const std::byte> elements = stored_->part(tensor).of(sample.split);
    const std::uint64_t bytes = sample_bytes(description().tensors(tensor));
    if (tensor == 0 && changes_images_) {
      return {};
    }
    POPRUN_CHECK(sample.item < elements.size() / std::max<std::uint64_t>(bytes, 1));
    return elements.subspan(sample.item * bytes, bytes);
  }

  [[nodiscard]] std::vector<std::byte> black() const override {
    std::vector<std::byte> pixel = Dataset::black();
    if (description().tensors(0).element() == "f32") {
      const auto value = static_cast<float>(normalisation_.of(0));
      std::memcpy(pixel.data(), &value, sizeof(value));
    }
    return pixel;
  }

 private:
  void read_image(std::span<const std::byte> elements, std::uint64_t item, std::span<std::byte> destination) const {
    const std::uint64_t count = destination.size() / sizeof(float);
    POPRUN_CHECK((item + 1) * count * (stored_->wide() ? sizeof(double) : sizeof(float)) <= elements.size());
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(normalisation_.of(float_at(elements, stored_->wide(), item * count + i)));
      std::memcpy(destination.data() + i * sizeof(value), &value, sizeof(value));
    }
  }

  std::shared_ptr<const StoredArrays> stored_;  ///< Shared by the jobs that read from it.
  Normalisation normalisation_;
  bool changes_images_;
};

Result<std::unique_ptr<Dataset>> StoredArrays::view(const Source& source) const {
  POPRUN_ASSIGN(const Normalisation normalisation, normalisation_of(facts_, source));
  for (const double value : {range_.least, range_.most}) {
    if (std::isfinite(value) &&
        std::abs(normalisation.of(value)) > static_cast<double>(std::numeric_limits<float>::max())) {
      return fail(ErrorCode::kData, fmt::format("{}: numbers must fit in float32, but {:g} {}", place_, value,
                                                source.parameters.contains("deviation")
                                                    ? fmt::format("becomes {:g} with data.mean and data.deviation",
                                                                  normalisation.of(value))
                                                    : "does not"));
    }
  }
  return std::make_unique<ArrayDataset>(description_of(facts_, normalisation),
                                        std::static_pointer_cast<const StoredArrays>(shared_from_this()),
                                        normalisation);
}

Range range_of(const StoredArrays::Part& images, bool wide) {
  Range range;
  for (const std::vector<std::byte>* elements : {&images.train, &images.test}) {
    for (std::uint64_t i = 0; i < elements->size() / (wide ? sizeof(double) : sizeof(float)); ++i) {
      range.add(float_at(*elements, wide, i));
    }
  }
  return range;
}

}  // namespace

Result<proto::Dataset> describe_arrays(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(const Tensors tensors, tensors_of(arrays, source));
  POPRUN_ASSIGN(const proto::Dataset facts, facts_of(tensors, source.scope));
  POPRUN_ASSIGN(const Normalisation normalisation, normalisation_of(facts, source));
  proto::Dataset description = description_of(facts, normalisation);
  POPRUN_ASSIGN(const std::string pixels, pixel_note(tensors, source));
  for (const std::string& note : {aside_note(arrays, source), pixels}) {
    if (!note.empty()) {
      description.add_notes(note);
    }
  }
  return description;
}

Result<std::shared_ptr<const Stored>> read_arrays(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(const Tensors tensors, tensors_of(arrays, source));
  POPRUN_ASSIGN(proto::Dataset facts, facts_of(tensors, source.scope));
  std::vector<StoredArrays::Part> parts;
  for (const std::string& name : order_of(tensors)) {
    const Tensor& tensor = tensors.at(name);
    StoredArrays::Part& part = parts.emplace_back();
    POPRUN_ASSIGN(part.train, elements_of(*tensor.train, tensor.target, source.scope));
    if (tensor.test != nullptr) {
      POPRUN_ASSIGN(part.test, elements_of(*tensor.test, tensor.target, source.scope));
    }
  }
  const auto images = tensors.find("images");
  const bool floats = images != tensors.end() && images->second.target.element != Element::kU8;
  const bool wide = floats && images->second.target.element == Element::kF64;
  const Range range = floats ? range_of(parts[0], wide) : Range{};
  return std::make_shared<StoredArrays>(std::move(facts), std::move(parts), range, wide,
                                        floats ? images->second.train->place : "");
}

}  // namespace poprun::hostio
