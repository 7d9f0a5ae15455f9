#include <array>
#include <string>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"

namespace poprun::hostio {

namespace families {
#define POPRUN_FAMILY(stem) const DatasetFamily& stem();
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
}  // namespace families

namespace {

Result<const DatasetFamily*> family_of(std::string_view source) {
  const std::array known = {
#define POPRUN_FAMILY(stem) &families::stem(),
#include "hostio/datasets/families.inc"
#undef POPRUN_FAMILY
  };
  std::string forms;
  for (const DatasetFamily* family : known) {
    if (family->accepts(source)) {
      return family;
    }
    forms += fmt::format("{}{}", forms.empty() ? "" : ", ", family->form);
  }
  return fail(ErrorCode::kUsage,
              fmt::format("there is no dataset source \"{}\"; known are: {}", source, forms));
}

}  // namespace

Result<proto::Dataset> describe_dataset(std::string_view source) {
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  return family->describe(source);
}

Result<std::unique_ptr<Dataset>> load_dataset(std::string_view source) {
  POPRUN_ASSIGN(const DatasetFamily* family, family_of(source));
  return family->load(source);
}

std::uint64_t items_of(const proto::Dataset& description, proto::Split split) {
  POPRUN_CHECK(split == proto::SPLIT_TRAIN || split == proto::SPLIT_TEST);
  return split == proto::SPLIT_TRAIN ? description.train_items() : description.test_items();
}

std::uint64_t sample_bytes(const proto::StreamTensor& tensor) {
  std::uint64_t bytes = tensor.element() == "u8" ? 1 : 4;
  for (const std::uint32_t dim : tensor.sample_shape()) {
    bytes *= dim;
  }
  return bytes;
}

}  // namespace poprun::hostio
