#include "launcher/options/hugging_face.h"

#include <map>

#include <gmock/gmock.h>

#include "tests/unit/launcher/parsed_options.h"
#include "tests/unit/temporary_folder.h"

namespace poprun::launcher::hugging_face_test {
namespace {

using ::testing::HasSubstr;

/// meta-llama/Llama-3.1-8B's file, without fields of text generation.
std::string llama(const std::string& more = "") {
  return R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256)" +
         more + "}";
}

std::map<std::string, std::string> settings_of(const std::string& text) {
  const auto settings = settings_of_config_json("config.json", text);
  EXPECT_TRUE(settings) << settings.error().message;
  std::map<std::string, std::string> map;
  for (const ImpliedSetting& setting : settings.value_or(std::vector<ImpliedSetting>{})) {
    EXPECT_TRUE(map.emplace(setting.key, setting.value).second) << setting.key;
  }
  return map;
}

std::string refusal_of(const std::string& text) {
  const auto settings = settings_of_config_json("config.json", text);
  EXPECT_TRUE(settings || settings.error().code == ErrorCode::kUsage);
  return settings ? "no error" : settings.error().message;
}

using Map = std::map<std::string, std::string>;

TEST(ConfigJson, DescribesALlama) {
  Map expected = {{"model.name", "llama-3.1-8b"}, {"model.hidden", "4096"},
                  {"model.layers", "32"},         {"model.heads", "32"},
                  {"model.kv-heads", "8"},        {"model.intermediate", "14336"},
                  {"model.vocabulary", "128256"}, {"model.rope-theta", "500000"},
                  {"model.rope-factor", "8"},     {"model.sequence-length", "131072"}};
  EXPECT_EQ(settings_of(llama()), expected);
  std::string tied = llama();
  tied.replace(tied.find(R"("tie_word_embeddings": false)"), 28, R"("tie_word_embeddings": true)");
  expected["model.name"] = "llama-3.2-1b";
  EXPECT_EQ(settings_of(tied), expected);
}

TEST(ConfigJson, DescribesAMixtralWhoseExpertsDropNoToken) {
  const Map settings = settings_of(R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
    "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": null, "num_local_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 32768})");
  EXPECT_EQ(settings.at("model.name"), "mixtral-8x7b");
  EXPECT_EQ(settings.at("model.experts"), "8");
  EXPECT_EQ(settings.at("model.active-experts"), "2");
  EXPECT_EQ(settings.at("model.rope-factor"), "1");
}

TEST(ConfigJson, DescribesOlderModels) {
  EXPECT_EQ(settings_of(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                            "vocab_size": 50257, "activation_function": "gelu_new", "n_inner": null})"),
            (Map{{"model.name", "gpt2"},
                 {"model.hidden", "768"},
                 {"model.layers", "12"},
                 {"model.heads", "12"},
                 {"model.sequence-length", "1024"},
                 {"model.vocabulary", "50257"}}));
  const std::string bert = R"({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "vocab_size": 30522)";
  EXPECT_EQ(settings_of(bert + "}").at("model.name"), "bert-base");
  EXPECT_EQ(settings_of(bert + R"(, "architectures": ["BertForQuestionAnswering"]})").at("model.name"),
            "bert-base-squad");
  EXPECT_THAT(refusal_of(bert + R"(, "architectures": ["BertForTokenClassification"]})"),
              HasSubstr("[\"BertForTokenClassification\"] is not supported"));
  EXPECT_THAT(refusal_of(bert + R"(, "hidden_size": 4611686018427387904})"), HasSubstr("is too large"));
  EXPECT_EQ(settings_of(R"({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12,
                            "num_attention_heads": 12, "intermediate_size": 3072, "patch_size": 16,
                            "id2label": {"0": "cat", "1": "dog"}})"),
            (Map{{"model.name", "vit-base-16"},
                 {"model.hidden", "768"},
                 {"model.layers", "12"},
                 {"model.heads", "12"},
                 {"model.classes", "2"}}));
  const Map t5 = settings_of(R"({"model_type": "t5", "d_model": 512, "num_layers": 6, "num_heads": 8, "d_kv": 64,
                                 "d_ff": 2048, "vocab_size": 32128, "layer_norm_epsilon": 1e-06})");
  EXPECT_EQ(t5.at("model.name"), "t5-base");
  EXPECT_EQ(t5.at("model.decoder-layers"), "6");
  EXPECT_EQ(t5.at("model.head-features"), "64");
}

TEST(ConfigJson, IsRefusedIfResultsWouldDiffer) {
  EXPECT_EQ(refusal_of(llama(R"(, "quantization_config": {"bits": 4})")),
            "model.config: config.json: quantization_config = {\"bits\":4} is not supported; supported: null");
  EXPECT_EQ(refusal_of(llama(R"(, "head_dim": 64)")),
            "model.config: config.json: head_dim = 64 is not supported; supported: 128");
  std::string other = llama();
  other.replace(other.find("silu"), 4, "gelu");
  EXPECT_EQ(refusal_of(other),
            "model.config: config.json: hidden_act = \"gelu\" is not supported; supported: \"silu\"");
  other = llama();
  other.replace(other.find("\"llama3\""), 8, "\"yarn\"");
  EXPECT_EQ(refusal_of(other),
            "model.config: config.json: rope_scaling.rope_type = \"yarn\" is not supported; supported: "
            "\"default\", \"llama3\"");
  other = llama();
  other.replace(other.find("\"high_freq_factor\": 4.0"), 23, "\"high_freq_factor\": 2.0");
  EXPECT_EQ(refusal_of(other),
            "model.config: config.json: rope_scaling: high_freq_factor = 2.0 is not supported; supported: 4.0");
}

TEST(ConfigJson, IsRefusedIfItIsNone) {
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("config.json: not a JSON object"));
  EXPECT_EQ(refusal_of("{}"),
            "model.config: config.json: model_type = null is not supported; supported: bert, gpt2, "
            "llama, mixtral, t5, vit");
  EXPECT_EQ(refusal_of(R"({"model_type": "gpt2"})"), "model.config: config.json: n_embd is missing");
  EXPECT_EQ(refusal_of(R"({"model_type": "gpt2", "n_embd": "wide"})"),
            "model.config: config.json: n_embd = \"wide\" must be a whole number");
  EXPECT_EQ(refusal_of(R"({"model_type": "gpt2", "n_embd": -1})"),
            "model.config: config.json: n_embd = -1 must be positive");
}

TEST(ConfigJson, IsOverriddenByOtherKeys) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.write("config.json", std::string_view(llama())).string();
  const auto options = parse({"--model.config", file, "--model.layers", "2"});
  ASSERT_TRUE(options) << options.error().message;
  const auto& model = options->config.model();
  EXPECT_EQ(model.name(), "llama-3.1-8b");
  EXPECT_EQ(model.sizes().at("layers"), 2);
  EXPECT_EQ(model.sizes().at("kv-heads"), 8);
  EXPECT_EQ(parse({"--model.config", file, "--model.name", "llama-mini"})->config.model().name(), "llama-mini");
  EXPECT_THAT(error_of({"--model.config", "/nowhere/config.json"}), HasSubstr("/nowhere/config.json"));
}

}  // namespace
}  // namespace poprun::launcher::hugging_face_test
