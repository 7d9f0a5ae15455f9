#include "hostio/datasets/array_dataset.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

using Element = NpyTarget::Element;

/// One tensor of the dataset: its arrays, and their conversion.
struct Tensor {
  const ArrayFile* train = nullptr;
  const ArrayFile* test = nullptr;  ///< Null if there is no test part.
  NpyTarget target;
  std::vector<std::uint64_t> sample_shape;
};

using Tensors = std::map<std::string, Tensor>;

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
/// Exceeds any classifier; each class costs a row of weights.
constexpr std::int64_t kClassesMax = 1 << 24;

/// The part and tensor that an array's name denotes.
struct Place {
  enum class Part : std::uint8_t { kNone, kTrain, kTest };

  Part part = Part::kNone;
  std::string tensor;
};

std::string tensor_called(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOthers = {{
      {"x", "images"},
      {"y", "labels"},
      {"input_ids", "tokens"},
      {"token_type_ids", "segments"},
      {"next_sentence_label", "next_sentence"},
  }};
  const auto* const found =
      std::ranges::find(kOthers, name, &std::pair<std::string_view, std::string_view>::first);
  return std::string{found == kOthers.end() ? name : found->second};
}

Place place_of(const std::string& array) {
  std::string name = array;
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  for (const auto& [word, part] :
       {std::pair{"train", Place::Part::kTrain}, std::pair{"test", Place::Part::kTest}}) {
    const std::string before = fmt::format("{}_", word);
    const std::string behind = fmt::format("_{}", word);
    if (name.starts_with(before)) {
      return {part, tensor_called(std::string_view(name).substr(before.size()))};
    }
    if (name.ends_with(behind)) {
      name.resize(name.size() - behind.size());
      return {part, tensor_called(name)};
    }
  }
  // Names of tensors are kept as written, since a model may know them in this form.
  return {Place::Part::kNone, tensor_called(name) == name ? array : tensor_called(name)};
}

std::string type_text(const ArrayFile& array) {
  return fmt::format("{} [{}]", dtype_of(*array.header), fmt::join(array.header->shape, ", "));
}

/// Whether an array is ignored: its name has no part although others have one, or it is a single
/// number.
bool is_aside(const ArrayFile& array, bool parts) {
  return (parts && place_of(array.name).part == Place::Part::kNone) ||
         (array.header && array.header->shape.empty());
}

bool have_parts(const std::vector<ArrayFile>& arrays) {
  return std::ranges::any_of(arrays, [](const ArrayFile& array) {
    return place_of(array.name).part != Place::Part::kNone;
  });
}

/// The arrays by tensor and part.
Result<Tensors> group(const std::vector<ArrayFile>& arrays, const Source& source) {
  const bool parts = have_parts(arrays);
  Tensors tensors;
  std::vector<std::string> names;
  for (const ArrayFile& array : arrays) {
    names.push_back(array.name);
    if (is_aside(array, parts)) {
      continue;
    }
    POPRUN_TRY(array.header);
    const Place place = place_of(array.name);
    Tensor& tensor = tensors[place.tensor];
    const ArrayFile*& slot = place.part == Place::Part::kTest ? tensor.test : tensor.train;
    if (slot != nullptr) {
      return fail(ErrorCode::kData, fmt::format("{}: {} and {} both stand for \"{}\"; rename one",
                                                source.text, slot->name, array.name, place.tensor));
    }
    slot = &array;
  }
  const bool tested =
      std::ranges::any_of(tensors, [](const auto& entry) { return entry.second.test != nullptr; });
  const bool complete = std::ranges::all_of(tensors, [&](const auto& entry) {
    return entry.second.train != nullptr && (entry.second.test != nullptr) == tested;
  });
  if (tensors.empty() || !complete) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed arrays like x_train, y_train, x_test, y_test, or, without "
                            "a test part, images, labels; had {}",
                            source.text,
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return tensors;
}

Status check_rows(const ArrayFile& array, const ArrayFile& first, const Source& source) {
  const std::uint64_t needed = first.header->shape[0];
  const std::uint64_t had = array.header->shape[0];
  if (array.header->elements == 0) {
    return fail(ErrorCode::kData, fmt::format("{}: {} {} is empty; needed one row or more",
                                              source.text, array.name, type_text(array)));
  }
  if (had != needed) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed as many rows in {} {} as in {} {}", source.text, array.name,
                            type_text(array), first.name, type_text(first)));
  }
  return {};
}

