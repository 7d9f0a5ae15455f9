/// Losses refuse outputs and labels that do not fit, with a message that says where, what was needed and what was
/// there.

#include "replica/models/layers/losses.h"

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::losses_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

TensorType i32(Shape shape) {
  return {DataType::kI32, std::move(shape), Layout::kRowMajor};
}

using Add = std::function<ModelOutputs(Builder&, const std::vector<TensorId>&)>;

/// Returns the error of a loss that is added to a graph with these tensors, "" if there is none.
std::string refusal(const std::vector<TensorType>& types, const Add& add) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  std::vector<std::string> names;
  for (std::size_t k = 0; k < types.size(); ++k) {
    names.push_back(fmt::format("tensor{}", k));
  }
  add(builder, builder.stream_in("train", names, types));
  if (builder.status()) {
    return "";
  }
  EXPECT_EQ(builder.status().error().code, ErrorCode::kUsage);
  EXPECT_THAT(builder.status().error().message, StartsWith("model.loss = x: "));
  EXPECT_EQ(builder.status().error().message.find('\n'), std::string::npos);
  return builder.status().error().message.substr(std::string("model.loss = x: ").size());
}

std::string binary(const TensorType& logits, const TensorType& labels, std::int64_t label_classes = 2) {
  return refusal({logits, labels}, [label_classes](Builder& builder, const std::vector<TensorId>& t) {
    return layers::binary_cross_entropy(builder, "loss", "model.loss = x", t[0], t[1], label_classes);
  });
}

std::string contrastive(const TensorType& logits, const TensorType& labels) {
  return refusal({logits, labels}, [](Builder& builder, const std::vector<TensorId>& t) {
    return layers::contrastive_loss(builder, "loss", "model.loss = x", t[0], t[1]);
  });
}

std::string global(const TensorType& left, const TensorType& right, const TensorType& scale, const TensorType& labels) {
  return refusal({left, right, scale, labels}, [](Builder& builder, const std::vector<TensorId>& t) {
    return layers::global_contrastive_loss(builder, "loss", "model.loss = x", {t[0], t[1], t[2]}, t[3], 2);
  });
}

std::string ctc(const TensorType& logits, const TensorType& labels) {
  return refusal({logits, labels}, [](Builder& builder, const std::vector<TensorId>& t) {
    return layers::ctc_loss(builder, "loss", "model.loss = x", t[0], t[1]);
  });
}

TEST(Losses, OfBinaryCrossEntropyNeedsAsManyLabelsAsLogits) {
  EXPECT_EQ(binary(f32({4, 3}), f32({4, 3})), "");
  EXPECT_EQ(binary(f32({4, 1}), i32({4})), "");
  EXPECT_EQ(binary(f32({4, 3}), i32({4})),
            "the model outputs f32[4,3] and needs labels of the same number of elements: f32 from 0 to 1 or i32 0 and "
            "1, but the dataset has i32[4]; save labels of that type and shape, or set another model.loss");
  EXPECT_THAT(binary(f32({4, 3}), f32({4, 2})), HasSubstr("but the dataset has f32[4,2]"));
  EXPECT_THAT(binary(f32({4, 3}), f32({2, 6})), HasSubstr("but the dataset has f32[2,6]")) << "other samples";
  EXPECT_THAT(binary(f32({4, 3}), {DataType::kU8, {4, 3}, Layout::kRowMajor}), HasSubstr("has u8[4,3]"));
  EXPECT_THAT(binary(f32({}), f32({})), HasSubstr("the model outputs f32[]"));
}

TEST(Losses, OfBinaryCrossEntropyNeedLabelsOfTwoClasses) {
  EXPECT_EQ(binary(f32({4}), i32({4}), 3),
            "the model needs labels 0 and 1, but the dataset has labels up to 2; for several classes, set "
            "model.loss = cross-entropy");
}

