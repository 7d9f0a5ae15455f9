#include "launcher/outputs/safetensors.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/read_file.h"
#include "replica/base/host_limits.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // The format's own limit.
constexpr int kDepthMax = 8;                            // The format needs 3.

constexpr std::array<std::pair<std::string_view, std::size_t>, 14> kTypes = {{{"F64", 8},
                                                                              {"F32", 4},
                                                                              {"F16", 2},
                                                                              {"BF16", 2},
                                                                              {"I64", 8},
                                                                              {"I32", 4},
                                                                              {"I16", 2},
                                                                              {"I8", 1},
                                                                              {"U64", 8},
                                                                              {"U32", 4},
                                                                              {"U16", 2},
                                                                              {"U8", 1},
                                                                              {"BOOL", 1},
                                                                              {"F8_E4M3", 1}}};

/// Returns a * b, or nothing if it overflows.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

std::optional<std::uint64_t> element_bytes(std::string_view dtype) {
  const auto type = std::ranges::find(kTypes, dtype, &std::pair<std::string_view, std::size_t>::first);
  return type == kTypes.end() ? std::nullopt : std::optional<std::uint64_t>(type->second);
}

/// Returns the list of non-negative integers at `key`, or nothing if there is no such list.
std::optional<std::vector<std::int64_t>> integers(const Json& object, const char* key) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) {
    return std::nullopt;
  }
  std::vector<std::int64_t> values;
  for (const Json& value : *list) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

/// Parses the header as JSON. Throws no exceptions, and rejects JSON that is nested too deeply for this format.
Result<Json> parse_header(std::string_view text) {
  std::vector<std::string> names;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) {
      names.push_back(value.get<std::string>());
    }
    return depth <= kDepthMax;
  };
  Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return fail(ErrorCode::kData, "its header is not a JSON object");
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}' is listed twice", *twice));
  }
  return header;
}

Result<TensorEntry> parse_entry(const std::string& name, const Json& object, std::uint64_t data_bytes) {
  if (!object.is_object()) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}' is not described by a JSON object", name));
  }
  const auto dtype = object.find("dtype");
  const bool known = dtype != object.end() && dtype->is_string() && element_bytes(dtype->get<std::string>());
  if (!known) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}' has a missing or unknown dtype", name));
  }
  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype->get<std::string>();
  const auto shape = integers(object, "shape");
  const auto offsets = integers(object, "data_offsets");
  if (!shape || !offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return fail(ErrorCode::kData, fmt::format("tensor '{}' needs a shape and data_offsets [begin, end]", name));
  }
  entry.shape = *shape;
  entry.begin = static_cast<std::uint64_t>((*offsets)[0]);
  entry.end = static_cast<std::uint64_t>((*offsets)[1]);
  if (entry.end > data_bytes) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}' ends at byte {} of the data, which has only {} B; is the file truncated?",
                            name, entry.end, data_bytes));
  }
  const std::optional<std::uint64_t> needed = tensor_bytes(entry.dtype, *shape);
  if (!needed || *needed != entry.end - entry.begin) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}' of {} [{}] needs {} B, but its data_offsets span {} B", name, entry.dtype,
                            fmt::join(*shape, ", "), needed ? std::to_string(*needed) : "more than 2^64",
                            entry.end - entry.begin));
  }
  return entry;
}

