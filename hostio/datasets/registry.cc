#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "hostio/datasets/augmentation.h"
#include "hostio/datasets/dataset.h"
#include "hostio/formats/content.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"

namespace poprun::hostio {

namespace families {
#define POPRUN_FAMILY(stem) const DatasetFamily& stem();
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
}  // namespace families

namespace {

/// Parameter of all families: "augment" (see augmentation.h).
constexpr const char* kAugment = "augment";

Status check_parameters(const DatasetFamily& family, const Source& source) {
  for (const auto& [key, value] : source.parameters) {
    if (key != kAugment && std::ranges::find(family.parameters, key) == family.parameters.end()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("data.{} = {} is not a parameter of source \"{}\"; remove it", key, value, source.text));
    }
  }
  return {};
}

/// Returns a digest of contents and description. Notes are left out, because they follow from both.
std::string fingerprint_of(const std::string& digest, proto::Dataset description) {
  description.clear_fingerprint();
  description.clear_notes();
  return sha256_of(digest + description.SerializeAsString());
}

/// Returns `scope` during a reading: its own, or a new one.
FileScope in_reading(const FileScope& scope) {
  return scope.reading() != nullptr ? scope : scope.during(std::make_shared<Reading>());
}

/// Returns the digest of all files that the reading opened.
Result<std::string> digest_of(const FileScope& scope) {
  POPRUN_ASSIGN(const std::string digest, fingerprint_of(scope.reading()->files(), scope.unrestricted()));
  POPRUN_TRY(scope.reading()->check_unchanged());
  return digest;
}

std::string augmentation_of(const Source& source) {
  const auto found = source.parameters.find(kAugment);
  return found == source.parameters.end() ? "none" : found->second;
}

/// All families.
constexpr auto kFamilies = std::to_array<const DatasetFamily& (*)()>({
#define POPRUN_FAMILY(stem) &families::stem,
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
});

/// Returns the family of `source`, after checking that it accepts all parameters.
Result<const DatasetFamily*> family_of(const Source& source) {
  for (const auto family : kFamilies) {
    if (family().accepts(source.text)) {
      POPRUN_TRY(check_parameters(family(), source));
      return &family();
    }
  }
  return fail(ErrorCode::kUsage,
              fmt::format("unknown dataset source \"{}\"; {}", source.text, suggestion(source.text, dataset_forms())));
}

}  // namespace

std::vector<std::string> dataset_forms() {
  std::vector<std::string> forms;
  for (const auto family : kFamilies) {
    forms.emplace_back(family().form);
  }
  return forms;
}

Result<proto::Dataset> describe_dataset(std::string_view text, const FileScope& scope, bool with_fingerprint) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  source.scope = in_reading(scope);
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  POPRUN_ASSIGN(proto::Dataset description, family->describe(source));
  POPRUN_TRY(check_augmentation(augmentation_of(source), description));
  if (with_fingerprint) {
    POPRUN_ASSIGN(const std::string digest, digest_of(source.scope));
    description.set_fingerprint(fingerprint_of(digest, description));
  }
  return description;
}

Result<ReadDataset> read_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  source.scope = in_reading(scope);
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  ReadDataset read;
  POPRUN_ASSIGN(read.stored, family->read(source));
  POPRUN_ASSIGN(read.digest, digest_of(source.scope));
  return read;
}

Result<std::unique_ptr<Dataset>> view_dataset(const ReadDataset& read, std::string_view text) {
  POPRUN_ASSIGN(const Source source, Source::parse(text));
  POPRUN_TRY(family_of(source));
  POPRUN_ASSIGN(std::unique_ptr<Dataset> dataset, read.stored->view(source));
  const std::string augmentation = augmentation_of(source);
  POPRUN_TRY(check_augmentation(augmentation, dataset->description()));
  if (augmentation != "none") {
    dataset = augmented(std::move(dataset), augmentation);
  }
  dataset->set_fingerprint(fingerprint_of(read.digest, dataset->description()));
  return dataset;
}

Result<std::unique_ptr<Dataset>> load_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(const ReadDataset read, read_dataset(text, scope));
  return view_dataset(read, text);
}

std::string stored_name(std::string_view text) {
  const Result<Source> source = Source::parse(text);
  const Result<const DatasetFamily*> family = source.and_then([](const Source& parsed) { return family_of(parsed); });
  if (!family) {
    return std::string{text};
  }
  std::string name = source->text + "?";
  for (const auto& [key, value] : source->parameters) {
    if (std::ranges::find((*family)->stored, key) != (*family)->stored.end()) {
      name += fmt::format("{}={},", key, value);
    }
  }
  return name;
}

std::uint64_t items_of(const proto::Dataset& description, proto::Split split) {
  return split == proto::SPLIT_TEST ? description.test_items() : description.train_items();
}

std::uint64_t sample_bytes(const proto::StreamTensor& tensor) {
  std::uint64_t bytes = tensor.element() == "u8" ? 1 : 4;
  for (const std::uint32_t dim : tensor.sample_shape()) {
    bytes *= dim;
  }
  return bytes;
}

}  // namespace poprun::hostio
