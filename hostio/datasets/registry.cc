#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "hostio/datasets/augmentation.h"
#include "hostio/datasets/dataset.h"
#include "hostio/formats/fingerprint.h"
#include "replica/base/nearest.h"

namespace poprun::hostio {

namespace families {
#define POPRUN_FAMILY(stem) const DatasetFamily& stem();
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
}  // namespace families

namespace {

/// Taken by all families: "augment", see augmentation.h.
constexpr const char* kAugment = "augment";

Status check_parameters(const DatasetFamily& family, const Source& source) {
  for (const auto& [key, value] : source.parameters) {
    if (key != kAugment && std::ranges::find(family.parameters, key) == family.parameters.end()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("data.{} = {} is not a parameter of source \"{}\"; remove it", key,
                              value, source.text));
    }
  }
  return {};
}

std::string augmentation_of(const Source& source) {
  const auto found = source.parameters.find(kAugment);
  return found == source.parameters.end() ? "none" : found->second;
}

/// Every family there is.
constexpr auto kFamilies = std::to_array<const DatasetFamily& (*)()>({
#define POPRUN_FAMILY(stem) &families::stem,
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
});

/// The family of `source`, which takes all its parameters.
Result<const DatasetFamily*> family_of(const Source& source) {
  for (const auto family : kFamilies) {
    if (family().accepts(source.text)) {
      POPRUN_TRY(check_parameters(family(), source));
      return &family();
    }
  }
  return fail(ErrorCode::kUsage, fmt::format("unknown dataset source \"{}\"; {}", source.text,
                                             suggestion(source.text, dataset_forms())));
}

}  // namespace

std::vector<std::string> dataset_forms() {
  std::vector<std::string> forms;
  for (const auto family : kFamilies) {
    forms.emplace_back(family().form);
  }
  return forms;
}

Result<proto::Dataset> describe_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  const auto files = std::make_shared<std::set<std::filesystem::path>>();
  source.scope = scope.noting(files);
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  POPRUN_ASSIGN(proto::Dataset description, family->describe(source));
  POPRUN_TRY(check_augmentation(augmentation_of(source), description));
  description.set_fingerprint(fingerprint_of(*files));
  return description;
}

Result<std::unique_ptr<Dataset>> load_dataset(std::string_view text, const FileScope& scope) {
  POPRUN_ASSIGN(Source source, Source::parse(text));
  source.scope = scope;
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  POPRUN_ASSIGN(std::unique_ptr<Dataset> dataset, family->load(source));
  const std::string augmentation = augmentation_of(source);
  POPRUN_TRY(check_augmentation(augmentation, dataset->description()));
  return augmentation == "none" ? std::move(dataset) : augmented(std::move(dataset), augmentation);
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
