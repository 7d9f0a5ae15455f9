#include "launcher/outputs/external_data.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace poprun::launcher::external_data_test {
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

class ExternalData : public ::testing::Test {
 protected:
  ExternalData() : folder_(std::filesystem::temp_directory_path() / ("external_data." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "data") << "0123456789";
  }
  ~ExternalData() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] Result<std::string> read(const std::string& bytes, std::uint64_t most = 1 << 20) const {
    return with_external_data(bytes, (folder_ / "model.onnx").string(), most);
  }
  [[nodiscard]] std::string refusal(const std::string& bytes, std::uint64_t most = 1 << 20) const {
    const auto read_bytes = read(bytes, most);
    return read_bytes ? "accepted" : read_bytes.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(ExternalData, ComesIntoTheTensor) {
  const std::string name = field(8, "w");
  EXPECT_EQ(read(model(name + entry("location", "data") + entry("offset", "2") + entry("length", "3") + kExternal)),
            model(name + field(9, "234")));
  EXPECT_EQ(read(model(name + entry("location", "data") + entry("offset", "7") + kExternal)),
            model(name + field(9, "789")));
}

TEST_F(ExternalData, IsNotLookedForInOtherBytes) {
  for (const std::string& bytes :
       {std::string{}, std::string{"\xFF\xFF\xFF"}, model(field(8, "w") + field(9, "abc"))}) {
    EXPECT_EQ(read(bytes), bytes);
  }
}

TEST_F(ExternalData, IsRefusedWithAReason) {
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
  EXPECT_THAT(refusal(at("data", "0"), 8), HasSubstr("at most 8 B are supported"));
}

}  // namespace
}  // namespace poprun::launcher::external_data_test
