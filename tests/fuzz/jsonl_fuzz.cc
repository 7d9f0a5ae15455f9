// DEPS: poprun::hostio_datasets
#include <string>

#include "hostio/datasets/dataset.h"
#include "hostio/formats/jsonl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

/// Reads the input as JSON lines, and as the dataset that they contain.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = poprun::fuzz::file_with(std::as_bytes(std::span(data, size)));
  auto lines = poprun::hostio::JsonLines::open(file, {});
  while (lines) {
    const poprun::Result<bool> any = lines->next();
    if (!any) {
      poprun::fuzz::check_error(any.error());
      break;
    }
    if (!*any) {
      break;
    }
    for (const poprun::hostio::JsonField& field : lines->object().fields()) {
      std::uint64_t elements = 1;
      for (const std::uint64_t dim : field.shape) {
        elements *= dim;
      }
      POPRUN_CHECK(field.kind != poprun::hostio::JsonField::Kind::kNumbers || elements == field.numbers.size());
    }
  }
  const auto dataset = poprun::hostio::load_dataset("jsonl:" + file.string() + "?sequence-length=8");
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
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const std::string text : {"{\"input_ids\": [1, 2], \"labels\": [2]}\n{\"input_ids\": [], \"labels\": [1]}\n",
                                 "{\"x\": [[1.5, -2e3]], \"y\": \"a\"}\r\n\n{\"y\": \"b\", \"x\": [[0, true]]}",
                                 "{\"text\": \"some text\\n\"}\n{\"text\": \"\\u00e9 and more text\"}"}) {
    seeds.emplace_back(text.begin(), text.end());
  }
  return seeds;
}
