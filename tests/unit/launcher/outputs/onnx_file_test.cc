#include "launcher/outputs/onnx_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace poprun::launcher::onnx_file_test {
namespace {

using ::testing::HasSubstr;

/// Returns a field of protobuf's wire format that has a length below 128.
std::string field(unsigned number, const std::string& content) {
  std::string key;
  for (unsigned rest = number << 3U | 2U; rest != 0; rest >>= 7U) {
    key += static_cast<char>((rest & 0x7FU) | (rest >= 0x80 ? 0x80U : 0U));
  }
  return key + static_cast<char>(content.size()) + content;
}

std::string entry(const std::string& key, const std::string& value) {
  return field(13, field(1, key) + field(2, value));
}

const std::string kExternal = "\x70\x01";  // data_location = EXTERNAL

/// Returns a model with one initialiser.
std::string model(const std::string& tensor) {
  return "\x08\x08" + field(7, field(2, "graph") + field(5, tensor));
}

class OnnxFiles : public ::testing::Test {
 protected:
  OnnxFiles() : folder_(std::filesystem::temp_directory_path() / ("onnx_file." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "data") << "0123456789";
  }
  ~OnnxFiles() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] Result<OnnxFile> read(const std::string& bytes, std::uint64_t most = 1 << 20) const {
    const std::string path = (folder_ / "model.onnx").string();
    std::ofstream(path, std::ios::binary) << bytes;
    return read_onnx_file(path, most);
  }
  [[nodiscard]] std::string bytes_of(const std::string& bytes) const {
    const auto file = read(bytes);
    return file ? file->bytes : file.error().message;
  }
  [[nodiscard]] std::string refusal(const std::string& bytes, std::uint64_t most = 1 << 20) const {
    const auto file = read(bytes, most);
    return file ? "accepted" : file.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(OnnxFiles, TakeInExternalData) {
  const std::string name = field(8, "w");
  EXPECT_EQ(bytes_of(model(name + entry("location", "data") + entry("offset", "2") + entry("length", "3") + kExternal)),
            model(name + field(9, "234")));
  EXPECT_EQ(bytes_of(model(name + entry("location", "data") + entry("offset", "7") + kExternal)),
            model(name + field(9, "789")));
}

TEST_F(OnnxFiles, AreUnchangedWithoutExternalData) {
  for (const std::string& bytes :
       {std::string{"\xFF\xFF\xFF"}, model(field(8, "w") + field(9, "abc"))}) {
    EXPECT_EQ(bytes_of(bytes), bytes);
  }
}

TEST_F(OnnxFiles, WithMissingDataAreRefusedWithAReason) {
  const std::string name = field(8, "w");
  const auto at = [&](const std::string& location, const std::string& offset) {
    return model(name + entry("location", location) + entry("offset", offset) + entry("length", "4") + kExternal);
  };
  EXPECT_THAT(refusal(at("none", "0")), HasSubstr("tensor 'w': its data are in the file 'none', which is missing in"));
  EXPECT_THAT(refusal(at("data", "7")), HasSubstr("which has 10 B, but the tensor needs 4 B from byte 7 on"));
  EXPECT_THAT(refusal(at("data", "18446744073709551615")), HasSubstr("which has 10 B"));
  EXPECT_THAT(refusal(at("data", "x")), HasSubstr("the offset 'x' of its external data is not a number"));
  EXPECT_THAT(refusal(at("../data", "0")), HasSubstr("which is not in the folder of the model"));
  EXPECT_THAT(refusal(at("/etc/hosts", "0")), HasSubstr("which is not in the folder of the model"));
  EXPECT_THAT(refusal(at("", "0")), HasSubstr("which is not in the folder of the model"));
}

/// Returns an initialiser of two elements, whose data begin at `offset` in "data". Types: 1 is float, 6 int32.
std::string external_pair(const std::string& name, char type, const std::string& offset) {
  return std::string("\x08\x02\x10") + type + field(8, name) + entry("location", "data") + entry("offset", offset) +
         entry("length", "8") + kExternal;
}

TEST_F(OnnxFiles, LeaveTheirLargestWeightsInTheFilesIfTheyAreTooLargeForAMessage) {
  std::ofstream(folder_ / "data") << std::string(4000, 'x');
  const std::string big = std::string("\x08\x64\x10\x01") + field(8, "big") + entry("location", "data") +
                          entry("offset", "40") + entry("length", "400") + kExternal;
  const std::string text = model(external_pair("small", 1, "8")) + field(7, field(5, big)) +
                           field(7, field(5, external_pair("integers", 6, "16")));
  const auto whole = read(text, 4000);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_TRUE(whole->weights.empty());
  EXPECT_THAT(whole->bytes, HasSubstr(std::string(400, 'x')));
  const auto parts = read(text, 480);
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_THAT(parts->weights, ::testing::SizeIs(1)) << "small tensors and integers, such as shapes, stay in the model";
  const StoredTensor& first = parts->weights[0];
  EXPECT_EQ(first.name + " " + first.dtype, "big F32");
  EXPECT_EQ(first.shape, std::vector<std::int64_t>{100});
  EXPECT_EQ(first.offset, 40);
  EXPECT_EQ(first.bytes, 400);
  EXPECT_EQ(first.path, (std::filesystem::weakly_canonical(folder_) / "data").string());
  EXPECT_THAT(parts->bytes, HasSubstr(field(9, "#weights")));
  EXPECT_THAT(parts->bytes, HasSubstr("xxxxxxxx"));
  EXPECT_THAT(parts->bytes, ::testing::Not(HasSubstr("xxxxxxxxx")));
}

TEST_F(OnnxFiles, MustGiveWeightsTheSizesOfTheirShapes) {
  const std::string odd = std::string("\x08\x09\x10\x01") + field(8, "w") + entry("location", "data") +
                          entry("length", "40") + kExternal;
  std::ofstream(folder_ / "data") << std::string(40, 'x');
  EXPECT_THAT(refusal(model(odd), 80), HasSubstr("which has 40 B for it, but its shape is [9] and its type F32"));
}

TEST_F(OnnxFiles, OfIntegersBeyondTheLimitAreRefused) {
  EXPECT_THAT(refusal(model(external_pair("i", 6, "0")), 70), HasSubstr("but at most 70 B are supported"));
  EXPECT_THAT(refusal(std::string(100, 'x'), 70), HasSubstr("the file has 100 B, but an ONNX file can have at most 70 B"));
}

}  // namespace
}  // namespace poprun::launcher::onnx_file_test
