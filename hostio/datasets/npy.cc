#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "hostio/datasets/array_dataset.h"
#include "hostio/datasets/dataset.h"
#include "hostio/formats/open_file.h"
#include "hostio/formats/zip.h"

/// Arrays as saved by NumPy; array_dataset.h explains the meaning of their names.
///
///   npz:FILE                     an archive written by np.savez or np.savez_compressed
///   npy:DIR                      all .npy files of a folder, each named after its array
///   npy:NAME=FILE,...            single files; without NAME=, an array is named after its file
namespace poprun::hostio::families {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles = "npy:";
constexpr std::string_view kArchive = "npz:";
constexpr std::string_view kSuffix = ".npy";

using Arrays = std::vector<ArrayFile>;

Status add_file(const std::string& name, const fs::path& file, const FileScope& scope, Arrays& arrays) {
  POPRUN_ASSIGN(const auto begin, read_bytes(file, scope, kNpyPrefix));
  const Result<NpyHeader> header = parse_npy_header(begin, file.string());
  const auto read = [file, scope, header](std::uint64_t from, std::uint64_t count) -> Result<std::vector<std::byte>> {
    POPRUN_ASSIGN(const OpenFile opened, OpenFile::open(file, scope));
    const std::uint64_t at = std::min(header->data_begin, opened.size());
    POPRUN_TRY(check_npy_size(*header, opened.size() - at, file.string()));
    return read_bytes(file, scope, count, at + from);
  };
  ArrayFile& array = arrays.emplace_back();
  array.name = name;
  array.place = file.string();
  array.header = header;
  array.data = [read, header](std::uint64_t most) { return read(0, std::min(most, header->bytes())); };
  if (header && !header->shape.empty() && !header->fortran_order) {
    array.items = [read, header](std::uint64_t first, std::uint64_t count) {
      const std::uint64_t item_bytes = header->bytes() / header->shape[0];
      return read(first * item_bytes, count * item_bytes);
    };
  }
  return {};
}

Result<Arrays> arrays_in_folder(const fs::path& folder, const FileScope& scope) {
  POPRUN_TRY(scope.admits(folder));
  std::vector<fs::path> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().extension() == kSuffix) {
      files.push_back(entry.path());
    }
  }
  if (failed || files.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected a folder with .npy files: {}", folder.string(),
                                              failed ? failed.message() : "it contains none"));
  }
  std::ranges::sort(files);
  Arrays arrays;
  for (const fs::path& file : files) {
    POPRUN_TRY(add_file(file.stem().string(), file, scope, arrays));
  }
  return arrays;
}

Result<Arrays> arrays_in_files(std::string_view list, const FileScope& scope) {
  Arrays arrays;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const std::size_t equals = entry.find('=');
    const bool named = equals != std::string_view::npos;
    const fs::path file = entry.substr(named ? equals + 1 : 0);
    POPRUN_TRY(add_file(named ? std::string{entry.substr(0, equals)} : file.stem().string(), file, scope, arrays));
  }
  return arrays;
}

/// Adds the array in an archive member. The array's own header bounds the inflated bytes.
Status add_member(const fs::path& file, const FileScope& scope, const ZipMember& member, Arrays& arrays) {
  const std::string place = fmt::format("{}: {}", file.string(), member.name);
  POPRUN_ASSIGN(const auto begin, read_member(file, scope, member, kNpyPrefix));
  const Result<NpyHeader> header = parse_npy_header(begin, place);
  arrays.push_back({.name = member.name.substr(0, member.name.size() - kSuffix.size()),
                    .place = place,
                    .header = header,
                    .data = [=](std::uint64_t most) -> Result<std::vector<std::byte>> {
                      const std::uint64_t at = std::min(header->data_begin, member.size);
                      POPRUN_TRY(check_npy_size(*header, member.size - at, place));
                      POPRUN_ASSIGN(std::vector<std::byte> bytes,
                                    read_member(file, scope, member, at + std::min(most, header->bytes())));
                      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
                      return bytes;
                    }});
  return {};
}

Result<Arrays> arrays_in_archive(const fs::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(const std::vector<ZipMember> members, zip_members(file, scope));
  Arrays arrays;
  for (const ZipMember& member : members) {
    if (member.name.ends_with(kSuffix)) {
      POPRUN_TRY(add_member(file, scope, member, arrays));
    }
  }
  return arrays;
}

Result<Arrays> arrays_of(const Source& source) {
  const std::string_view text = source.text;
  if (text.starts_with(kArchive)) {
    return arrays_in_archive(text.substr(kArchive.size()), source.scope);
  }
  const std::string_view place = text.substr(kFiles.size());
  std::error_code ignored;
  const bool files = place.find(kSuffix) != std::string_view::npos;
  return files && !fs::is_directory(place, ignored) ? arrays_in_files(place, source.scope)
                                                    : arrays_in_folder(place, source.scope);
}

}  // namespace

const DatasetFamily& npy() {
  static constexpr DatasetFamily kFamily = {
      .form = "npz:FILE, npy:DIR, npy:NAME=FILE,...",
      .parameters = kArrayParameters,
      .stored = kStoredArrayParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kFiles) || text.starts_with(kArchive); },
      .describe = [](const Source& source) -> Result<proto::Dataset> {
        POPRUN_ASSIGN(const Arrays arrays, arrays_of(source));
        return describe_arrays(arrays, source);
      },
      .read = [](const Source& source) -> Result<std::shared_ptr<const Stored>> {
        POPRUN_ASSIGN(const Arrays arrays, arrays_of(source));
        return read_arrays(arrays, source);
      },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
