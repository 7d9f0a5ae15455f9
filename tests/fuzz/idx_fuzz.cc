// DEPS: poprun::hostio_datasets ZLIB::ZLIB
#include <span>

#include "hostio/formats/idx.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/hostio/idx_bytes.h"

using poprun::hostio::IdxArray;
using poprun::hostio::IdxShape;
using poprun::hostio::testing::gzip;
using poprun::hostio::testing::idx_bytes;

/// Parses the input as it is, and again after compressing it, so that mutations get past gzip's checksum.
static void parse(std::span<const std::byte> bytes) {
  const poprun::Result<IdxShape> shape = poprun::hostio::parse_idx_shape(bytes, "input");
  const poprun::Result<IdxArray> array = poprun::hostio::parse_idx(bytes, "input");
  if (array) {
    POPRUN_CHECK(shape && shape->dims == array->shape.dims);
    POPRUN_CHECK(array->elements.size() == array->shape.elements);
  } else {
    POPRUN_CHECK(array.error().code == poprun::ErrorCode::kData);
    POPRUN_CHECK(array.error().message.find('\n') == std::string::npos);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(data, size);
  parse(std::as_bytes(input));
  const auto packed = gzip({input.begin(), input.end()});
  parse(std::as_bytes(std::span(packed)));
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  const std::vector<std::uint8_t> images(3 * 28 * 28, 7);
  return {idx_bytes({3, 28, 28}, images), idx_bytes({5}, {0, 1, 2, 3, 4}), gzip(idx_bytes({3, 28, 28}, images)),
          gzip(idx_bytes({2, 3}, {1, 2, 3, 4, 5, 6}))};
}