/// Checks that all tensors of a part have equally many rows, and that rows have the same shape in
/// both parts.
Status check_shapes(const Tensors& tensors, const Source& source) {
  const Tensor& first = tensors.begin()->second;
  for (const auto& [name, tensor] : tensors) {
    POPRUN_TRY(check_rows(*tensor.train, *first.train, source));
    if (tensor.test == nullptr) {
      continue;
    }
    POPRUN_TRY(check_rows(*tensor.test, *first.test, source));
    const auto& train = tensor.train->header->shape;
    const auto& test = tensor.test->header->shape;
    if (!std::equal(train.begin() + 1, train.end(), test.begin() + 1, test.end())) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: needed rows of one shape in {} {} and {} {}", source.text,
                              tensor.train->name, type_text(*tensor.train), tensor.test->name,
                              type_text(*tensor.test)));
    }
  }
  return {};
}

Result<double> real_parameter(const Source& source, const std::string& key, double fallback) {
  const auto found = source.parameters.find(key);
  if (found == source.parameters.end()) {
    return fallback;
  }
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      (key == "deviation" && value <= 0)) {
    return fail(ErrorCode::kUsage, fmt::format("data.{} = {} is not a{} number", key, text,
                                               key == "deviation" ? " positive" : ""));
  }
  return value;
}

/// Whether images are [N,H,W,C]: as the user says, who must say it if they look like it.
Result<bool> channels_last(const ArrayFile& images, const Source& source) {
  const auto& shape = images.header->shape;
  const auto found = source.parameters.find("channels");
  if (found != source.parameters.end() && found->second != "first" && found->second != "last") {
    return fail(
        ErrorCode::kUsage,
        fmt::format("data.channels = {} is not allowed; allowed: first, last", found->second));
  }
  if (found != source.parameters.end() || shape.size() != 4) {
    return found != source.parameters.end() && found->second == "last" && shape.size() == 4;
  }
  const auto few = [](std::uint64_t channels) {
    return channels == 1 || channels == 3 || channels == 4;
  };
  if (few(shape[3]) && !few(shape[1])) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed images [items, channels, height, width], had {}, which "
                            "looks like channels last; set data.channels = last, or first if it "
                            "is not",
                            images.place, type_text(images)));
  }
  return false;
}

Status set_images(Tensor& tensor, const Source& source) {
  const NpyHeader& header = *tensor.train->header;
  const bool bytes = header.kind == 'u' && header.width == 1;
  if (!bytes && header.kind != 'f') {
    return fail(ErrorCode::kData, fmt::format("{}: needed images as uint8 or floats, had {}; save "
                                              "them with astype(\"uint8\") or astype(\"float32\")",
                                              tensor.train->place, type_text(*tensor.train)));
  }
  if (header.shape.size() < 2 || header.shape.size() > 4) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed images [items, height, width], [items, channels, height, "
                            "width] or features [items, features], had {}",
                            tensor.train->place, type_text(*tensor.train)));
  }
  tensor.target.element = bytes ? Element::kU8 : Element::kF32;
  POPRUN_ASSIGN(tensor.target.channels_last, channels_last(*tensor.train, source));
  const auto is_double = [](const ArrayFile* array) {
    return array != nullptr && array->header->kind == 'f' && array->header->width == 8;
  };
  if (is_double(tensor.train) || is_double(tensor.test)) {
    tensor.target.element = Element::kF64;  // Rounded only once, after normalisation.
  }
  auto& shape = tensor.sample_shape;
  if (shape.size() == 2) {
    shape.insert(shape.begin(), 1);
  } else if (tensor.target.channels_last) {
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
  }
  return {};
}

Status set_tensor(const std::string& name, Tensor& tensor, const Tensors& tensors,
                  const Source& source) {
  const NpyHeader& header = *tensor.train->header;
  tensor.target.element = header.kind == 'f' ? Element::kF32 : Element::kI32;
  tensor.sample_shape.assign(header.shape.begin() + 1, header.shape.end());
  if (std::ranges::any_of(tensor.sample_shape, [](std::uint64_t dim) {
        return dim > std::numeric_limits<std::uint32_t>::max() / 8;
      })) {
    return fail(ErrorCode::kData, fmt::format("{}: rows of {} are too large", tensor.train->place,
                                              type_text(*tensor.train)));
  }
  if (name == "images") {
    POPRUN_TRY(set_images(tensor, source));
  } else if (name == "labels") {
    const bool one = tensor.sample_shape == std::vector<std::uint64_t>{1};
    if (one && tensors.contains("images")) {
      tensor.sample_shape.clear();
    }
  }
  if (tensor.test == nullptr) {
    return {};
  }
  const NpyHeader& test = *tensor.test->header;
  const bool alike = tensor.target.element == Element::kU8
                         ? test.kind == 'u' && test.width == 1
                         : (test.kind == 'f') == (header.kind == 'f');
  if (!alike) {
    return fail(ErrorCode::kData,
                fmt::format("{}: needed the element type of the training part, {}, had {}; save "
                            "both with the same astype()",
                            tensor.test->place, dtype_of(header), dtype_of(test)));
  }
  return {};
}