/// Sorts the entries in the order of their data, and checks that they fill the data without gaps.
Status sort_and_check_cover(std::vector<TensorEntry>& entries, std::uint64_t data_bytes) {
  std::ranges::stable_sort(entries, [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != covered) {
      return fail(ErrorCode::kData,
                  fmt::format("tensor '{}' begins at byte {} of the data, {} byte {}", entry.name, entry.begin,
                              entry.begin < covered ? "overlapping the tensor up to" : "leaving a gap from", covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return fail(ErrorCode::kData, fmt::format("{} B of data belong to no tensor", data_bytes - covered));
  }
  return {};
}

/// Recognises weights files in other formats and returns advice on them, or "" for any other bytes. Requires: `begin`
/// is not a valid header length, since the first bytes of a valid length could also be those of a pickle.
std::string_view other_format(std::string_view begin) {
  if (begin.starts_with("PK\x03\x04")) {
    return "it is a zip archive, as PyTorch's .bin, .pt and .pth files are; save the weights with "
           "safetensors.torch.save_file(model.state_dict(), FILE)";
  }
  if (begin.starts_with("\x80\x02") || begin.starts_with("\x80\x04")) {
    return "it is a pickle, as PyTorch's older .bin and .pt files are; save the weights with "
           "safetensors.torch.save_file(model.state_dict(), FILE)";
  }
  if (begin.starts_with("\x89HDF")) {
    return "it is an HDF5 file, as Keras writes; save the weights as safetensors";
  }
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && begin[first] == '{') {
    return "it is JSON; if it is an index of weights in several files, rename it to end in .json";
  }
  return "";
}

Result<std::uint64_t> header_length(std::string_view begin, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || begin.size() < kLengthBytes) {
    return fail(ErrorCode::kData,
                fmt::format("the file has {} B, but a safetensors file has at least {} B", file_bytes, kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(begin[i])} << (8 * i);
  }
  if (length > file_bytes - kLengthBytes || length > kHeaderBytesMax) {
    if (const std::string_view other = other_format(begin); !other.empty()) {
      return fail(ErrorCode::kData, std::string(other));
    }
    return fail(ErrorCode::kData, fmt::format("the header should have {} B, but only {} B follow; is the file "
                                              "truncated, or not a safetensors file at all?",
                                              length, file_bytes - kLengthBytes));
  }
  return length;
}

/// Returns the tensors that the header lists, after checking that they fill the data without gaps.
Result<std::vector<TensorEntry>> parse_entries(std::string_view text, std::uint64_t data_bytes) {
  POPRUN_ASSIGN(const Json header, parse_header(text));
  std::vector<TensorEntry> entries;
  for (const auto& [name, object] : header.items()) {
    if (name != "__metadata__") {
      POPRUN_ASSIGN(TensorEntry entry, parse_entry(name, object, data_bytes));
      entries.push_back(std::move(entry));
    }
  }
  POPRUN_TRY(sort_and_check_cover(entries, data_bytes));
  return entries;
}

Result<std::vector<Tensor>> parse(std::string_view bytes) {
  POPRUN_ASSIGN(const std::uint64_t length, header_length(bytes, bytes.size()));
  const std::string_view data = bytes.substr(kLengthBytes + length);
  POPRUN_ASSIGN(std::vector<TensorEntry> entries, parse_entries(bytes.substr(kLengthBytes, length), data.size()));
  std::vector<Tensor> tensors;
  for (TensorEntry& entry : entries) {
    tensors.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape),
                       std::string(data.substr(entry.begin, entry.end - entry.begin))});
  }
  return tensors;
}

Result<TensorList> list_file(const std::string& path, std::uint64_t file_bytes) {
  POPRUN_ASSIGN(const std::string begin, read_file(path, kLengthBytes));
  POPRUN_ASSIGN(const std::uint64_t length, header_length(begin, file_bytes));
  POPRUN_ASSIGN(const std::string header, read_file(path, kLengthBytes + length));
  TensorList list{.entries = {}, .data_begin = kLengthBytes + length};
  POPRUN_ASSIGN(list.entries, parse_entries(std::string_view(header).substr(std::min(kLengthBytes, header.size())),
                                            file_bytes - list.data_begin));
  return list;
}

Status check_header(const std::string& path, std::uint64_t file_bytes) {
  POPRUN_TRY(list_file(path, file_bytes));
  const auto memory = free_memory();
  // Memory must hold both the bytes of the file and the tensors that are made from them.
  if (memory && file_bytes > static_cast<std::uint64_t>(memory->bytes.count()) / 2) {
    return fail(ErrorCode::kHostResources,
                fmt::format("reading it needs {} of memory, twice its size, but only {} is free ({}); use a "
                            "smaller file or a host with more memory",
                            mebibytes_text(2 * file_bytes),
                            mebibytes_text(static_cast<std::uint64_t>(memory->bytes.count())), memory->source));
  }
  return {};
}

