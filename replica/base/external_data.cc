#include "replica/base/external_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

/// The messages of onnx.proto on the way to tensors.
enum class Message : std::uint8_t { kModel, kGraph, kNode, kAttribute, kFunction, kTensor, kOther };

/// Returns what field `number` of a message contains.
Message content(Message message, std::uint64_t number) {
  switch (message) {
    case Message::kModel:
      return number == 7 ? Message::kGraph : number == 25 ? Message::kFunction : Message::kOther;
    case Message::kGraph:
      return number == 1 ? Message::kNode : number == 5 ? Message::kTensor : Message::kOther;
    case Message::kNode:
      return number == 5 ? Message::kAttribute : Message::kOther;
    case Message::kAttribute:
      return number == 6 || number == 11   ? Message::kGraph
             : number == 5 || number == 10 ? Message::kTensor
                                           : Message::kOther;
    case Message::kFunction:
      return number == 7 ? Message::kNode : number == 11 ? Message::kAttribute : Message::kOther;
    case Message::kTensor:
    case Message::kOther:
      return Message::kOther;
  }
  return Message::kOther;
}

/// One field of a message in protobuf's wire format.
struct Field {
  std::uint64_t number = 0;
  bool nested = false;       ///< Whether it has a length: a message, a text or packed numbers.
  std::uint64_t value = 0;   ///< Of a varint.
  std::string_view content;  ///< Of a nested field.
  std::string_view whole;    ///< With its key.
};

std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  return std::nullopt;
}

/// Returns the next field, or nothing if the bytes are not a message.
std::optional<Field> take_field(std::string_view& rest) {
  const std::string_view all = rest;
  const auto key = take_varint(rest);
  if (!key) {
    return std::nullopt;
  }
  Field field;
  field.number = *key >> 3U;
  std::uint64_t size = 0;
  switch (*key & 7U) {
    case 0: {
      const auto value = take_varint(rest);
      if (!value) {
        return std::nullopt;
      }
      field.value = *value;
      break;
    }
    case 1:
      size = 8;
      break;
    case 2: {
      const auto length = take_varint(rest);
      if (!length) {
        return std::nullopt;
      }
      size = *length;
      field.nested = true;
      break;
    }
    case 5:
      size = 4;
      break;
    default:
      return std::nullopt;
  }
  if (size > rest.size()) {
    return std::nullopt;
  }
  field.content = rest.substr(0, size);
  rest.remove_prefix(size);
  field.whole = all.substr(0, all.size() - rest.size());
  return field;
}

/// Returns the fields, or nothing if the bytes are not a message.
std::optional<std::vector<Field>> fields_of(std::string_view bytes) {
  std::vector<Field> fields;
  while (!bytes.empty()) {
    const auto field = take_field(bytes);
    if (!field) {
      return std::nullopt;
    }
    fields.push_back(*field);
  }
  return fields;
}

void append_varint(std::uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7U) {
    to += static_cast<char>((value & 0x7FU) | 0x80U);
  }
  to += static_cast<char>(value);
}

std::uint64_t varint_size(std::uint64_t value) {
  std::uint64_t size = 1;
  for (; value >= 0x80; value >>= 7U) {
    ++size;
  }
  return size;
}

constexpr int kMostDepth = 100;  ///< Of messages in messages, as in protobuf's own parser.

constexpr std::uint64_t kName = 8;
constexpr std::uint64_t kRaw = 9;
constexpr std::uint64_t kExternal = 13;
constexpr std::uint64_t kLocation = 14;

/// Where the data of a tensor are.
struct Place {
  std::string name;      ///< Of the tensor.
  std::string location;  ///< The file, relative to the model's folder.
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length = {};  ///< If it is missing, up to the end of the file.
};

Result<std::uint64_t> number_of(const Place& place, std::string_view key, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}': the {} '{}' of its external data is not a number", place.name, key, text));
  }
  return value;
}

/// Returns the place of an external tensor; nothing if its data are in the model.
Result<std::optional<Place>> place_of(const std::vector<Field>& tensor) {
  Place place;
  bool external = false;
  for (const Field& field : tensor) {
    place.name = field.number == kName ? std::string(field.content) : place.name;
    external = external || (field.number == kLocation && field.value == 1);
  }
  if (!external) {
    return std::nullopt;
  }
  for (const Field& field : tensor) {
    const auto entry = field.number == kExternal ? fields_of(field.content) : std::nullopt;
    std::string_view key;
    std::string_view value;
    for (const Field& part : entry.value_or(std::vector<Field>{})) {
      (part.number == 1 ? key : value) = part.content;
    }
    if (key == "location") {
      place.location = value;
    } else if (key == "offset") {
      POPRUN_ASSIGN(place.offset, number_of(place, key, value));
    } else if (key == "length") {
      POPRUN_ASSIGN(place.length, number_of(place, key, value));
    }
  }
  return place;
}

/// Copies a model and puts the data of its tensors into it.
class Inlining {
 public:
  Inlining(const std::string& path, std::uint64_t most)
      : folder_(std::filesystem::path(path).parent_path()), most_(most) {
    folder_ = folder_.empty() ? "." : folder_;
  }

