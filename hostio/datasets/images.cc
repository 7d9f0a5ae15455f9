#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/encoded_images.h"
#include "hostio/datasets/source.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

/// "images:DIR": JPEG and PNG images in one folder per class.
///
///   DIR/train/CLASS/*, DIR/test/CLASS/* or DIR/val/CLASS/*
///   DIR/CLASS/*    of which the last images of each class are the test part (data.test-fraction; default: 5 %)
///
/// Classes are numbered in the order of their names, and the images of a class are in the order of theirs.
namespace poprun::hostio::families {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kImagesPrefix = "images:";

bool is_image(const fs::path& file) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// Returns the names in a folder in ascending order, without hidden ones. Errors: kData.
Result<std::vector<std::string>> names_in(const fs::path& folder, bool folders, const FileScope& scope) {
  POPRUN_TRY(scope.admits(folder));
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed); !failed && at != fs::directory_iterator(); at.increment(failed)) {
    std::error_code ignored;
    std::string name = at->path().filename().string();
    if (!name.starts_with('.') && at->is_directory(ignored) == folders) {
      names.push_back(std::move(name));
    }
  }
  if (failed) {
    return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", folder.string(), failed.message()));
  }
  std::ranges::sort(names);
  return names;
}

/// Lists the images of one part. `ignored` receives the endings of other files.
Status list_part(const fs::path& folder, const FileScope& scope, ClassNumbers& numbers, EncodedImages& images,
                 std::vector<EncodedImage>& part, std::set<std::string>& ignored) {
  POPRUN_ASSIGN(const auto classes, names_in(folder, /*folders=*/true, scope));
  if (classes.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected one folder per class, with .jpg or .png images, found no "
                                              "folders",
                                              folder.string()));
  }
  for (const std::string& name : classes) {
    POPRUN_ASSIGN(const auto files, names_in(folder / name, /*folders=*/false, scope));
    const std::size_t had = part.size();
    for (const std::string& file : files) {
      if (!is_image(file)) {
        ignored.insert(fs::path(file).extension().string());
        continue;
      }
      part.push_back({.file = static_cast<std::uint32_t>(images.files.size()), .label = numbers.add(name)});
      images.files.push_back((folder / name / file).string());
    }
    if (part.size() == had) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: the folder of a class contains no .jpg or .png images; add some or "
                              "remove the folder",
                              (folder / name).string()));
    }
    scope.advance(files.size());
  }
  return {};
}

/// Moves the last images of each class to the test part.
void split(double fraction, EncodedImages& images) {
  std::vector<EncodedImage> train;
  for (auto at = images.train.begin(); at != images.train.end();) {
    const auto end = std::find_if(at, images.train.end(), [&](const EncodedImage& i) { return i.label != at->label; });
    const auto items = static_cast<std::uint64_t>(end - at);
    const auto first_test = end - static_cast<std::ptrdiff_t>(test_items_of(items, fraction));
    train.insert(train.end(), at, first_test);
    images.test.insert(images.test.end(), first_test, end);
    at = end;
  }
  images.train = std::move(train);
}

/// Returns the folder of the test part, if it exists and contains folders: ImageNet's `test` contains no classes.
Result<fs::path> test_folder(const fs::path& folder, const FileScope& scope) {
  for (const char* name : {"test", "val", "validation"}) {
    std::error_code ignored;
    if (fs::is_directory(folder / name, ignored)) {
      POPRUN_ASSIGN(const auto classes, names_in(folder / name, /*folders=*/true, scope));
      if (!classes.empty()) {
        return folder / name;
      }
    }
  }
  return fs::path{};
}

Result<EncodedImages> list_images(const Source& source) {
  const fs::path folder = source.text.substr(kImagesPrefix.size());
  EncodedImages images;
  ClassNumbers numbers(/*names_only=*/true);
  std::set<std::string> ignored;
  POPRUN_TRY(source.scope.admits(folder));
  POPRUN_ASSIGN(const double fraction, test_fraction(source));
  std::error_code missing;
  if (!fs::is_directory(folder / "train", missing)) {
    POPRUN_TRY(list_part(folder, source.scope, numbers, images, images.train, ignored));
    split(fraction, images);
    if (!source.parameters.contains("test-fraction")) {
      images.notes.push_back(
          fmt::format("{}: the test part is the last {} of {} images, from each class; set "
                      "data.test-fraction to change this",
                      source.text, grouped(images.test.size()), grouped(images.files.size())));
    }
  } else if (source.parameters.contains("test-fraction")) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.test-fraction has no effect, because {} has a folder `train`; remove "
                            "this key",
                            source.text));
  } else {
    POPRUN_TRY(list_part(folder / "train", source.scope, numbers, images, images.train, ignored));
    POPRUN_ASSIGN(const fs::path test, test_folder(folder, source.scope));
    if (!test.empty()) {
      POPRUN_TRY(list_part(test, source.scope, numbers, images, images.test, ignored));
      images.notes.push_back(fmt::format("{}: the test part is the folder {}", source.text, test.filename().string()));
    }
  }
  if (!ignored.empty()) {
    images.notes.push_back(fmt::format("{}: files that end in {} are not read", source.text,
                                       printable(fmt::format("{}", fmt::join(ignored, ", ")))));
  }
  POPRUN_TRY(numbers.finish(images, source));
  return images;
}

}  // namespace

const DatasetFamily& images() {
  static constexpr DatasetFamily kFamily = {
      .form = "images:DIR",
      .parameters = kEncodedImageParameters,
      .stored = kStoredEncodedImageParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kImagesPrefix); },
      .describe = [](const Source& source) { return describe_encoded_images(list_images(source), source); },
      .read = [](const Source& source) { return read_encoded_images(list_images(source), source); },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
