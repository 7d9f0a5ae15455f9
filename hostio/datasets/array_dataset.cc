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

namespace poprun::hostio {
namespace {

using Element = NpyTarget::Element;

/// One tensor of the dataset: its arrays, and what becomes of them.
struct Tensor {
  const ArrayFile* train = nullptr;
  const ArrayFile* test = nullptr;  ///< Null where there is no test part.
  NpyTarget target;
  std::vector<std::uint64_t> sample_shape;
};

using Tensors = std::map<std::string, Tensor>;

/// What an array's name says.
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
  // Names of tensors are kept as they are written: a model may know them so.
  return {Place::Part::kNone, tensor_called(name) == name ? array : tensor_called(name)};
}

std::string type_text(const ArrayFile& array) {
  return fmt::format("{} [{}]", dtype_of(*array.header), fmt::join(array.header->shape, ", "));
}

/// The arrays by tensor and part.
Result<Tensors> group(const std::vector<ArrayFile>& arrays, const Source& source) {
  const bool parts = std::ranges::any_of(arrays, [](const ArrayFile& array) {
    return place_of(array.name).part != Place::Part::kNone;
  });
  Tensors tensors;
  std::vector<std::string> names;
  for (const ArrayFile& array : arrays) {
    names.push_back(array.name);
    const Place place = place_of(array.name);
    if (parts && place.part == Place::Part::kNone) {
      continue;
    }
    POPRUN_TRY(array.header);
    if (array.header->shape.empty()) {
      continue;
    }
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

/// Every part has equally many rows, and its rows are alike in both.
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

/// Whether images lie [N,H,W,C]: the user says so, or must say where it looks so.
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
  if (!bytes) {
    POPRUN_ASSIGN(tensor.target.mean, real_parameter(source, "mean", 0));
    POPRUN_ASSIGN(tensor.target.deviation, real_parameter(source, "deviation", 1));
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
                fmt::format("{}: needed the training part's sample shape, {}, had {}",
                            tensor.test->place, dtype_of(header), dtype_of(test)));
  }
  return {};
}

/// Everything but the elements.
Result<Tensors> plan(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(Tensors tensors, group(arrays, source));
  POPRUN_TRY(check_shapes(tensors, source));
  for (auto& [name, tensor] : tensors) {
    POPRUN_TRY(set_tensor(name, tensor, tensors, source));
  }
  return tensors;
}

Result<std::vector<std::byte>> elements_of(const ArrayFile& array, const NpyTarget& target) {
  POPRUN_ASSIGN(std::vector<std::byte> data, array.data());
  return npy_elements(*array.header, std::move(data), target, array.place);
}

/// Labels below zero are places that do not count, among those of a sequence; the only label of a
/// sample must count.
Status check_class(std::string_view name, const Tensor& tensor, const std::string& place,
                   std::size_t at, std::int32_t value) {
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

/// Labels that are numbers: padding is NaN, so none of them may be.
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

/// The largest label or token, of tensor `name`, plus one; 0 where there is none, or no class.
Result<std::uint32_t> count_classes(const Tensors& tensors, const std::string& name) {
  std::int32_t largest = -1;
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return 0;
  }
  const Tensor& tensor = found->second;
  for (const ArrayFile* array : {tensor.train, tensor.test}) {
    if (array == nullptr) {
      continue;
    }
    POPRUN_ASSIGN(const auto bytes, elements_of(*array, tensor.target));
    if (tensor.target.element != Element::kI32) {
      POPRUN_TRY(check_numbers(bytes, *array));
      continue;
    }
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::int32_t)) {
      std::int32_t value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof(value));
      POPRUN_TRY(check_class(name, tensor, array->place, at / sizeof(value), value));
      largest = std::max(largest, value);
    }
  }
  return static_cast<std::uint32_t>(largest) + 1;
}

