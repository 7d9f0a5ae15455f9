#include "launcher/outputs/onnx_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <onnx/onnx_pb.h>

#include "launcher/outputs/read_file.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kPlaceholder = "#weights";  ///< In place of data that stay in their file.
constexpr std::uint64_t kLeftBytesMin = 32;            ///< More than four reals of any type.

/// Adds all tensors whose data are in other files, in the message and the messages within it.
void find_external(google::protobuf::Message& message, std::vector<onnx::TensorProto*>& found) {
  if (auto* tensor = dynamic_cast<onnx::TensorProto*>(&message)) {
    if (tensor->data_location() == onnx::TensorProto::EXTERNAL) {
      found.push_back(tensor);
    }
    return;
  }
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    if (!field->is_repeated()) {
      find_external(*reflection.MutableMessage(&message, field), found);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      find_external(*reflection.MutableRepeatedMessage(&message, field, i), found);
    }
  }
}

/// Where the data of a tensor are.
struct Place {
  onnx::TensorProto* tensor = nullptr;
  std::filesystem::path file{};
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

Result<std::uint64_t> number_of(const onnx::TensorProto& tensor, std::string_view key, std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}': the {} '{}' of its external data is not a number", tensor.name(), key, text));
  }
  return *value;
}

tl::unexpected<Error> bad(const onnx::TensorProto& tensor, const std::string& location, const std::string& why) {
  return fail(ErrorCode::kData,
              fmt::format("tensor '{}': its data are in the file '{}', {}", tensor.name(), location, why));
}

/// Returns the place of an external tensor after checking that it is in `folder` and that the file is long enough.
Result<Place> place_of(onnx::TensorProto& tensor, const std::filesystem::path& folder) {
  Place place{.tensor = &tensor};
  std::string location;
  std::optional<std::uint64_t> length;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      location = entry.value();
    } else if (entry.key() == "offset") {
      POPRUN_ASSIGN(place.offset, number_of(tensor, entry.key(), entry.value()));
    } else if (entry.key() == "length") {
      POPRUN_ASSIGN(length, number_of(tensor, entry.key(), entry.value()));
    }
  }
  std::error_code none;
  const auto root = std::filesystem::weakly_canonical(folder, none);
  place.file = std::filesystem::weakly_canonical(folder / location, none);
  const auto relative = place.file.lexically_relative(root);
  if (location.empty() || std::filesystem::path(location).is_absolute() || relative.empty() ||
      *relative.begin() == "..") {
    return bad(tensor, location, "which is not in the folder of the model; move it there");
  }
  if (!std::filesystem::is_regular_file(place.file, none)) {
    return bad(tensor, location,
               fmt::format("which is missing in {}; copy it there together with the model", folder.string()));
  }
  const std::uint64_t size = std::filesystem::file_size(place.file, none);
  place.length = length.value_or(size - std::min(size, place.offset));
  if (none || place.offset > size || place.length > size - place.offset) {
    return bad(tensor, location,
               fmt::format("which has {} B, but the tensor needs {} B from byte {} on", grouped(size),
                           grouped(length.value_or(0)), grouped(place.offset)));
  }
  return place;
}

/// Returns the safetensors dtype of a tensor of real numbers, or "".
std::string dtype_of_reals(const onnx::TensorProto& tensor) {
  switch (tensor.data_type()) {
    case onnx::TensorProto::FLOAT:
      return "F32";
    case onnx::TensorProto::FLOAT16:
      return "F16";
    case onnx::TensorProto::BFLOAT16:
      return "BF16";
    case onnx::TensorProto::DOUBLE:
      return "F64";
    default:
      return "";
  }
}

/// Reads the data at `place` into its tensor.
Status read_into_tensor(const Place& place) {
  std::ifstream file(place.file, std::ios::binary);
  std::string& data = *place.tensor->mutable_raw_data();
  data.resize(place.length);
  file.seekg(static_cast<std::streamoff>(place.offset));
  if (!file.read(data.data(), static_cast<std::streamsize>(place.length))) {
    return bad(*place.tensor, place.file.filename().string(), "which cannot be read");
  }
  place.tensor->clear_external_data();
  place.tensor->clear_data_location();
  return {};
}

