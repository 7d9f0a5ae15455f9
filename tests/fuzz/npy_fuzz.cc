// DEPS: poprun::hostio_datasets ZLIB::ZLIB
#include <filesystem>
#include <span>

#include "hostio/formats/npy.h"
#include "hostio/formats/zip.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/hostio/npy_bytes.h"

using poprun::Result;
using poprun::fuzz::check_error;
using poprun::fuzz::file_with;
using poprun::hostio::NpyHeader;
using poprun::hostio::NpyTarget;
using poprun::hostio::ZipMember;
using poprun::hostio::testing::Bytes;

/// Parses the bytes as an array file.
static void parse_array(std::span<const std::byte> bytes) {
  const Result<NpyHeader> header = poprun::hostio::parse_npy_header(bytes, "input");
  if (!header) {
    check_error(header.error());
    return;
  }
  POPRUN_CHECK(header->data_begin <= bytes.size());
  const auto data = bytes.subspan(header->data_begin);
  for (const auto element : {NpyTarget::Element::kI32, NpyTarget::Element::kF32}) {
    const auto elements = npy_elements(*header, {data.begin(), data.end()},
                                       {.element = element, .channels_last = header->shape.size() == 4}, "input");
    if (elements) {
      POPRUN_CHECK(elements->size() == 4 * header->elements);
    } else {
      check_error(elements.error());
    }
  }
}

/// Parses the input as an array, and as an archive of arrays.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  parse_array(bytes);
  const std::filesystem::path archive = file_with(bytes);
  const Result<std::vector<ZipMember>> members = poprun::hostio::zip_members(archive);
  if (!members) {
    check_error(members.error());
    return 0;
  }
  for (const ZipMember& member : *members) {
    const auto begin = poprun::hostio::read_member(archive, {}, member, 100);
    const auto whole = poprun::hostio::read_member(archive, {}, member);
    if (!whole) {
      check_error(whole.error());
      continue;
    }
    POPRUN_CHECK(whole->size() == member.size && begin);
    parse_array(*whole);
  }
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using poprun::hostio::testing::npy_bytes;
  using poprun::hostio::testing::zip_bytes;
  const Bytes images = npy_bytes("|u1", "(2, 1, 2, 3)", Bytes(12, 7));
  const Bytes doubles = npy_bytes(">f8", "(3, 2)", Bytes(48, 0x40), true);
  return {images, doubles, zip_bytes({{"x.npy", images}, {"y.npy", doubles}}), zip_bytes({{"x.npy", images}}, true),
          zip_bytes({{"x.npy", doubles}}, true, true)};
}