/// Names of the tensors in the order in which they travel: images first, as augmentation wants it,
/// labels last.
std::vector<std::string> order_of(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
  }
  const auto front = [&names](const auto& goes_first) {
    // Not that of std::ranges: clang 14 cannot parse what it returns.
    std::stable_partition(names.begin(), names.end(), goes_first);
  };
  front([](const std::string& name) { return name == "images"; });
  front([](const std::string& name) { return name != "labels"; });
  return names;
}

Result<proto::Dataset> description_of(const Tensors& tensors, const Source& source) {
  constexpr std::array kElements = {"u8", "i32", "f32"};
  proto::Dataset description;
  for (const std::string& name : order_of(tensors)) {
    const Tensor& tensor = tensors.at(name);
    proto::StreamTensor& stream = *description.add_tensors();
    stream.set_name(name);
    stream.set_element(kElements.at(static_cast<std::size_t>(tensor.target.element)));
    for (const std::uint64_t dim : tensor.sample_shape) {
      stream.add_sample_shape(static_cast<std::uint32_t>(dim));
    }
  }
  const Tensor& first = tensors.begin()->second;
  description.set_train_items(first.train->header->shape[0]);
  description.set_test_items(first.test == nullptr ? 0 : first.test->header->shape[0]);
  const auto images = tensors.find("images");
  const bool bytes = images != tensors.end() && images->second.target.element == Element::kU8;
  POPRUN_ASSIGN(const double mean, real_parameter(source, "mean", 0.5));
  POPRUN_ASSIGN(const double deviation, real_parameter(source, "deviation", 0.5));
  description.set_mean(bytes ? static_cast<float>(mean) : 0);
  description.set_deviation(bytes ? static_cast<float>(deviation) : 1);
  POPRUN_ASSIGN(const std::uint32_t labels, count_classes(tensors, "labels"));
  POPRUN_ASSIGN(const std::uint32_t tokens, count_classes(tensors, "tokens"));
  description.set_classes(std::max(labels, tokens));
  description.set_label_classes(tokens > labels ? labels : 0);
  return description;
}

class ArrayDataset final : public Dataset {
 public:
  struct Part {
    std::vector<std::byte> train;
    std::vector<std::byte> test;
  };

  ArrayDataset(proto::Dataset description, std::vector<Part> parts)
      : description_(std::move(description)), parts_(std::move(parts)) {}

  [[nodiscard]] const proto::Dataset& description() const override { return description_; }

  [[nodiscard]] std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) {
      bytes += part.train.size() + part.test.size();
    }
    return bytes;
  }

  void read(const Sample& sample, int tensor, std::span<std::byte> destination) const override {
    const Part& part = parts_[static_cast<std::size_t>(tensor)];
    const auto& elements = sample.split == proto::SPLIT_TEST ? part.test : part.train;
    const std::uint64_t begin = sample.item * destination.size();
    POPRUN_CHECK(destination.size() == sample_bytes(description_.tensors(tensor)) &&
                 begin + destination.size() <= elements.size());
    std::memcpy(destination.data(), elements.data() + begin, destination.size());
  }

 private:
  proto::Dataset description_;
  std::vector<Part> parts_;  ///< In the order of the description's tensors.
};

}  // namespace

Result<proto::Dataset> describe_arrays(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(const Tensors tensors, plan(arrays, source));
  return description_of(tensors, source);
}

Result<std::unique_ptr<Dataset>> load_arrays(const std::vector<ArrayFile>& arrays,
                                             const Source& source) {
  POPRUN_ASSIGN(const Tensors tensors, plan(arrays, source));
  POPRUN_ASSIGN(proto::Dataset description, description_of(tensors, source));
  std::vector<ArrayDataset::Part> parts;
  for (const std::string& name : order_of(tensors)) {
    const Tensor& tensor = tensors.at(name);
    ArrayDataset::Part& part = parts.emplace_back();
    POPRUN_ASSIGN(part.train, elements_of(*tensor.train, tensor.target));
    if (tensor.test != nullptr) {
      POPRUN_ASSIGN(part.test, elements_of(*tensor.test, tensor.target));
    }
  }
  return std::make_unique<ArrayDataset>(std::move(description), std::move(parts));
}

}  // namespace poprun::hostio
