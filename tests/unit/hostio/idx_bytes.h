#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "replica/base/error.h"
#include "tests/unit/temporary_folder.h"

/// Hand-made IDX files, and a folder for them.
namespace poprun::hostio::testing {

using poprun::testing::TemporaryFolder;
using Bytes = std::vector<std::uint8_t>;

/// Returns an IDX file of unsigned bytes.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& dims, const Bytes& elements) {
  Bytes bytes = {0, 0, 8, static_cast<std::uint8_t>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(dim >> shift));
    }
  }
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

/// Returns `plain` compressed by zlib; `window_bits` selects the header (zlib.h, deflateInit2).
inline Bytes deflated(Bytes plain, int window_bits) {
  z_stream zlib{};
  POPRUN_CHECK(deflateInit2(&zlib, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&zlib, plain.size()) + 32);
  zlib.next_in = plain.data();
  zlib.avail_in = static_cast<uInt>(plain.size());
  zlib.next_out = packed.data();
  zlib.avail_out = static_cast<uInt>(packed.size());
  POPRUN_CHECK(deflate(&zlib, Z_FINISH) == Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

inline Bytes gzip(Bytes plain) {
  return deflated(std::move(plain), 15 + 16);
}

/// Writes images of 2 x 3 pixels. The pixels of item i are first + i, and its label is (first + i) % 5.
inline void write_images(const TemporaryFolder& folder, const std::string& prefix, std::uint32_t items,
                         std::uint8_t first) {
  Bytes pixels;
  Bytes labels;
  for (std::uint32_t i = 0; i < items; ++i) {
    pixels.insert(pixels.end(), 6, static_cast<std::uint8_t>(first + i));
    labels.push_back(static_cast<std::uint8_t>((first + i) % 5));
  }
  (void)folder.write(prefix + "-images-idx3-ubyte", idx_bytes({items, 2, 3}, pixels));
  (void)folder.write(prefix + "-labels-idx1-ubyte.gz", gzip(idx_bytes({items}, labels)));
}

}  // namespace poprun::hostio::testing
