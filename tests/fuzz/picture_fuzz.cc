// DEPS: poprun::hostio_datasets ZLIB::ZLIB JPEG::JPEG PNG::PNG
#include "hostio/formats/picture.h"
#include "hostio/formats/tar.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/hostio/picture_bytes.h"

using poprun::hostio::PictureSize;

static void decode(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kFewPixels = 1 << 20;  // Larger ones would take the fuzzer's time.
  const poprun::Result<PictureSize> size = poprun::hostio::picture_size(bytes, "input");
  if (!size) {
    poprun::fuzz::check_error(size.error());
    return;
  }
  if (std::uint64_t{size->height} * size->width > kFewPixels) {
    return;
  }
  for (const PictureSize& to : {PictureSize{.height = 7, .width = 5, .channels = 3}, *size}) {
    std::vector<std::byte> out(std::size_t{to.channels} * to.height * to.width);
    const poprun::Status status = poprun::hostio::decode_picture(bytes, to, out, "input");
    if (!status) {
      poprun::fuzz::check_error(status.error());
    }
  }
}

/// Decodes the input as an image, and lists it as an archive of images.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  decode(bytes);
  auto tar = poprun::hostio::TarReader::open(poprun::fuzz::file_with(bytes), {});
  poprun::hostio::TarEntry entry;
  while (tar) {
    const poprun::Result<bool> any = tar->next(entry);
    if (!any) {
      poprun::fuzz::check_error(any.error());
      break;
    }
    if (!*any) {
      break;
    }
    POPRUN_CHECK(entry.offset <= size && entry.size <= size - entry.offset);
    decode(bytes.subspan(entry.offset, entry.size));
  }
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using poprun::hostio::testing::jpeg_bytes;
  using poprun::hostio::testing::plain_picture;
  using poprun::hostio::testing::png_bytes;
  const auto jpeg = jpeg_bytes(plain_picture(9, 12, 3, 80));
  const auto png = png_bytes(plain_picture(5, 3, 1, 9));
  return {jpeg, jpeg_bytes(plain_picture(16, 16, 1, 3), true), png, png_bytes(plain_picture(2, 9, 3, 200)),
          poprun::hostio::testing::tar_bytes({{"a.jpg", jpeg}, {std::string(120, 'a') + ".png", png}})};
}
