#include "hostio/datasets/array_tensors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

using Element = NpyTarget::Element;

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
/// Limit on classes, more than any classifier has. Each class costs a row of weights.
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
  const auto* const found = std::ranges::find(kOthers, name, &std::pair<std::string_view, std::string_view>::first);
  return std::string{found == kOthers.end() ? name : found->second};
}

Place place_of(const std::string& array) {
  std::string name = array;
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  for (const auto& [word, part] : {std::pair{"train", Place::Part::kTrain}, std::pair{"test", Place::Part::kTest}}) {
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
  // Other names are kept as written, because a model may have a tensor of exactly that name.
  return {Place::Part::kNone, tensor_called(name) == name ? array : tensor_called(name)};
}

std::string type_text(const ArrayFile& array) {
  return fmt::format("{} [{}]", dtype_of(*array.header), fmt::join(array.header->shape, ", "));
}

/// Returns whether an array is ignored: its name states no part although other names do, or it is a single number.
bool is_aside(const ArrayFile& array, bool parts) {
  return (parts && place_of(array.name).part == Place::Part::kNone) || (array.header && array.header->shape.empty());
}

bool have_parts(const std::vector<ArrayFile>& arrays) {
  return std::ranges::any_of(arrays,
                             [](const ArrayFile& array) { return place_of(array.name).part != Place::Part::kNone; });
}

/// Groups the arrays by tensor and part.
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
      return fail(ErrorCode::kData, fmt::format("{}: {} and {} are both names for \"{}\"; rename one of them",
                                                source.text, slot->name, array.name, place.tensor));
    }
    slot = &array;
  }
  const bool tested = std::ranges::any_of(tensors, [](const auto& entry) { return entry.second.test != nullptr; });
  const bool complete = std::ranges::all_of(tensors, [&](const auto& entry) {
    return entry.second.train != nullptr && (entry.second.test != nullptr) == tested;
  });
  if (tensors.empty() || !complete) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected arrays such as x_train, y_train, x_test and y_test or, without a test part, "
                            "images and labels; found {}",
                            source.text, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return tensors;
}

Status check_rows(const ArrayFile& array, const ArrayFile& first, const Source& source) {
  const std::uint64_t needed = first.header->shape[0];
  const std::uint64_t had = array.header->shape[0];
  if (array.header->elements == 0) {
    return fail(ErrorCode::kData, fmt::format("{}: {} {} is empty; it needs at least one row", source.text, array.name,
                                              type_text(array)));
  }
  if (had != needed) {
    return fail(ErrorCode::kData, fmt::format("{}: {} {} must have as many rows as {} {}", source.text, array.name,
                                              type_text(array), first.name, type_text(first)));
  }
  return {};
}

/// Checks that all tensors of a part have the same number of rows, and that rows have the same shape in both parts.
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
                  fmt::format("{}: {} {} and {} {} must have rows of the same shape", source.text, tensor.train->name,
                              type_text(*tensor.train), tensor.test->name, type_text(*tensor.test)));
    }
  }
  return {};
}

/// Returns whether images are [N,H,W,C]. The user can state the order, and must do so if the shape suggests channels
/// last.
Result<bool> channels_last(const ArrayFile& images, const Source& source) {
  const auto& shape = images.header->shape;
  const auto found = source.parameters.find("channels");
  if (found != source.parameters.end() && found->second != "first" && found->second != "last") {
    return fail(ErrorCode::kUsage,
                fmt::format("data.channels = {} is not allowed; allowed: first, last", found->second));
  }
  if (found != source.parameters.end() || shape.size() != 4) {
    return found != source.parameters.end() && found->second == "last" && shape.size() == 4;
  }
  const auto few = [](std::uint64_t channels) { return channels == 1 || channels == 3 || channels == 4; };
  if (few(shape[3]) && !few(shape[1])) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected images [items, channels, height, width], but {} looks like channels last; "
                            "set data.channels = last, or data.channels = first if the channels really come first",
                            images.place, type_text(images)));
  }
  return false;
}