/// Plans everything except the elements.
Result<Tensors> plan(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(Tensors tensors, group(arrays, source));
  POPRUN_TRY(check_shapes(tensors, source));
  for (auto& [name, tensor] : tensors) {
    POPRUN_TRY(set_tensor(name, tensor, tensors, source));
  }
  return tensors;
}

Result<std::vector<std::byte>> elements_of(const ArrayFile& array, const NpyTarget& target,
                                           const FileScope& scope) {
  POPRUN_ASSIGN(std::vector<std::byte> data, array.data(kAll));
  return npy_elements(*array.header, std::move(data), target, array.place, scope);
}

std::uint64_t elements_of_sample(const Tensor& tensor) {
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : tensor.sample_shape) {
    elements *= dim;
  }
  return elements;
}

/// Checks a label. Labels below zero mark positions of a sequence that do not count; the only label
/// of a sample must count.
Status check_class(std::string_view name, const Tensor& tensor, const std::string& place,
                   std::size_t at, std::int32_t value) {
  if (name == "labels" && value >= kClassesMax) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: label {} of item {} would need {} classes; the limit is {}: number "
                    "the classes from 0 without gaps",
                    place, grouped(value), at / elements_of_sample(tensor),
                    grouped(std::int64_t{value} + 1), grouped(kClassesMax)));
  }
  if (value >= 0) {
    return {};
  }
  if (name == "tokens") {
    return fail(ErrorCode::kData, fmt::format("{}: needed tokens >= 0, had {}; pad with any "
                                              "token and say so in attention_mask",
                                              place, value));
  }
  if (tensor.sample_shape.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: item {}: needed a label >= 0, had {}; "
                                              "number the classes from 0 and leave out items "
                                              "without a label",
                                              place, at, value));
  }
  return {};
}

/// Checks labels that are floats: padding is NaN, so none of them may be.
Status check_numbers(std::span<const std::byte> bytes, const ArrayFile& array) {
  const std::size_t items = array.header->shape[0];
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    if (!std::isfinite(value)) {
      return fail(ErrorCode::kData, fmt::format("{}: item {}: needed a number as label, had {}",
                                                array.place, at * items / bytes.size(), value));
    }
  }
  return {};
}

/// Classes found in the labels or tokens of a tensor.
struct Classes {
  std::uint32_t count = 0;   ///< The largest plus one; 0 if there is none, or they are not classes.
  bool train_counts = true;  ///< Some labels of the part are not below zero.
  bool test_counts = true;
};

Result<Classes> count_classes(const Tensors& tensors, const std::string& name,
                              const FileScope& scope) {
  Classes classes;
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return classes;
  }
  const Tensor& tensor = found->second;
  std::int32_t largest = -1;
  for (const ArrayFile* array : {tensor.train, tensor.test}) {
    if (array == nullptr) {
      continue;
    }
    POPRUN_ASSIGN(const auto bytes, elements_of(*array, tensor.target, scope));
    if (tensor.target.element != Element::kI32) {
      POPRUN_TRY(check_numbers(bytes, *array));
      continue;
    }
    std::int32_t largest_of_part = -1;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::int32_t)) {
      std::int32_t value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof(value));
      POPRUN_TRY(check_class(name, tensor, array->place, at / sizeof(value), value));
      largest_of_part = std::max(largest_of_part, value);
    }
    (array == tensor.train ? classes.train_counts : classes.test_counts) = largest_of_part >= 0;
    largest = std::max(largest, largest_of_part);
  }
  classes.count = static_cast<std::uint32_t>(largest) + 1;
  return classes;
}

/// Names of the tensors in the order of a batch: images first, as augmentation requires, labels
/// last.
std::vector<std::string> order_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
  }
  const auto front = [&names](const auto& goes_first) {
    // std::ranges::stable_partition does not work: clang 14 cannot parse its return type.
    std::stable_partition(names.begin(), names.end(), goes_first);
  };
  front([](const std::string& name) { return name == "images"; });
  front([](const std::string& name) { return name != "labels"; });
  return names;
}

/// The facts about the arrays that do not depend on the parameters of the source.
Result<proto::Dataset> facts_of(const Tensors& tensors, const FileScope& scope) {
  constexpr std::array kElements = {"u8", "i32", "f32", "f32"};
  proto::Dataset facts;
  for (const std::string& name : order_of(tensors)) {
    const Tensor& tensor = tensors.at(name);
    proto::StreamTensor& stream = *facts.add_tensors();
    stream.set_name(name);
    stream.set_element(kElements.at(static_cast<std::size_t>(tensor.target.element)));
    for (const std::uint64_t dim : tensor.sample_shape) {
      stream.add_sample_shape(static_cast<std::uint32_t>(dim));
    }
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

/// The normalisation of the images, if there are any.
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
          fmt::format("data.{} normalises images, but {} has none; remove it", key, source.text));
    }
  }
  return normalisation;
}

