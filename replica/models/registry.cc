#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/models/model.h"

namespace poprun {

#define POPRUN_FAMILY(model) Model model##_model();
#include "replica/models/families.inc"
#undef POPRUN_FAMILY

std::vector<Model> all_models() {
  std::vector<Model> models = {
#define POPRUN_FAMILY(model) model##_model(),
#include "replica/models/families.inc"
#undef POPRUN_FAMILY
  };
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
  return fail(ErrorCode::kUsage, fmt::format("model.name: no model is called '{}'; there are: {}",
                                             name, fmt::join(names, ", ")));
}

TensorId ModelInputs::find(Builder& builder, std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("data.source: the model needs '{}', the dataset has {}",
                                        name, fmt::join(names, ", "))});
    return TensorId{0};
  }
  return tensors[static_cast<std::size_t>(found - names.begin())];
}

}  // namespace poprun
