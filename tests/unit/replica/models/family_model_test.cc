/// U-Net, DLRM, LSTM and VAE: parameters are those of the published implementations, and refusals name the remedy.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/model.h"

namespace poprun::family_model_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, std::string>>;  ///< Name and type.

/// A model on made-up inputs.
class Built {
 public:
  Built(const std::string& name, const Tensors& tensors, const std::map<std::string, std::int64_t>& sizes = {},
        std::int64_t classes = 2, bool training = true) {
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const Result<Model> model = find_model(name);
    POPRUN_CHECK(model);
    ModelInputs inputs;
    inputs.sizes = *sizes_of(*model, sizes);
    inputs.classes = inputs.label_classes = classes;
    inputs.training = training;
    for (const auto& [tensor, type] : tensors) {
      inputs.names.push_back(tensor);
      inputs.tensors.push_back(graph.add_tensor({tensor, *parse_type(type), Role::kStream}));
    }
    outputs = model->build(builder, inputs);
    status = builder.status();
    operations = builder.operations();
  }

  [[nodiscard]] std::int64_t parameters() const {
    std::int64_t count = 0;
    for (const Tensor& tensor : graph.tensors()) {
      count += tensor.role == Role::kParameter ? tensor.type.elements() : 0;
    }
    return count;
  }

  [[nodiscard]] std::string type(const std::string& name) const {
    return graph.has(name) ? to_text(graph.tensor(graph.find(name)).type) : "none";
  }

  [[nodiscard]] std::string complaint() const {
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  }

  [[nodiscard]] std::int64_t count(const std::string& kind) const {
    return std::ranges::count(operations, kind, &Operation::kind);
  }

  Graph graph;
  ModelOutputs outputs{};
  Status status;
  std::vector<Operation> operations;
};

const Tensors kPixels = {{"images", "u8[2,3,32,32]"}, {"labels", "i32[2,32,32]"}};

TEST(Unet, HasTheParametersOfMilesialsImplementation) {
  const Built unet("unet", kPixels);
  ASSERT_TRUE(unet.status) << unet.status.error().message;
  EXPECT_EQ(unet.parameters(), 31'037'698);
  EXPECT_EQ(unet.type("inc.double_conv.0.weight"), "f32[64,3,3,3]");
  EXPECT_EQ(unet.type("inc.double_conv.0.bias"), "none");
  EXPECT_EQ(unet.type("inc.double_conv.4.running_var"), "f32[64]");
  EXPECT_EQ(unet.type("down4.maxpool_conv.1.double_conv.3.weight"), "f32[1024,1024,3,3]");
  EXPECT_EQ(unet.type("up1.up.weight"), "f32[1024,512,2,2]");
  EXPECT_EQ(unet.type("up1.up.bias"), "f32[512]");
  EXPECT_EQ(unet.type("up1.conv.double_conv.0.weight"), "f32[512,1024,3,3]");
  EXPECT_EQ(unet.type("outc.conv.weight"), "f32[2,64,1,1]");
  EXPECT_EQ(unet.type("outc.conv.bias"), "f32[2]");
}

TEST(Unet, RefusesImagesThatItCannotHalve) {
  const Built odd("unet", {{"images", "u8[2,3,24,32]"}, {"labels", "i32[2,24,32]"}});
  EXPECT_THAT(odd.complaint(),
              AllOf(HasSubstr("halves the resolution 4 times"), HasSubstr("multiples of 16"), HasSubstr("24 x 32")));
  EXPECT_TRUE(Built("unet", {{"images", "u8[2,3,24,32]"}, {"labels", "i32[2,24,32]"}}, {{"layers", 3}}).status);
}

TEST(Unet, NeedsALabelForEveryPixel) {
  EXPECT_THAT(Built("unet", {{"images", "u8[2,3,32,32]"}, {"labels", "i32[2]"}}).complaint(),
              AllOf(HasSubstr("labels of type i32[2,32,32], one per pixel"), HasSubstr("has i32[2]")));
}

