#include "launcher/outputs/external_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

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
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kData,
                fmt::format("tensor '{}': the {} '{}' of its external data is not a number", tensor.name(), key, text));
  }
  return value;
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

}  // namespace

Result<std::string> with_external_data(std::string bytes, const std::string& path, std::uint64_t most) {
  onnx::ModelProto model;
  std::vector<onnx::TensorProto*> tensors;
  if (model.ParseFromString(bytes)) {
    find_external(model, tensors);
  }
  if (tensors.empty()) {
    return bytes;  // If this is not a model, replica 0 reports what is wrong.
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::vector<Place> places;
  std::uint64_t total = bytes.size();
  for (onnx::TensorProto* tensor : tensors) {
    POPRUN_ASSIGN(Place place, place_of(*tensor, parent.empty() ? "." : parent));
    if (total > most || place.length > most - total) {
      return fail(ErrorCode::kData,
                  fmt::format("the data that its tensors have in other files are too large; at most {} B "
                              "are supported, including the model",
                              grouped(most)));
    }
    total += place.length;
    places.push_back(std::move(place));
  }
  bytes = {};
  for (const Place& place : places) {
    std::ifstream file(place.file, std::ios::binary);
    std::string& data = *place.tensor->mutable_raw_data();
    data.resize(place.length);
    file.seekg(static_cast<std::streamoff>(place.offset));
    if (!file.read(data.data(), static_cast<std::streamsize>(place.length))) {
      return bad(*place.tensor, place.file.filename().string(), "which cannot be read");
    }
    place.tensor->clear_external_data();
    place.tensor->clear_data_location();
  }
  return model.SerializeAsString();
}

}  // namespace poprun::launcher
