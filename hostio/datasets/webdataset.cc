#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/encoded_images.h"
#include "hostio/datasets/source.h"
#include "hostio/formats/jsonl.h"
#include "hostio/formats/printable.h"
#include "hostio/formats/tar.h"
#include "replica/base/text.h"

/// "webdataset:FILE.tar" or "webdataset:TRAIN,test=TEST": tar archives of images, as the Python package webdataset
/// writes them. A name such as shard-{000..007}.tar stands for several archives. The neighbouring files of an archive
/// whose names agree up to the first dot are a sample: its image KEY.jpg or KEY.png, and its label, a number or a name
/// in KEY.cls; or in KEY.json, under "label" or "cls"; or in KEY.txt.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kWebPrefix = "webdataset:";
constexpr std::uint64_t kLabelBytesMax = 1 << 20;  ///< Limit on the size of a file that contains a label.
constexpr std::uint64_t kShardsMax = 1 << 16;

/// Replaces `{000..007}` by each number in turn; the numbers have as many digits as the first bound.
Result<std::vector<std::string>> expand(const std::string& pattern) {
  const std::size_t open = pattern.find('{');
  const std::size_t close = pattern.find('}', open);
  if (open == std::string::npos || close == std::string::npos) {
    return std::vector<std::string>{pattern};
  }
  const std::string_view range = std::string_view(pattern).substr(open + 1, close - open - 1);
  const std::size_t dots = range.find("..");
  const auto first = parse_number<std::uint64_t>(range.substr(0, dots));
  const std::string_view after = dots == std::string_view::npos ? std::string_view{} : range.substr(dots + 2);
  const auto last = parse_number<std::uint64_t>(after);
  if (!first || !last || *last < *first || *last - *first >= kShardsMax) {
    return fail(ErrorCode::kUsage, fmt::format("data.source: {{{}}} must have the form {{000..007}}, with at most {} "
                                               "numbers",
                                               range, grouped(kShardsMax)));
  }
  std::vector<std::string> files;
  for (std::uint64_t i = 0; i <= *last - *first; ++i) {
    files.push_back(fmt::format("{}{:0{}}{}", pattern.substr(0, open), *first + i, dots, pattern.substr(close + 1)));
  }
  return files;
}

/// The files of a sample found so far.
struct WebSample {
  std::string key;
  std::optional<EncodedImage> image;
  std::optional<std::string> label;
  int label_rank = 0;  ///< .cls comes before .json, and .json before .txt.
};

/// Returns the text without the white space around it.
std::string text_of(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text = trimmed(text);
  return std::string{text.substr(0, text.find_last_not_of(" \t\r\n") + 1)};
}

/// Returns the label in a JSON object; nothing if it has none. Errors: kData, without a place.
Result<std::optional<std::string>> json_label(std::vector<std::byte> bytes) {
  const std::size_t size = bytes.size();
  bytes.resize(size + kTextPadding);
  JsonParser parser;
  POPRUN_TRY(parser.parse({reinterpret_cast<const char*>(bytes.data()), size}));
  for (const char* key : {"label", "cls", "class"}) {
    const JsonField* field = parser.find(key);
    if (field != nullptr && field->kind == JsonField::Kind::kText) {
      return std::optional(std::string{field->text});
    }
    if (field != nullptr && field->kind == JsonField::Kind::kNumbers && field->shape.empty() && field->is_integers) {
      return std::optional(fmt::format("{:.0f}", field->numbers[0]));
    }
  }
  return std::optional<std::string>();
}

/// Reads an archive's samples.
class WebReader {
 public:
  WebReader(const FileScope& scope, ClassNumbers& numbers, EncodedImages& images)
      : scope_(scope), numbers_(numbers), images_(images) {}

