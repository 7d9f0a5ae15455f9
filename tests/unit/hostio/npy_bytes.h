#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "tests/unit/hostio/idx_bytes.h"

/// Hand-made NumPy files, which follow numpy/lib/format.py and APPNOTE.TXT.
namespace poprun::hostio::testing {

inline void append(Bytes& bytes, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
}

/// Returns a .npy file with this header and these element bytes.
inline Bytes npy_with_header(const std::string& header, const Bytes& elements, std::uint8_t version = 1) {
  Bytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', version, 0};
  append(bytes, header.size(), version == 1 ? 2 : 4);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

/// Returns a .npy file; `type` is like "<f4", `shape` like "(2, 3)".
inline Bytes npy_bytes(const std::string& type, const std::string& shape, const Bytes& elements, bool fortran = false) {
  return npy_with_header(
      "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }   \n",
      elements);
}

/// Returns little-endian elements of `width` bytes.
inline Bytes integers(const std::vector<std::int64_t>& values, int width) {
  Bytes bytes;
  for (const std::int64_t value : values) {
    append(bytes, static_cast<std::uint64_t>(value), width);
  }
  return bytes;
}

/// Returns an archive like np.savez's or, with `compressed`, like np.savez_compressed's; `large` adds the 64-bit fields
/// that an archive beyond 4 GiB has.
inline Bytes zip_bytes(const std::vector<std::pair<std::string, Bytes>>& members, bool compressed = false,
                       bool large = false) {
  Bytes archive;
  Bytes directory;
  for (const auto& [name, plain] : members) {
    const Bytes data = compressed ? deflated(plain, -15) : plain;
    const std::uint64_t begin = archive.size();
    const auto facts = [&](Bytes& to, std::uint64_t packed_size, std::uint64_t size) {
      append(to, 0, 2);                   // Flags.
      append(to, compressed ? 8 : 0, 2);  // Method.
      append(to, 0, 4);                   // Time and date.
      append(to, crc32_z(0, plain.data(), plain.size()), 4);
      append(to, packed_size, 4);
      append(to, size, 4);
      append(to, name.size(), 2);
    };
    append(archive, 0x04034B50, 4);
    append(archive, 45, 2);
    facts(archive, 0xFFFFFFFF, 0xFFFFFFFF);
    append(archive, 20, 2);
    archive.insert(archive.end(), name.begin(), name.end());
    append(archive, 1, 2);
    append(archive, 16, 2);
    append(archive, plain.size(), 8);
    append(archive, data.size(), 8);
    archive.insert(archive.end(), data.begin(), data.end());

    append(directory, 0x02014B50, 4);
    append(directory, 45, 2);
    append(directory, 45, 2);
    facts(directory, large ? 0xFFFFFFFF : data.size(), large ? 0xFFFFFFFF : plain.size());
    append(directory, large ? 28 : 0, 2);
    directory.resize(directory.size() + 10);  // Comment, disk, attributes.
    append(directory, large ? 0xFFFFFFFF : begin, 4);
    directory.insert(directory.end(), name.begin(), name.end());
    if (large) {
      append(directory, 1, 2);
      append(directory, 24, 2);
      append(directory, plain.size(), 8);
      append(directory, data.size(), 8);
      append(directory, begin, 8);
    }
  }
  const std::uint64_t begin = archive.size();
  archive.insert(archive.end(), directory.begin(), directory.end());
  if (large) {
    const std::uint64_t record = archive.size();
    append(archive, 0x06064B50, 4);
    append(archive, 44, 8);
    archive.resize(archive.size() + 12);  // Versions, disks.
    append(archive, members.size(), 8);
    append(archive, members.size(), 8);
    append(archive, directory.size(), 8);
    append(archive, begin, 8);
    append(archive, 0x07064B50, 4);
    append(archive, 0, 4);
    append(archive, record, 8);
    append(archive, 1, 4);
  }
  append(archive, 0x06054B50, 4);
  append(archive, 0, 4);
  append(archive, members.size(), 2);
  append(archive, members.size(), 2);
  append(archive, directory.size(), 4);
  append(archive, large ? 0xFFFFFFFF : begin, 4);
  append(archive, 0, 2);
  return archive;
}

}  // namespace poprun::hostio::testing