/// Puts the placeholder into the tensor, and returns where its data are.
Result<StoredTensor> leave_in_file(const Place& place) {
  onnx::TensorProto& tensor = *place.tensor;
  StoredTensor stored{.name = tensor.name(),
                      .dtype = dtype_of_reals(tensor),
                      .shape = {tensor.dims().begin(), tensor.dims().end()},
                      .path = place.file.string(),
                      .offset = place.offset,
                      .bytes = place.length};
  if (tensor_bytes(stored.dtype, stored.shape) != stored.bytes) {
    return bad(tensor, place.file.filename().string(),
               fmt::format("which has {} B for it, but its shape is [{}] and its type {}", grouped(stored.bytes),
                           fmt::join(stored.shape, ","), stored.dtype));
  }
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.set_raw_data(std::string{kPlaceholder});
  return stored;
}

/// Replaces `file.bytes`, whose model is in `folder`.
Status add_external_data(OnnxFile& file, const std::filesystem::path& folder, std::uint64_t most) {
  onnx::ModelProto model;
  std::vector<onnx::TensorProto*> tensors;
  if (model.ParseFromString(file.bytes)) {
    find_external(model, tensors);
  }
  if (tensors.empty()) {
    return {};  // If this is not a model, replica 0 reports what is wrong.
  }
  std::vector<Place> places;
  std::uint64_t total = file.bytes.size();
  for (onnx::TensorProto* tensor : tensors) {
    POPRUN_ASSIGN(Place place, place_of(*tensor, folder));
    total += std::min(place.length, std::numeric_limits<std::uint64_t>::max() - total);
    places.push_back(std::move(place));
  }
  std::set<const onnx::TensorProto*> initialisers;
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    initialisers.insert(&tensor);
  }
  const bool is_large = total > most;
  std::ranges::stable_sort(places, std::ranges::greater{}, &Place::length);
  const auto read = std::ranges::stable_partition(places, [&](const Place& place) {
    const bool stays_in_file = is_large && total > most / 8 && place.length > kLeftBytesMin &&
                               initialisers.contains(place.tensor) && !dtype_of_reals(*place.tensor).empty();
    total -= stays_in_file ? place.length : 0;
    return stays_in_file;
  });
  if (total > most) {
    return fail(ErrorCode::kData, fmt::format("without its weights, the model has {} B, but at most {} B are supported",
                                              grouped(total), grouped(most)));
  }
  file.bytes = {};
  for (const Place& place : std::ranges::subrange(places.begin(), read.begin())) {
    POPRUN_ASSIGN(StoredTensor stored, leave_in_file(place));
    file.weights.push_back(std::move(stored));
  }
  for (const Place& place : read) {
    POPRUN_TRY(read_into_tensor(place));
  }
  file.bytes = model.SerializeAsString();
  return {};
}

}  // namespace

Result<OnnxFile> read_onnx_file(const std::string& path, std::uint64_t most) {
  const auto bad_file = [&](const std::string& why) {
    return fail(ErrorCode::kData, fmt::format("model.onnx {}: {}", path, why));
  };
  const std::string remedy =
      fmt::format("an ONNX file can have at most {} B; export the weights to a file of their own", grouped(most));
  if (const auto size = size_of_file(path); size > most) {
    return bad_file(fmt::format("the file has {} B, but {}", grouped(*size), remedy));
  }
  Result<std::string> bytes = read_file(path, most + 1);
  if (!bytes) {
    return fail(ErrorCode::kData, fmt::format("model.onnx {}", bytes.error().message));
  }
  if (bytes->empty()) {
    return bad_file("it is empty");
  }
  if (bytes->size() > most) {
    return bad_file("the file is too large: " + remedy);
  }
  OnnxFile file{.name = path, .bytes = *std::move(bytes), .weights = {}};
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (const Status added = add_external_data(file, folder.empty() ? "." : folder, most); !added) {
    return bad_file(added.error().message);
  }
  return file;
}

}  // namespace poprun::launcher
