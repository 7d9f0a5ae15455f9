#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// Reads Hugging Face's description of a model, config.json.
namespace poprun::launcher {

/// A key of train.cfg and its value.
struct ImpliedSetting {
  std::string key;    ///< "model.hidden"
  std::string value;  ///< "4096"
  std::string field;  ///< The field of config.json that it comes from, for messages: "hidden_size".
};

/// Returns the settings that describe the model in the text of a config.json: model.name, and its sizes. The model must
/// be a llama, mixtral, gpt2, bert, vit or t5 (model_type). Fields that have no effect on results, such as the token
/// ids of generation, are ignored. Errors: kUsage if the text is not such a description, or if a field has a value that
/// our model does not support; the message names `file`, the field and what is supported.
Result<std::vector<ImpliedSetting>> settings_of_config_json(const std::string& file, std::string_view text);

}  // namespace poprun::launcher
