#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/models/layers/model.h"

namespace poprun {

#define POPRUN_FAMILY(family)  \
  namespace models::family {   \
  std::vector<Model> models(); \
  }
#include "replica/models/families.inc"
#undef POPRUN_FAMILY

std::vector<Model> all_models() {
  std::vector<Model> models;
  const auto take = [&models](std::vector<Model> family) { std::ranges::move(family, std::back_inserter(models)); };
#define POPRUN_FAMILY(family) take(models::family::models());
#include "replica/models/families.inc"
#undef POPRUN_FAMILY
  std::ranges::sort(models, {}, &Model::name);
  return models;
}

Result<Model> find_model(std::string_view name) {
  std::vector<std::string> names;
  for (const Model& model : all_models()) {
    if (model.name == name) {
      return model;
    }
    names.push_back(model.name);
  }
  return fail(ErrorCode::kUsage, fmt::format("model.name: no model is called '{}'; {}", name, suggestion(name, names)));
}

Result<std::map<std::string, std::int64_t>> sizes_of(const Model& model,
                                                     const std::map<std::string, std::int64_t>& given) {
  auto sizes = model.sizes;
  for (const auto& [name, value] : given) {
    const auto size = sizes.find(name);
    if (size == sizes.end()) {
      std::vector<std::string> names;
      names.reserve(sizes.size());
      for (const auto& [own, otherwise] : sizes) {
        names.push_back(own);
      }
      return fail(ErrorCode::kUsage,
                  fmt::format("model.{} = {}: the model {} has no size of this name; available: {}", name, value,
                              model.name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    if (value < 1) {
      return fail(ErrorCode::kUsage, fmt::format("model.{} = {}: a size must be positive", name, value));
    }
    size->second = value;
  }
  return sizes;
}

namespace {

std::string_view remedy_for(std::string_view tensor) {
  if (tensor == "images") {
    return "choose a source of images, such as fashion-mnist";
  }
  if (tensor == "tokens") {
    return "choose a source of tokens, such as text:FILE";
  }
  if (tensor == "positions") {
    return "set data.task = masked-lm, or provide attention_mask and a label for every token";
  }
  return "add it to the data";
}

}  // namespace

std::int64_t ModelInputs::size(const std::string& name) const {
  const auto found = sizes.find(name);
  POPRUN_CHECK(found != sizes.end());
  return found->second;
}

bool ModelInputs::has(std::string_view name) const {
  return std::ranges::find(names, name) != names.end();
}

TensorId ModelInputs::find(Builder& builder, std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the model needs {}, but the dataset has {}; {}", name,
                                                   fmt::join(names, ", "), remedy_for(name))});
    return TensorId{0};
  }
  return tensors[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace poprun