  /// Returns the size of a message with its tensors' data. `changed` becomes true if it differs from the original.
  Result<std::uint64_t> size_of(Message message, std::string_view bytes, bool& changed, int depth = 0) {
    const auto fields = depth > kMostDepth ? std::nullopt : fields_of(bytes);
    if (!fields) {
      return bytes.size();  // The parser of ONNX models reports what is wrong.
    }
    if (message == Message::kTensor) {
      POPRUN_ASSIGN(const auto place, place_of(*fields));
      if (!place) {
        return bytes.size();
      }
      changed = true;
      POPRUN_ASSIGN(const std::uint64_t length, length_of(*place));
      std::uint64_t size = 1 + varint_size(length) + length;
      for (const Field& field : *fields) {
        size += stays(field) ? field.whole.size() : 0;
      }
      return size;
    }
    std::uint64_t size = 0;
    for (const Field& field : *fields) {
      const Message inner = content(message, field.number);
      bool differs = false;
      std::uint64_t inside = 0;
      if (field.nested && inner != Message::kOther) {
        POPRUN_ASSIGN(inside, size_of(inner, field.content, differs, depth + 1));
      }
      changed = changed || differs;
      size += differs ? varint_size(field.number << 3U) + varint_size(inside) + inside : field.whole.size();
      if (size > most_) {
        return fail(ErrorCode::kData,
                    fmt::format("with the data of its tensors in other files, it is larger than {} B", grouped(most_)));
      }
    }
    return size;
  }

  Status write(Message message, std::string_view bytes, std::string& to, int depth = 0) {
    const auto fields = depth > kMostDepth ? std::nullopt : fields_of(bytes);
    if (!fields) {
      to += bytes;
      return {};
    }
    if (message == Message::kTensor) {
      return write_tensor(*fields, to);
    }
    for (const Field& field : *fields) {
      const Message inner = content(message, field.number);
      bool differs = false;
      std::uint64_t inside = 0;
      if (field.nested && inner != Message::kOther) {
        POPRUN_ASSIGN(inside, size_of(inner, field.content, differs, depth + 1));
      }
      if (!differs) {
        to += field.whole;
        continue;
      }
      append_varint(field.number << 3U | 2U, to);
      append_varint(inside, to);
      POPRUN_TRY(write(inner, field.content, to, depth + 1));
    }
    return {};
  }

 private:
  static bool stays(const Field& field) {
    return field.number != kRaw && field.number != kExternal && field.number != kLocation;
  }

  [[nodiscard]] static tl::unexpected<Error> bad(const Place& place, const std::string& why) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}': its data are in the file '{}', {}", place.name, place.location, why));
  }

  /// Returns the file of a place after checking that it lies in the model's folder.
  [[nodiscard]] Result<std::filesystem::path> file_of(const Place& place) const {
    std::error_code none;
    const std::filesystem::path given(place.location);
    const auto root = std::filesystem::weakly_canonical(folder_, none);
    const auto file = std::filesystem::weakly_canonical(folder_ / given, none);
    const auto relative = file.lexically_relative(root);
    if (place.location.empty() || given.is_absolute() || relative.empty() || *relative.begin() == "..") {
      return bad(place, "which is not in the folder of the model; move it there");
    }
    if (!std::filesystem::is_regular_file(file, none)) {
      return bad(place, fmt::format("which is missing in {}; copy it there together with the model", folder_.string()));
    }
    return file;
  }

  Result<std::uint64_t> length_of(const Place& place) {
    POPRUN_ASSIGN(const std::filesystem::path file, file_of(place));
    std::error_code none;
    const std::uint64_t size = std::filesystem::file_size(file, none);
    const std::uint64_t length = place.length.value_or(size - std::min(size, place.offset));
    if (none || place.offset > size || length > size - place.offset) {
      return bad(place, fmt::format("which has {} B, but they are {} B from byte {} on", grouped(size),
                                    grouped(place.length.value_or(0)), grouped(place.offset)));
    }
    return length;
  }

  Status write_tensor(const std::vector<Field>& fields, std::string& to) {
    POPRUN_ASSIGN(const auto place, place_of(fields));
    for (const Field& field : fields) {
      if (!place || stays(field)) {
        to += field.whole;
      }
    }
    if (!place) {
      return {};
    }
    POPRUN_ASSIGN(const std::uint64_t length, length_of(*place));
    append_varint(kRaw << 3U | 2U, to);
    append_varint(length, to);
    POPRUN_ASSIGN(const std::filesystem::path path, file_of(*place));
    if (path != opened_) {
      stream_ = std::ifstream(path, std::ios::binary);
      opened_ = path;
    }
    const std::size_t begin = to.size();
    to.resize(begin + length);
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(place->offset));
    if (!stream_.read(to.data() + begin, static_cast<std::streamsize>(length))) {
      return bad(*place, "which cannot be read");
    }
    return {};
  }

  std::filesystem::path folder_;
  std::uint64_t most_;
  std::filesystem::path opened_;  ///< The file that `stream_` reads.
  std::ifstream stream_;
};

}  // namespace

Result<std::string> with_external_data(std::string bytes, const std::string& path, std::uint64_t most) {
  Inlining inlining(path, most);
  bool changed = false;
  POPRUN_ASSIGN(const std::uint64_t size, inlining.size_of(Message::kModel, bytes, changed));
  if (!changed) {
    return bytes;
  }
  std::string all;
  all.reserve(size);
  POPRUN_TRY(inlining.write(Message::kModel, bytes, all));
  return all;
}

}  // namespace poprun