Status set_images(Tensor& tensor, const Source& source) {
  const NpyHeader& header = *tensor.train->header;
  const bool bytes = header.kind == 'u' && header.width == 1;
  if (!bytes && header.kind != 'f') {
    return fail(ErrorCode::kData, fmt::format("{}: images must be uint8 or floating-point numbers, but they are {}; "
                                              "save them with astype(\"uint8\") or astype(\"float32\")",
                                              tensor.train->place, type_text(*tensor.train)));
  }
  if (header.shape.size() < 2 || header.shape.size() > 4) {
    return fail(ErrorCode::kData, fmt::format("{}: expected images [items, height, width], [items, channels, height, "
                                              "width] or features [items, features], found {}",
                                              tensor.train->place, type_text(*tensor.train)));
  }
  tensor.target.element = bytes ? Element::kU8 : Element::kF32;
  POPRUN_ASSIGN(tensor.target.channels_last, channels_last(*tensor.train, source));
  const auto is_double = [](const ArrayFile* array) {
    return array != nullptr && array->header->kind == 'f' && array->header->width == 8;
  };
  if (is_double(tensor.train) || is_double(tensor.test)) {
    tensor.target.element = Element::kF64;  // The values are rounded only once, after normalisation.
  }
  auto& shape = tensor.sample_shape;
  if (shape.size() == 2) {
    shape.insert(shape.begin(), 1);
  } else if (tensor.target.channels_last) {
    std::rotate(shape.begin(), shape.begin() + 2, shape.end());
  }
  return {};
}

Status set_tensor(const std::string& name, Tensor& tensor, const Tensors& tensors, const Source& source) {
  const NpyHeader& header = *tensor.train->header;
  tensor.target.element = header.kind == 'f' ? Element::kF32 : Element::kI32;
  tensor.sample_shape.assign(header.shape.begin() + 1, header.shape.end());
  if (std::ranges::any_of(tensor.sample_shape,
                          [](std::uint64_t dim) { return dim > std::numeric_limits<std::uint32_t>::max() / 8; })) {
    return fail(ErrorCode::kData,
                fmt::format("{}: rows of {} are too large", tensor.train->place, type_text(*tensor.train)));
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
  const bool alike = tensor.target.element == Element::kU8 ? test.kind == 'u' && test.width == 1
                                                           : (test.kind == 'f') == (header.kind == 'f');
  if (!alike) {
    return fail(ErrorCode::kData, fmt::format("{}: the element type must be that of the training part, {}, but it is "
                                              "{}; save both parts with the same astype()",
                                              tensor.test->place, dtype_of(header), dtype_of(test)));
  }
  return {};
}

std::uint64_t elements_of_sample(const Tensor& tensor) {
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : tensor.sample_shape) {
    elements *= dim;
  }
  return elements;
}

/// Checks a label. Labels below zero mark positions of a sequence to ignore; the only label of a sample must be >= 0.
Status check_class(std::string_view name, const Tensor& tensor, const std::string& place, std::size_t at,
                   std::int32_t value) {
  if (name == "labels" && value >= kClassesMax) {
    return fail(ErrorCode::kData, fmt::format("{}: label {} of item {} would need {} classes, but the limit is {}; "
                                              "number the classes from 0 without gaps",
                                              place, grouped(value), at / elements_of_sample(tensor),
                                              grouped(std::int64_t{value} + 1), grouped(kClassesMax)));
  }
  if (value >= 0) {
    return {};
  }
  if (name == "tokens") {
    return fail(ErrorCode::kData, fmt::format("{}: tokens must be >= 0, but one is {}; pad with any "
                                              "token and mask it in attention_mask",
                                              place, value));
  }
  if (tensor.sample_shape.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: item {}: the label must be >= 0, but it is {}; "
                                              "number the classes from 0 and leave out items "
                                              "without a label",
                                              place, at, value));
  }
  return {};
}

/// Checks that float labels are finite, because NaN marks padding. `bytes` are those of `items` items from `first` on.
Status check_numbers(std::span<const std::byte> bytes, const ArrayFile& array, std::uint64_t first,
                     std::uint64_t items) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    if (!std::isfinite(value)) {
      return fail(ErrorCode::kData, fmt::format("{}: item {}: the label must be a finite number, but it is {}",
                                                array.place, first + at * items / bytes.size(), value));
    }
  }
  return {};
}

