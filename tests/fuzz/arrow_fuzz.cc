// DEPS: poprun::hostio_datasets ZLIB::ZLIB
#include <string>

#include "hostio/datasets/dataset.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/hostio/arrow_bytes.h"

/// Serves the input as an Arrow file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = poprun::fuzz::file_with(std::as_bytes(std::span(data, size)));
  const auto dataset = poprun::hostio::load_dataset("arrow:" + file.string() + "?sequence-length=8");
  if (!dataset) {
    POPRUN_CHECK(dataset.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (int t = 0; t < (*dataset)->description().tensors_size(); ++t) {
    std::vector<std::byte> sample(poprun::hostio::sample_bytes((*dataset)->description().tensors(t)));
    (*dataset)->read({.item = (*dataset)->description().train_items() - 1}, t, sample);
  }
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  namespace files = poprun::hostio::testing;
  const auto floats = files::arrow_floats("", {1, 2, 3, 4});
  const auto integers = files::arrow_integers("", {1, 2, 3, 4}, 2);
  return {files::arrow_bytes(
              {{files::arrow_lists("input_ids", {1, 3}, integers), files::arrow_lists("labels", {3, 1}, integers)}}),
          files::arrow_bytes({{files::arrow_fixed_lists("x", 2, floats), files::arrow_integers("y", {0, 1})},
                              {files::arrow_fixed_lists("x", 2, floats), files::arrow_integers("y", {1, 0})}}),
          files::arrow_bytes({{files::arrow_fixed_lists("x", 2, floats), files::arrow_texts("label", {"a", "b"})}}),
          files::arrow_bytes({{files::arrow_texts("text", {"", "some text", "and more of it"})}})};
}