/// Returns a header with `json` before the entries.
std::string header_of(Json json, std::span<const TensorEntry> entries) {
  for (const TensorEntry& entry : entries) {
    json[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string header;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header += static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  }
  return header + text;
}

/// Appends the entry of a tensor whose data begin at `offset` or, for a stack of Mixtral's experts, an entry for each
/// expert, as in Hugging Face's files: their data follow each other in the stack.
void add_entries(const Tensor& tensor, std::uint64_t offset, std::vector<TensorEntry>& entries) {
  constexpr std::string_view kExperts = ".block_sparse_moe.experts.";
  constexpr std::array<std::string_view, 3> kWeights = {"w1.weight", "w2.weight", "w3.weight"};
  const std::size_t at = tensor.name.find(kExperts);
  const bool is_stack = at != std::string::npos && tensor.shape.size() == 3 && tensor.shape[0] > 0 &&
                        std::ranges::count(kWeights, std::string_view(tensor.name).substr(at + kExperts.size())) > 0;
  if (!is_stack) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, offset, offset + tensor.data.size()});
    return;
  }
  const std::size_t number = at + kExperts.size();
  const auto experts = static_cast<std::uint64_t>(tensor.shape[0]);
  const std::uint64_t bytes = tensor.data.size() / experts;
  for (std::uint64_t expert = 0; expert < experts; ++expert) {
    const std::uint64_t begin = offset + expert * bytes;
    entries.push_back({fmt::format("{}{}.{}", tensor.name.substr(0, number), expert, tensor.name.substr(number)),
                       tensor.dtype,
                       {tensor.shape.begin() + 1, tensor.shape.end()},
                       begin,
                       begin + bytes});
  }
}

}  // namespace

std::string element_type(std::string_view dtype) {
  std::string text(dtype);
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

std::string dtype_of(std::string_view element_type) {
  std::string text(element_type);
  for (char& c : text) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

std::optional<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::int64_t> shape) {
  std::optional<std::uint64_t> bytes = element_bytes(dtype);
  for (const std::int64_t size : shape) {
    bytes = bytes && size >= 0 ? product(*bytes, static_cast<std::uint64_t>(size)) : std::nullopt;
  }
  return bytes;
}

std::string safetensors_header(std::span<const Tensor> tensors) {
  std::vector<TensorEntry> entries;
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    POPRUN_CHECK(tensor_bytes(tensor.dtype, tensor.shape) == tensor.data.size());
    add_entries(tensor, offset, entries);
    offset += tensor.data.size();
  }
  return header_of({{"__metadata__", {{"format", "pt"}}}}, entries);
}

std::string safetensors_header(std::span<const TensorEntry> entries) {
  return header_of(Json::object(), entries);
}

Result<std::vector<Tensor>> parse_safetensors(std::string_view file, std::string_view bytes) {
  Result<std::vector<Tensor>> tensors = parse(bytes);
  if (!tensors) {
    return fail(ErrorCode::kData, fmt::format("{}: {}", file, tensors.error().message));
  }
  return tensors;
}

Result<std::vector<Tensor>> read_safetensors(const std::string& path) {
  if (const auto size = size_of_file(path)) {
    if (const Status checked = check_header(path, *size); !checked) {
      return fail(checked.error().code, fmt::format("{}: {}", path, checked.error().message));
    }
  }
  POPRUN_ASSIGN(const std::string bytes, read_file(path, std::numeric_limits<std::uint64_t>::max()));
  return parse_safetensors(path, bytes);
}

Result<TensorList> list_safetensors(const std::string& path) {
  const std::optional<std::uint64_t> size = size_of_file(path);
  Result<TensorList> list =
      size ? list_file(path, *size)
           : Result<TensorList>(fail(ErrorCode::kData, "the file is missing, or not a regular file"));
  if (!list) {
    return fail(list.error().code, fmt::format("{}: {}", path, list.error().message));
  }
  return list;
}

}  // namespace poprun::launcher
