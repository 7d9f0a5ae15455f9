#include "launcher/outputs/weights_files.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/read_file.h"
#include "replica/base/host_limits.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::uint64_t kIndexBytesMax = 100'000'000;  // The same limit as for the header of a .safetensors file.

/// The names of the tensors in each file.
using Index = std::map<std::string, std::set<std::string>>;

Result<Index> read_index(const std::string& path) {
  POPRUN_ASSIGN(const std::string text, read_file(path, kIndexBytesMax));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object()) {
    return fail(ErrorCode::kData, fmt::format("{}: an index of weights must be a JSON object with a weight_map", path));
  }
  Index index;
  for (const auto& [name, file] : json.at("weight_map").items()) {
    const std::string in = file.is_string() ? file.get<std::string>() : "";
    if (in.empty() || in.find('/') != std::string::npos || in == "." || in == "..") {
      return fail(ErrorCode::kData,
                  fmt::format("{}: the file of tensor '{}' must be the name of a file in the same folder", path, name));
    }
    index[in].insert(name);
  }
  return index;
}

/// Checks that memory can hold the tensors and, besides, the bytes of the largest file.
Status check_room(const std::string& path, const std::string& folder, const Index& index) {
  std::uint64_t all = 0;
  std::uint64_t largest = 0;
  for (const auto& [file, names] : index) {
    const std::uint64_t bytes = size_of_file(folder + file).value_or(0);
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const auto memory = free_memory();
  if (memory && all + largest > static_cast<std::uint64_t>(memory->bytes.count())) {
    return fail(ErrorCode::kHostResources,
                fmt::format("{}: reading its files needs {} of memory, but only {} is free ({}); use smaller files or "
                            "a host with more memory",
                            path, mebibytes_text(all + largest),
                            mebibytes_text(static_cast<std::uint64_t>(memory->bytes.count())), memory->source));
  }
  return {};
}

}  // namespace

Result<std::vector<Tensor>> read_weights(const std::string& path) {
  if (!path.ends_with(".json")) {
    return read_safetensors(path);
  }
  POPRUN_ASSIGN(const Index index, read_index(path));
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // "" if the path has no slash.
  POPRUN_TRY(check_room(path, folder, index));
  std::vector<Tensor> all;
  for (const auto& [file, names] : index) {
    POPRUN_ASSIGN(std::vector<Tensor> tensors, read_safetensors(folder + file));
    std::set<std::string> found;
    for (const Tensor& tensor : tensors) {
      if (!names.contains(tensor.name)) {
        return fail(ErrorCode::kData, fmt::format("{}: {} has the tensor '{}', which the index does not list there",
                                                  path, file, tensor.name));
      }
      found.insert(tensor.name);
    }
    for (const std::string& name : names) {
      if (!found.contains(name)) {
        return fail(ErrorCode::kData, fmt::format("{}: {} lacks the tensor '{}' of the index", path, file, name));
      }
    }
    std::ranges::move(tensors, std::back_inserter(all));
  }
  return all;
}

}  // namespace poprun::launcher
