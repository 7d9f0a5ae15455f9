#include "launcher/outputs/weights_files.h"

#include <gmock/gmock.h>

#include "tests/unit/temporary_folder.h"

namespace poprun::launcher::weights_files_test {
namespace {

using ::testing::HasSubstr;

class WeightsFiles : public ::testing::Test {
 protected:
  WeightsFiles() {
    write("one.safetensors", {{"a", "U8", {2}, "xy"}});
    write("two.safetensors", {{"b", "U8", {1}, "z"}, {"c", "U8", {0}, ""}});
  }

  void write(const std::string& name, const std::vector<Tensor>& tensors) {
    std::string bytes = safetensors_header(tensors);
    for (const Tensor& tensor : tensors) {
      bytes += tensor.data;
    }
    write_text(name, bytes);
  }
  void write_text(const std::string& name, const std::string& text) { (void)folder_.write(name, text); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  std::string error_of(const std::string& index) {
    write_text("model.safetensors.index.json", index);
    const auto read = read_weights(path("model.safetensors.index.json"));
    EXPECT_TRUE(read || read.error().code == ErrorCode::kData);
    return read ? "no error" : read.error().message;
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(WeightsFiles, AreReadAsOne) {
  write_text("index.json", R"({"metadata": {"total_size": 3},
                               "weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})");
  const auto tensors = read_weights(path("index.json"));
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 3U);
  EXPECT_EQ((*tensors)[0], (Tensor{"a", "U8", {2}, "xy"}));
  EXPECT_EQ((*tensors)[1], (Tensor{"b", "U8", {1}, "z"}));
  EXPECT_EQ(read_weights(path("one.safetensors"))->size(), 1U);
}

TEST_F(WeightsFiles, MustMatchTheirIndex) {
  EXPECT_THAT(error_of("{}"), HasSubstr("an index of weights must be a JSON object with a weight_map"));
  EXPECT_THAT(error_of(R"({"weight_map": {"a": "../one.safetensors"}})"),
              HasSubstr("the file of tensor 'a' must be the name of a file in the same folder"));
  EXPECT_THAT(error_of(R"({"weight_map": {"b": "two.safetensors"}})"),
              HasSubstr("two.safetensors has the tensor 'c', which the index does not list there"));
  EXPECT_THAT(error_of(R"({"weight_map": {"a": "one.safetensors", "d": "one.safetensors"}})"),
              HasSubstr("one.safetensors lacks the tensor 'd' of the index"));
  EXPECT_THAT(error_of(R"({"weight_map": {"a": "none.safetensors"}})"), HasSubstr("none.safetensors: "));
}

}  // namespace
}  // namespace poprun::launcher::weights_files_test