/// Returns how many items of an array are read at a time: about 16 MiB of them, if they can be read separately.
std::uint64_t piece_items_of(const ArrayFile& array) {
  constexpr std::uint64_t kPieceBytes = 16 << 20;
  const std::uint64_t items = array.header->shape[0];
  const std::uint64_t bytes = array.header->bytes();
  const bool is_whole = array.items == nullptr || bytes <= kPieceBytes;
  return is_whole ? items : std::max(kPieceBytes / (bytes / items), std::uint64_t{1});
}

/// Calls visit(converted elements, first item, number of items) for pieces of the array, in order.
template <typename Visit>
Status each_piece(const ArrayFile& array, const NpyTarget& target, const FileScope& scope, const Visit& visit) {
  const std::uint64_t items = array.header->shape[0];
  const std::uint64_t piece_items = piece_items_of(array);
  if (piece_items >= items) {
    POPRUN_ASSIGN(std::vector<std::byte> data, array.data(kAll));
    POPRUN_ASSIGN(std::vector<std::byte> elements,
                  npy_elements(*array.header, std::move(data), target, array.place, scope));
    return visit(std::move(elements), 0, items);
  }
  NpyHeader piece = *array.header;
  for (std::uint64_t first = 0; first < items; first += piece_items) {
    piece.first_item = first;
    piece.shape[0] = std::min(piece_items, items - first);
    piece.elements = array.header->elements / items * piece.shape[0];
    POPRUN_ASSIGN(std::vector<std::byte> data, array.items(first, piece.shape[0]));
    POPRUN_ASSIGN(std::vector<std::byte> elements, npy_elements(piece, std::move(data), target, array.place, scope));
    POPRUN_TRY(visit(std::move(elements), first, piece.shape[0]));
  }
  return {};
}

}  // namespace

Result<Tensors> tensors_of(const std::vector<ArrayFile>& arrays, const Source& source) {
  POPRUN_ASSIGN(Tensors tensors, group(arrays, source));
  POPRUN_TRY(check_shapes(tensors, source));
  for (auto& [name, tensor] : tensors) {
    POPRUN_TRY(set_tensor(name, tensor, tensors, source));
  }
  return tensors;
}

Result<std::vector<std::byte>> elements_of(const ArrayFile& array, const NpyTarget& target, const FileScope& scope) {
  std::vector<std::byte> all;
  const auto visit = [&](std::vector<std::byte> piece, std::uint64_t first, std::uint64_t items) -> Status {
    const std::uint64_t all_items = array.header->shape[0];
    if (items == all_items) {
      all = std::move(piece);
      return {};
    }
    const std::uint64_t item_bytes = piece.size() / items;
    if (first == 0) {
      POPRUN_TRY(scope.resize(all, all_items * item_bytes, array.place));
    }
    std::ranges::copy(piece, all.begin() + static_cast<std::ptrdiff_t>(first * item_bytes));
    return {};
  };
  POPRUN_TRY(each_piece(array, target, scope, visit));
  return all;
}

Result<Classes> count_classes(const Tensors& tensors, const std::string& name, const FileScope& scope) {
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
    std::int32_t largest_of_part = -1;
    const auto visit = [&](const std::vector<std::byte>& bytes, std::uint64_t first, std::uint64_t items) -> Status {
      if (tensor.target.element != Element::kI32) {
        return check_numbers(bytes, *array, first, items);
      }
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::int32_t)) {
        std::int32_t value = 0;
        std::memcpy(&value, bytes.data() + at, sizeof(value));
        POPRUN_TRY(
            check_class(name, tensor, array->place, first * elements_of_sample(tensor) + at / sizeof(value), value));
        largest_of_part = std::max(largest_of_part, value);
      }
      return {};
    };
    POPRUN_TRY(each_piece(*array, tensor.target, scope, visit));
    if (tensor.target.element != Element::kI32) {
      continue;
    }
    (array == tensor.train ? classes.train_counts : classes.test_counts) = largest_of_part >= 0;
    largest = std::max(largest, largest_of_part);
  }
  classes.count = static_cast<std::uint32_t>(largest) + 1;
  return classes;
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
                             "{}: {} {} not read: only names that begin with train_ or test_, or end in _train or "
                             "_test, are read",
                             source.text, fmt::join(names, ", "), names.size() == 1 ? "is" : "are");
}

}  // namespace poprun::hostio