TEST(Losses, OfPairsNeedASquareOfSimilarities) {
  EXPECT_EQ(contrastive(f32({4, 4}), i32({4})), "");
  EXPECT_EQ(contrastive(f32({4, 5}), i32({4})),
            "the model outputs f32[4,5] and needs labels of type i32[N] for logits [N,N], the similarities of N pairs, "
            "but the dataset has i32[4]; save labels of that type and shape, or set another model.loss");
  EXPECT_THAT(contrastive(f32({4}), i32({4})), HasSubstr("the model outputs f32[4]"));
  EXPECT_THAT(contrastive(f32({4, 4}), f32({4})), HasSubstr("but the dataset has f32[4]"));
  EXPECT_THAT(contrastive(f32({4, 4}), i32({4, 1})), HasSubstr("but the dataset has i32[4,1]"));
}

TEST(Losses, OfThePairsOfAllReplicasNeedTwoEmbeddingsAndOneFactor) {
  const TensorType embeddings = f32({4, 5});
  EXPECT_EQ(global(embeddings, embeddings, f32({}), i32({4})), "");
  EXPECT_EQ(global(embeddings, embeddings, f32({1}), i32({4})), "");
  EXPECT_EQ(global(embeddings, f32({4, 6}), f32({}), i32({4})),
            "the model's first two outputs must be embeddings f32[N,D] of N pairs, but they are f32[4,5] and f32[4,6]; "
            "export them as the first two outputs");
  EXPECT_THAT(global(f32({4}), f32({4}), f32({}), i32({4})), HasSubstr("but they are f32[4] and f32[4]"));
  EXPECT_THAT(global(i32({4, 5}), i32({4, 5}), f32({}), i32({4})), HasSubstr("but they are i32[4,5] and i32[4,5]"));
  EXPECT_EQ(global(embeddings, embeddings, f32({4}), i32({4})),
            "the model's third output must be one number, the factor of the similarities, but it is f32[4]; export the "
            "factor as the third output, or only the embeddings");
  EXPECT_THAT(global(embeddings, embeddings, f32({}), f32({4})),
              HasSubstr("needs labels of type i32[N] for embeddings [N,D] of N pairs, but the dataset has f32[4]"));
}

TEST(Losses, OfSequencesNeedFramesAndLabelsOfTheSameSequences) {
  EXPECT_EQ(ctc(f32({2, 7, 4}), i32({2, 3})), "");
  EXPECT_EQ(ctc(f32({2, 7, 4}), i32({3, 3})),
            "the model outputs f32[2,7,4] and needs labels of type i32[N,S] for logits [N,T,C], with class 0 as the "
            "blank, but the dataset has i32[3,3]; save labels of that type and shape, or set another model.loss");
  EXPECT_THAT(ctc(f32({2, 7}), i32({2, 3})), HasSubstr("the model outputs f32[2,7]"));
  EXPECT_THAT(ctc(f32({2, 7, 4}), i32({2})), HasSubstr("but the dataset has i32[2]"));
  EXPECT_THAT(ctc(f32({2, 7, 4}), f32({2, 3})), HasSubstr("but the dataset has f32[2,3]"));
}

TEST(Losses, AddNothingAfterAnError) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  const auto t = builder.stream_in("train", {"x", "y"}, {f32({4, 4}), i32({4})});
  const std::size_t before = builder.operations().size();
  builder.refuse({ErrorCode::kUsage, "first"});
  layers::binary_cross_entropy(builder, "a", "model.loss", t[0], t[0], 2);
  layers::contrastive_loss(builder, "b", "model.loss", t[0], t[1]);
  layers::global_contrastive_loss(builder, "c", "model.loss", {t[0], t[0]}, t[1], 2);
  layers::ctc_loss(builder, "d", "model.loss", t[0], t[1]);
  EXPECT_EQ(builder.operations().size(), before);
  EXPECT_EQ(builder.status().error().message, "first");
}

}  // namespace
}  // namespace poprun::losses_test