  Status read(const std::string& archive, std::vector<EncodedImage>& part) {
    POPRUN_ASSIGN(TarReader tar, TarReader::open(archive, scope_));
    images_.files.push_back(archive);
    sample_ = {};
    TarEntry entry;
    const std::size_t had = part.size();
    while (true) {
      POPRUN_ASSIGN(const bool any, tar.next(entry));
      if (!any) {
        break;
      }
      POPRUN_TRY(add(tar, entry, part));
    }
    POPRUN_TRY(finish(part));
    if (part.size() == had) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: expected images with labels, KEY.jpg or KEY.png and KEY.cls, found "
                              "no files",
                              archive));
    }
    return {};
  }

 private:
  Status add(const TarReader& tar, const TarEntry& entry, std::vector<EncodedImage>& part) {
    const std::size_t begin = entry.name.rfind('/') + 1;  // 0 if the name has no folder.
    const std::size_t dot = entry.name.find('.', begin);
    std::string key = entry.name.substr(0, dot);
    if (dot == std::string::npos || dot == begin) {
      return {};  // Without an ending, or hidden, as macOS adds to archives.
    }
    if (key != sample_.key) {
      POPRUN_TRY(finish(part));
      sample_ = {.key = std::move(key), .image = {}, .label = {}};
    }
    std::string ending = entry.name.substr(dot + 1);
    std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (ending == "jpg" || ending == "jpeg" || ending == "png") {
      return add_image(entry);
    }
    const int rank = ending == "cls" ? 3 : ending == "json" ? 2 : ending == "txt" ? 1 : 0;
    return rank > sample_.label_rank ? add_label(tar, entry, rank) : Status();
  }

  Status add_image(const TarEntry& entry) {
    if (sample_.image || entry.size == 0) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: {}", place(), entry.size == 0 ? "the image is empty" : "the sample has two images"));
    }
    sample_.image = {
        .file = static_cast<std::uint32_t>(images_.files.size() - 1), .offset = entry.offset, .bytes = entry.size};
    return {};
  }

  Status add_label(const TarReader& tar, const TarEntry& entry, int rank) {
    if (entry.size > kLabelBytesMax) {
      return fail(ErrorCode::kData, fmt::format("{}: the file with the label has {}, but the limit is {}", place(),
                                                mebibytes_text(entry.size), mebibytes_text(kLabelBytesMax)));
    }
    std::vector<std::byte> bytes(entry.size);
    POPRUN_TRY(read_at(tar.file(), entry.offset, bytes, images_.files.back()));
    std::optional<std::string> label = text_of(bytes);
    if (rank == 2) {
      POPRUN_ASSIGN(label, json_label(std::move(bytes)).map_error([&](const Error& error) {
        return Error{error.code, fmt::format("{}: {}", place(), error.message)};
      }));
    }
    if (label && !label->empty()) {
      sample_.label = std::move(label);
      sample_.label_rank = rank;
    }
    return {};
  }

  /// Adds the sample to the part, unless no sample has begun. Errors: kData if it is incomplete.
  Status finish(std::vector<EncodedImage>& part) {
    if (sample_.key.empty()) {
      return {};
    }
    if (!sample_.image || !sample_.label) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: the sample has no {}; add it or remove the sample", place(),
                              sample_.image ? "label (.cls, .json or .txt)" : "image (.jpg or .png)"));
    }
    constexpr std::size_t kNameMax = 200;
    if (sample_.label->size() > kNameMax) {
      return fail(ErrorCode::kData, fmt::format("{}: the label '{}' is too long for the name of a class", place(),
                                                printable(*sample_.label)));
    }
    sample_.image->label = numbers_.add(*sample_.label);
    part.push_back(*sample_.image);
    return {};
  }

  [[nodiscard]] std::string place() const {
    return fmt::format("{}: sample '{}'", images_.files.back(), printable(sample_.key));
  }

  const FileScope& scope_;
  ClassNumbers& numbers_;
  EncodedImages& images_;
  WebSample sample_;
};

Result<EncodedImages> index_archives(const Source& source) {
  const SplitNames names = split_names(std::string_view(source.text).substr(kWebPrefix.size()));
  POPRUN_ASSIGN(const double fraction, test_fraction(source));
  if (names.test && source.parameters.contains("test-fraction")) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.test-fraction has no effect, because {} has a test part of its own; "
                            "remove this key",
                            source.text));
  }
  EncodedImages images;
  ClassNumbers numbers(/*names_only=*/false);
  WebReader reader(source.scope, numbers, images);
  POPRUN_ASSIGN(const auto train, expand(names.train));
  for (const std::string& archive : train) {
    POPRUN_TRY(reader.read(archive, images.train));
  }
  if (names.test) {
    POPRUN_ASSIGN(const auto test, expand(*names.test));
    for (const std::string& archive : test) {
      POPRUN_TRY(reader.read(archive, images.test));
    }
  } else {
    const std::uint64_t items = images.train.size();
    const std::uint64_t test_items = test_items_of(items, fraction);
    const auto first = images.train.end() - static_cast<std::ptrdiff_t>(test_items);
    images.test.assign(first, images.train.end());
    images.train.erase(first, images.train.end());
    if (!source.parameters.contains("test-fraction")) {
      images.notes.push_back(
          fmt::format("{}: the test part is the last {} of {} samples; set data.test-fraction to change "
                      "this",
                      source.text, grouped(test_items), grouped(items)));
    }
  }
  POPRUN_TRY(numbers.finish(images, source));
  return images;
}

}  // namespace

const DatasetFamily& webdataset() {
  static constexpr DatasetFamily kFamily = {
      .form = "webdataset:FILE.tar",
      .parameters = kEncodedImageParameters,
      .stored = kStoredEncodedImageParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kWebPrefix); },
      .describe = [](const Source& source) { return describe_encoded_images(index_archives(source), source); },
      .read = [](const Source& source) { return read_encoded_images(index_archives(source), source); },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
