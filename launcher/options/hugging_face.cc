#include "launcher/options/hugging_face.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace poprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

/// A field that becomes a size of our model.
struct SizeField {
  std::string field;
  std::string size;          ///< Without "model.".
  std::string same_as{};     ///< If the field is absent, it equals this field.
  std::int64_t otherwise{};  ///< If the field is absent and same_as is empty: its value; 0: the field is needed.
};

/// A field with a single supported value. If it is absent, it has the value `otherwise`.
struct FixedField {
  std::string field;
  Json supported;
  Json otherwise;
};

/// The fields of one model_type that matter.
struct Family {
  std::vector<std::pair<std::string, std::string>>
      models;  ///< Architectures with our models; the first is the default.
  std::vector<SizeField> sizes;
  std::vector<FixedField> fixed;
};

/// Reads fields until the first error, which it keeps.
class Reader {
 public:
  Reader(const std::string& file, const Json& json) : file_(file), json_(json) {}

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::vector<ImpliedSetting> take() { return std::move(settings_); }

  void refuse(const std::string& message) {
    if (status_) {
      status_ = fail(ErrorCode::kUsage, fmt::format("model.config: {}: {}", file_, message));
    }
  }

  /// Takes over the error of a reader of an inner object.
  void adopt(const Reader& inner) {
    if (status_) {
      status_ = inner.status_;
    }
  }

  /// Returns the field, or null if it is absent.
  [[nodiscard]] Json value(const std::string& field) const {
    return json_.is_object() && json_.contains(field) ? json_.at(field) : Json();
  }

  std::int64_t integer(const std::string& field, std::int64_t otherwise) {
    const Json found = value(field);
    if (found.is_null() && otherwise > 0) {
      return otherwise;
    }
    if (found.is_number_float() && found.get<double>() == std::floor(found.get<double>()) &&
        std::abs(found.get<double>()) < 0x1p53) {
      return positive(field, static_cast<std::int64_t>(found.get<double>()));  // rope_theta = 500000.0
    }
    if (!found.is_number_integer()) {
      refuse(found.is_null() ? fmt::format("{} is missing", field)
                             : fmt::format("{} = {} must be a whole number", field, found.dump()));
      return 1;
    }
    return positive(field, found.get<std::int64_t>());
  }

  void set(const std::string& key, const std::string& value, const std::string& field) {
    settings_.push_back({"model." + key, value, field});
  }

  void size(const SizeField& size) {
    const bool absent = value(size.field).is_null();
    const std::string& field = absent && !size.same_as.empty() ? size.same_as : size.field;
    set(size.size, std::to_string(integer(field, size.otherwise)), field);
  }

  /// Refuses every value of a field but the supported one. null means that a field is absent.
  void require(const FixedField& fixed) {
    const Json found = value(fixed.field);
    const Json& given = found.is_null() ? fixed.otherwise : found;
    if (given != fixed.supported) {
      refuse(fmt::format("{} = {}{} is not supported; supported: {}", fixed.field, given.dump(),
                         found.is_null() ? " (the default)" : "", fixed.supported.dump()));
    }
  }

 private:
  std::int64_t positive(const std::string& field, std::int64_t value) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40U;
    if (value < 1 || value > kMost) {
      refuse(fmt::format("{} = {} {}", field, value, value < 1 ? "must be positive" : "is too large"));
    }
    return std::clamp<std::int64_t>(value, 1, kMost);
  }

  const std::string& file_;
  const Json& json_;
  Status status_;
  std::vector<ImpliedSetting> settings_;
};

const Json kNone;

/// Sets rope-theta and rope-factor, which newer versions of transformers keep in `rope_parameters`.
void read_rope(Reader& reader, const std::string& file) {
  const bool joined = !reader.value("rope_parameters").is_null();
  const std::string field = joined ? "rope_parameters" : "rope_scaling";
  const Json scaling = reader.value(field);
  if (!scaling.is_null() && !scaling.is_object()) {
    reader.refuse(fmt::format("{} must be an object or null", field));
    return;
  }
  const std::string place = fmt::format("{}: {}", file, field);
  Reader inner(place, scaling);
  const std::int64_t theta = joined ? inner.integer("rope_theta", 10'000) : reader.integer("rope_theta", 10'000);
  std::int64_t factor = 1;
  if (!scaling.is_null()) {
    const Json type = scaling.contains("rope_type") ? inner.value("rope_type") : inner.value("type");
    if (type == "llama3") {
      factor = inner.integer("factor", 0);
      inner.require({"low_freq_factor", 1.0, kNone});
      inner.require({"high_freq_factor", 4.0, kNone});
      inner.require({"original_max_position_embeddings", 8192, kNone});
    } else if ((!type.is_null() && type != "default") || (type.is_null() && scaling.contains("factor"))) {
      reader.refuse(
          fmt::format("{}.rope_type = {} is not supported; supported: \"default\", \"llama3\"", field, type.dump()));
    }
  }
  reader.adopt(inner);
  reader.set("rope-theta", std::to_string(theta), joined ? field : "rope_theta");
  reader.set("rope-factor", std::to_string(factor), field);
}

