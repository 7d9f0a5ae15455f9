#include "launcher/outputs/safetensors.h"

#include <gmock/gmock.h>

#include "launcher/outputs/onnx_file.h"

namespace poprun::launcher::safetensors_test {
namespace {

using ::testing::HasSubstr;

std::vector<Tensor> two_tensors() {
  return {{"a.weight", "F32", {1, 2}, "\x01\x02\x03\x04\x05\x06\x07\x08"}, {"b", "I16", {}, "xy"}};
}

std::string file_of(std::span<const Tensor> tensors) {
  std::string bytes = safetensors_header(tensors);
  for (const Tensor& tensor : tensors) {
    bytes += tensor.data;
  }
  return bytes;
}

/// Returns a file with this header and data.
std::string file_with(std::string header, std::string_view data) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size() % 256);
  bytes[1] = static_cast<char>(header.size() / 256);
  return bytes + header + std::string(data);
}

std::string error_of(std::string_view bytes) {
  const auto tensors = parse_safetensors("w", bytes);
  EXPECT_TRUE(tensors || tensors.error().code == ErrorCode::kData);
  return tensors ? "no error" : tensors.error().message;
}

TEST(Safetensors, AStackOfMixtralsExpertsIsStoredAsOneTensorForEach) {
  const std::vector<Tensor> tensors = {{"model.layers.0.block_sparse_moe.experts.w1.weight",
                                        "F32",
                                        {2, 1, 3},
                                        std::string(12, 'a') + std::string(12, 'b')},
                                       {"experts.w1.weight", "F32", {2}, std::string(8, 'c')}};
  std::string bytes = safetensors_header(tensors);
  for (const Tensor& tensor : tensors) {
    bytes += tensor.data;
  }

  const auto read = parse_safetensors("file", bytes);

  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, (std::vector<Tensor>{
                       {"model.layers.0.block_sparse_moe.experts.0.w1.weight", "F32", {1, 3}, std::string(12, 'a')},
                       {"model.layers.0.block_sparse_moe.experts.1.w1.weight", "F32", {1, 3}, std::string(12, 'b')},
                       {"experts.w1.weight", "F32", {2}, std::string(8, 'c')}}));
}

TEST(Safetensors, ComeBackAsTheyWentOut) {
  const auto tensors = parse_safetensors("w", file_of(two_tensors()));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(*tensors, two_tensors());
}

TEST(Safetensors, HaveTheirDataAtAMultipleOfEight) {
  const std::string header = safetensors_header(two_tensors());
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(header.substr(8), R"({"__metadata__":{"format":"pt"},)"
                              R"("a.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"I16","shape":[],"data_offsets":[8,10]}})"
                              "     ");
}

TEST(Safetensors, MayListTensorsInAnyOrderAndHaveMetadata) {
  const auto tensors = parse_safetensors(
      "w", file_with(R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                     R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                     "xyz"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[1].data, "z");
}

TEST(Safetensors, WithoutTensorsAreEmpty) {
  EXPECT_TRUE(parse_safetensors("w", file_of({}))->empty());
}

TEST(Safetensors, EveryCutIsNoticed) {
  const std::string whole = file_of(two_tensors());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of(std::string_view(whole).substr(0, length)), "no error") << length;
  }
  EXPECT_EQ(error_of(whole + "z"), "w: 1 B of data belong to no tensor");
}

TEST(Safetensors, SayWhichDamageTheyHave) {
  EXPECT_EQ(error_of("abc"), "w: the file has 3 B, but a safetensors file has at least 8 B");
  EXPECT_THAT(error_of(std::string(16, '\xFF')),
              HasSubstr("the header should have 18446744073709551615 B, but only 8 B follow"));
  EXPECT_EQ(error_of(file_with("[]", "")), "w: its header is not a JSON object");
  EXPECT_EQ(error_of(file_with("{", "")), "w: its header is not a JSON object");
  EXPECT_EQ(error_of(file_with(R"({"a":1})", "")), "w: tensor 'a' is not described by a JSON object");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,1]}})", "x")),
            "w: tensor 'a' has a missing or unknown dtype");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x")),
            "w: tensor 'a' needs a shape and data_offsets [begin, end]");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x")),
            "w: tensor 'a' needs a shape and data_offsets [begin, end]");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", "x")),
            "w: tensor 'a' needs a shape and data_offsets [begin, end]");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "xxxx")),
            "w: tensor 'a' of F32 [2] needs 8 B, but its data_offsets span 4 B");
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "x")),
            "w: tensor 'a' ends at byte 9 of the data, which has only 1 B; is the file truncated?");
}

TEST(Safetensors, AreToldFromOtherFilesOfWeights) {
  const std::string rest(32, 'x');
  EXPECT_EQ(error_of("PK\x03\x04" + rest),
            "w: it is a zip archive, as PyTorch's .bin, .pt and .pth files are; save the weights "
            "with safetensors.torch.save_file(model.state_dict(), FILE)");
  EXPECT_EQ(error_of("\x80\x02}q" + rest),
            "w: it is a pickle, as PyTorch's older .bin and .pt files are; save the weights with "
            "safetensors.torch.save_file(model.state_dict(), FILE)");
  EXPECT_EQ(error_of("\x89HDF\r\n\x1a\n" + rest),
            "w: it is an HDF5 file, as Keras writes; save the weights as safetensors");
  EXPECT_EQ(error_of(R"({"metadata": {"total_size": 8}, "weight_map": {}})"),
            "w: it is JSON; if it is an index of weights in several files, rename it to end in .json");
}

TEST(Safetensors, AHeaderWhoseLengthLooksLikeAPickleIsAHeader) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x280, ' ');  // Its length is stored as 80 02 00 ...
  EXPECT_EQ(error_of(file_with(header, "x")), "no error");
}

TEST(Safetensors, AShapeThatOverflowsIsNoSmallTensor) {
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", "")),
              HasSubstr("needs more than 2^64 B, but its data_offsets span 0 B"));
}

TEST(Safetensors, TensorsMayNotOverlapNorLeaveHoles) {
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                 "xyz")),
              HasSubstr("tensor 'b' begins at byte 1 of the data, overlapping the tensor up to byte 2"));
  EXPECT_THAT(error_of(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy")),
              HasSubstr("tensor 'a' begins at byte 1 of the data, leaving a gap from byte 0"));
}

TEST(Safetensors, ANameListedTwiceIsAnError) {
  EXPECT_EQ(error_of(file_with(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                               R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                               "")),
            "w: tensor 'a' is listed twice");
}

TEST(Safetensors, SayWhyAFileCannotBeRead) {
  EXPECT_EQ(read_safetensors("/nowhere/w").error().message, "/nowhere/w: cannot be read: No such file or directory");
  EXPECT_EQ(read_safetensors("/").error().message, "/: cannot be read: Is a directory");
  EXPECT_EQ(read_safetensors("/").error().code, ErrorCode::kData);
  EXPECT_EQ(read_onnx_file("/").error().message, "model.onnx /: cannot be read: Is a directory");
  EXPECT_EQ(read_onnx_file("/dev/null").error().message, "model.onnx /dev/null: it is empty");
}

}  // namespace
}  // namespace poprun::launcher::safetensors_test