TEST(Lstm, HasTheParametersOfZarembasModels) {
  const Tensors tokens = {{"tokens", "i32[2,3]"}, {"labels", "i32[2,3]"}};
  const Built medium("lstm", tokens);
  ASSERT_TRUE(medium.status) << medium.status.error().message;
  EXPECT_EQ(medium.parameters(), 19'780'400);
  EXPECT_EQ(Built("lstm-large", tokens).parameters(), 66'034'000);
  EXPECT_EQ(medium.type("encoder.weight"), "f32[10000,650]");
  EXPECT_EQ(medium.type("rnn.weight_ih_l1"), "f32[2600,650]");
  EXPECT_EQ(medium.type("rnn.bias_hh_l0"), "f32[2600]");
  EXPECT_EQ(medium.type("decoder.bias"), "f32[10000]");
  EXPECT_EQ(medium.count("tanh"), 2 * 2 * 3) << "two for each layer and step";
}

TEST(Lstm, RefusesLongerSequencesThanItsLimit) {
  EXPECT_THAT(Built("lstm", {{"tokens", "i32[2,36]"}, {"labels", "i32[2,36]"}}).complaint(),
              HasSubstr("set model.sequence-length = 36"));
}

TEST(Dlrm, HasTheParametersOfTheConfigurationForCriteosKaggleData) {
  const Tensors criteo = {{"dense", "f32[4,13]"}, {"sparse", "i32[4,26]"}, {"labels", "i32[4]"}};
  const Built dlrm("dlrm", criteo);
  ASSERT_TRUE(dlrm.status) << dlrm.status.error().message;
  // 33,762,577 rows of 16; 155,984 in the bottom MLP; 320,001 in the top one, which has 16 + 27 * 26 / 2 inputs.
  EXPECT_EQ(dlrm.parameters(), 540'677'217);
  EXPECT_EQ(dlrm.type("emb_l.2.weight"), "f32[10131227,16]");
  EXPECT_EQ(dlrm.type("bot_l.6.weight"), "f32[16,64]");
  EXPECT_EQ(dlrm.type("top_l.0.weight"), "f32[512,367]");
  EXPECT_EQ(dlrm.type("top_l.4.weight"), "f32[1,256]");
  EXPECT_EQ(Built("dlrm", criteo, {{"vocabulary", 1000}}).type("emb_l.2.weight"), "f32[1000,16]");
}

TEST(Dlrm, SaysWhichFeaturesAndLabelsItNeeds) {
  const std::string dense = "f32[4,13]";
  EXPECT_THAT(Built("dlrm", {{"dense", dense}, {"sparse", "i32[4,25]"}, {"labels", "i32[4]"}}).complaint(),
              AllOf(HasSubstr("sparse ones i32[N,26]"), HasSubstr("i32[4,25]")));
  EXPECT_TRUE(Built("dlrm-mini", {{"dense", dense}, {"sparse", "i32[4,25]"}, {"labels", "f32[4,1]"}}).status);
  EXPECT_THAT(Built("dlrm-mini", {{"dense", dense}, {"sparse", "i32[4,2]"}, {"labels", "i32[4]"}}, {}, 3).complaint(),
              HasSubstr("labels 0 and 1, but the dataset has labels up to 2"));
  EXPECT_THAT(Built("dlrm-mini", {{"dense", dense}, {"sparse", "i32[4,2]"}, {"labels", "f32[4,3]"}}).complaint(),
              HasSubstr("f32 from 0 to 1 or i32 0 and 1"));
  EXPECT_THAT(Built("dlrm-mini", {{"images", "u8[4,1,8,8]"}, {"labels", "i32[4]"}}).complaint(),
              HasSubstr("the model needs dense"));
}

TEST(Vae, HasTheParametersOfPyTorchsExample) {
  const Tensors images = {{"images", "u8[2,1,28,28]"}, {"labels", "i32[2]"}};
  const Built vae("vae", images);
  ASSERT_TRUE(vae.status) << vae.status.error().message;
  EXPECT_EQ(vae.parameters(), 652'824);
  EXPECT_EQ(vae.type("fc22.weight"), "f32[20,400]");
  EXPECT_EQ(vae.type("reconstruction"), "f32[2,1,28,28]");
  EXPECT_EQ(vae.count("random_normal"), 1);
  EXPECT_EQ(Built("vae", images, {}, 2, /*training=*/false).count("random_normal"), 0) << "it codes by the mean";
  EXPECT_TRUE(Built("vae", {{"images", "f32[2,1,28,28]"}}).status) << "labels are optional";
}

}  // namespace
}  // namespace poprun::family_model_test