Family llama_family() {
  return {.models = {{"LlamaForCausalLM", "llama-3.1-8b"}, {"LlamaModel", "llama-3.1-8b"}},
          .sizes = {{"hidden_size", "hidden"},
                    {"num_hidden_layers", "layers"},
                    {"num_attention_heads", "heads"},
                    {"num_key_value_heads", "kv-heads", "num_attention_heads"},
                    {"intermediate_size", "intermediate"},
                    {"vocab_size", "vocabulary"},
                    {"max_position_embeddings", "sequence-length", "", 2048}},
          .fixed = {{"hidden_act", "silu", "silu"},
                    {"rms_norm_eps", 1e-5, 1e-6},
                    {"attention_bias", false, false},
                    {"mlp_bias", false, false},
                    {"attention_dropout", 0.0, 0.0}}};
}

Family mixtral_family() {
  Family family = llama_family();
  family.models = {{"MixtralForCausalLM", "mixtral-8x7b"}, {"MixtralModel", "mixtral-8x7b"}};
  family.sizes.push_back({"num_local_experts", "experts", "", 8});
  family.sizes.push_back({"num_experts_per_tok", "active-experts", "", 2});
  family.fixed.push_back({"sliding_window", kNone, kNone});
  family.fixed.push_back({"tie_word_embeddings", false, false});
  family.fixed.push_back({"router_jitter_noise", 0.0, 0.0});
  family.fixed.push_back({"output_router_logits", false, false});
  return family;
}

Family gpt2_family() {
  return {.models = {{"GPT2LMHeadModel", "gpt2"}, {"GPT2Model", "gpt2"}},
          .sizes = {{"n_embd", "hidden"},
                    {"n_layer", "layers"},
                    {"n_head", "heads"},
                    {"vocab_size", "vocabulary"},
                    {"n_positions", "sequence-length"}},
          .fixed = {{"activation_function", "gelu_new", "gelu_new"},
                    {"layer_norm_epsilon", 1e-5, 1e-5},
                    {"scale_attn_weights", true, true},
                    {"scale_attn_by_inverse_layer_idx", false, false},
                    {"add_cross_attention", false, false},
                    {"tie_word_embeddings", true, true}}};
}

Family bert_family() {
  return {.models = {{"BertForPreTraining", "bert-base"},
                     {"BertForMaskedLM", "bert-base"},
                     {"BertModel", "bert-base"},
                     {"BertForQuestionAnswering", "bert-base-squad"}},
          .sizes = {{"hidden_size", "hidden"},
                    {"num_hidden_layers", "layers"},
                    {"num_attention_heads", "heads"},
                    {"vocab_size", "vocabulary"},
                    {"max_position_embeddings", "sequence-length"}},
          .fixed = {{"hidden_act", "gelu", "gelu"},
                    {"layer_norm_eps", 1e-12, 1e-12},
                    {"type_vocab_size", 2, 2},
                    {"position_embedding_type", "absolute", "absolute"},
                    {"is_decoder", false, false},
                    {"tie_word_embeddings", true, true}}};
}

Family vit_family() {
  return {.models = {{"ViTForImageClassification", "vit-base-16"}, {"ViTModel", "vit-base-16"}},
          .sizes = {{"hidden_size", "hidden"}, {"num_hidden_layers", "layers"}, {"num_attention_heads", "heads"}},
          .fixed = {{"hidden_act", "gelu", "gelu"},
                    {"layer_norm_eps", 1e-12, 1e-12},
                    {"patch_size", 16, 16},
                    {"qkv_bias", true, true}}};
}

