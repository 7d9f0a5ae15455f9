// DEPS: poprun::hostio_datasets
#include <string>
#include <string_view>

#include "hostio/formats/csv.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

using poprun::hostio::CsvReader;

/// Reads the input as separated values.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  poprun::Result<CsvReader> reader = CsvReader::open(poprun::fuzz::file_with(bytes), {});
  if (!reader) {
    poprun::fuzz::check_error(reader.error());
    return 0;
  }
  POPRUN_CHECK(reader->header().size() >= 2);
  std::vector<std::string_view> fields;
  std::size_t sum = 0;
  while (true) {
    const poprun::Result<bool> any = reader->next(fields);
    if (!any) {
      poprun::fuzz::check_error(any.error());
      break;
    }
    if (!*any) {
      break;
    }
    POPRUN_CHECK(fields.size() == reader->header().size() && reader->line() > 0);
    for (const std::string_view field : fields) {
      for (const char c : field) {
        sum += static_cast<unsigned char>(c);
      }
    }
  }
  POPRUN_CHECK(sum <= 255 * size);
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  const std::string plain = "a,b\n1,2\n\"3\",\"x \"\"y\"\"\"\r\n";
  const std::string other =
      "\xEF\xBB\xBF"
      "a;b;\"c\nd\"\n1;2;3\n\n4;5;6";
  return {{plain.begin(), plain.end()}, {other.begin(), other.end()}};
}