/// The facts, with the normalisation that the replica applies to bytes. Floats arrive normalised.
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

/// Float `index` of an array's elements, which are doubles if `wide`.
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

std::string aside_note(const std::vector<ArrayFile>& arrays, const Source& source) {
  std::vector<std::string> names;
  for (const ArrayFile& array : arrays) {
    if (is_aside(array, have_parts(arrays))) {
      names.push_back(array.name);
    }
  }
  return names.empty() ? ""
                       : fmt::format(
                             "{}: {} {} not read: the arrays that are read end in _train "
                             "or _test, or begin so",
                             source.text, fmt::join(names, ", "), names.size() == 1 ? "is" : "are");
}

/// Returns a note if float images have the range of bytes, with which networks train badly.
Result<std::string> pixel_note(const Tensors& tensors, const Source& source) {
  constexpr std::uint64_t kLookedAt = 1 << 18;  // Bytes.
  constexpr double kFarFromOne = 16;
  constexpr double kMostOfByte = 255;
  const auto images = tensors.find("images");
  if (images == tensors.end() || images->second.target.element == Element::kU8 ||
      source.parameters.contains("mean") || source.parameters.contains("deviation")) {
    return std::string();
  }
  const ArrayFile& array = *images->second.train;
  POPRUN_ASSIGN(const std::vector<std::byte> bytes, array.data(kLookedAt));
  NpyHeader beginning = *array.header;
  beginning.fortran_order = false;
  beginning.shape = {bytes.size() / beginning.width};
  beginning.elements = beginning.shape[0];
  POPRUN_ASSIGN(
      const auto values,
      npy_elements(beginning,
                   {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(beginning.bytes())},
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

  /// `parts` are in the order of the facts' tensors. `range` is that of float images, which are
  /// doubles if `wide`; `place` is their name in messages.
  StoredArrays(proto::Dataset facts, std::vector<Part> parts, const Range& range, bool wide,
               std::string place)
      : facts_(std::move(facts)),
        parts_(std::move(parts)),
        range_(range),
        wide_(wide),
        place_(std::move(place)) {}

  [[nodiscard]] std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) {
      bytes += part.train.size() + part.test.size();
    }
    return bytes;
  }

  [[nodiscard]] Result<std::unique_ptr<Dataset>> view(const Source& source) const override;

  [[nodiscard]] const Part& part(int tensor) const {
    return parts_[static_cast<std::size_t>(tensor)];
  }
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
        changes_images_(
            this->description().tensors(0).name() == "images" &&
            this->description().tensors(0).element() == "f32" &&
            (stored_->wide() || normalisation.mean != 0 || normalisation.deviation != 1)) {}

  void read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    const std::vector<std::byte>& elements = stored_->part(tensor).of(sample.split);
    POPRUN_CHECK(destination.size() == sample_bytes(description().tensors(tensor)));
    if (tensor == 0 && changes_images_) {
      read_image(elements, sample.item, destination);
      return;
    }
    const std::uint64_t begin = sample.item * destination.size();
    POPRUN_CHECK(begin + destination.size() <= elements.size());
    std::memcpy(destination.data(), elements.data() + begin, destination.size());
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
  void read_image(std::span<const std::byte> elements, std::uint64_t item,
                  std::span<std::byte> destination) const {
    const std::uint64_t count = destination.size() / sizeof(float);
    POPRUN_CHECK((item + 1) * count * (stored_->wide() ? sizeof(double) : sizeof(float)) <=
                 elements.size());
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(
          normalisation_.of(float_at(elements, stored_->wide(), item * count + i)));
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
    if (std::isfinite(value) && std::abs(normalisation.of(value)) >
                                    static_cast<double>(std::numeric_limits<float>::max())) {
      return fail(
          ErrorCode::kData,
          fmt::format(
              "{}: needed numbers that fit float32, had {:g}, which {}", place_, value,
              source.parameters.contains("deviation")
                  ? fmt::format("data.mean and data.deviation make {:g}", normalisation.of(value))
                  : "does not"));
    }
  }
  return std::make_unique<ArrayDataset>(
      description_of(facts_, normalisation),
      std::static_pointer_cast<const StoredArrays>(shared_from_this()), normalisation);
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
  POPRUN_ASSIGN(const Tensors tensors, plan(arrays, source));
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

Result<std::shared_ptr<const Stored>> read_arrays(const std::vector<ArrayFile>& arrays,
                                                  const Source& source) {
  POPRUN_ASSIGN(const Tensors tensors, plan(arrays, source));
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