Family t5_family() {
  return {
      .models = {{"T5ForConditionalGeneration", "t5-base"}, {"T5WithLMHeadModel", "t5-base"}, {"T5Model", "t5-base"}},
      .sizes = {{"d_model", "hidden"},
                {"num_layers", "layers"},
                {"num_decoder_layers", "decoder-layers", "num_layers"},
                {"num_heads", "heads"},
                {"d_kv", "head-features"},
                {"d_ff", "intermediate"},
                {"vocab_size", "vocabulary"},
                {"n_positions", "sequence-length", "", 512}},
      .fixed = {{"feed_forward_proj", "relu", "relu"},
                {"layer_norm_epsilon", 1e-6, 1e-6},
                {"relative_attention_num_buckets", 32, 32},
                {"relative_attention_max_distance", 128, 128},
                {"decoder_start_token_id", 0, 0},
                {"pad_token_id", 0, 0},
                {"tie_word_embeddings", true, true}}};
}

/// Refuses a width that is not the one that our model derives from the others.
void require_derived(Reader& reader, const std::string& field, std::int64_t derived) {
  if (!reader.value(field).is_null() && reader.integer(field, 0) != derived && reader.status()) {
    reader.refuse(fmt::format("{} = {} is not supported; supported: {}", field, reader.value(field).dump(), derived));
  }
}

/// Returns the name of the built-in model with the right architecture.
std::string name_of(Reader& reader, const Family& family) {
  const Json architectures = reader.value("architectures");
  const std::string architecture = architectures.is_array() && !architectures.empty() && architectures[0].is_string()
                                       ? architectures[0].get<std::string>()
                                       : family.models[0].first;
  const auto found = std::ranges::find(family.models, architecture, &std::pair<std::string, std::string>::first);
  if (found == family.models.end()) {
    reader.refuse(fmt::format("architectures = [\"{}\"] is not supported; supported: {}", architecture,
                              fmt::join(family.models | std::views::keys, ", ")));
    return "";
  }
  const bool is_tied_llama = found->second == "llama-3.1-8b" && reader.value("tie_word_embeddings") == true;
  return is_tied_llama ? "llama-3.2-1b" : found->second;
}

/// Reads what the tables of fields do not express.
void read_rest(Reader& reader, const std::string& type, const std::string& file) {
  if (type == "llama" || type == "mixtral") {
    read_rope(reader, file);
    require_derived(
        reader, "head_dim",
        reader.integer("hidden_size", 0) / std::max<std::int64_t>(1, reader.integer("num_attention_heads", 0)));
  }
  if (type == "bert" || type == "vit") {
    require_derived(reader, "intermediate_size", 4 * reader.integer("hidden_size", 0));
  }
  if (type == "gpt2") {
    require_derived(reader, "n_inner", 4 * reader.integer("n_embd", 0));
  }
  if (const Json labels = reader.value("id2label"); type == "vit" && labels.is_object() && !labels.empty()) {
    reader.set("classes", std::to_string(labels.size()), "id2label");
  }
  reader.require({"quantization_config", kNone, kNone});
}

}  // namespace

Result<std::vector<ImpliedSetting>> settings_of_config_json(const std::string& file, std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return fail(ErrorCode::kUsage,
                fmt::format("model.config: {}: not a JSON object, as Hugging Face's config.json is", file));
  }
  const std::array<std::pair<std::string, Family>, 6> families = {{{"bert", bert_family()},
                                                                   {"gpt2", gpt2_family()},
                                                                   {"llama", llama_family()},
                                                                   {"mixtral", mixtral_family()},
                                                                   {"t5", t5_family()},
                                                                   {"vit", vit_family()}}};
  Reader reader(file, json);
  const Json type = reader.value("model_type");
  for (const auto& [name, family] : families) {
    if (type != name) {
      continue;
    }
    reader.set("name", name_of(reader, family), "model_type");
    for (const SizeField& size : family.sizes) {
      reader.size(size);
    }
    for (const FixedField& fixed : family.fixed) {
      reader.require(fixed);
    }
    read_rest(reader, name, file);
    POPRUN_TRY(reader.status());
    return reader.take();
  }
  return fail(ErrorCode::kUsage,
              fmt::format("model.config: {}: model_type = {} is not supported; supported: bert, gpt2, llama, mixtral, "
                          "t5, vit",
                          file, type.dump()));
}

}  // namespace poprun::launcher
