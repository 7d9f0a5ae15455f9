#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include "replica/base/error.h"
#include "tests/unit/hostio/idx_bytes.h"

/// Hand-made image files and tar archives.
namespace poprun::hostio::testing {

/// Pixels [height, width, channels], with 1 or 3 channels.
struct Picture {
  std::uint32_t height;
  std::uint32_t width;
  std::uint32_t channels;
  Bytes pixels;
};

/// Returns an image whose pixels all have this value.
inline Picture plain_picture(std::uint32_t height, std::uint32_t width, std::uint32_t channels, std::uint8_t value) {
  return {height, width, channels, Bytes(std::size_t{height} * width * channels, value)};
}

inline Bytes png_bytes(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.width;
  image.height = picture.height;
  image.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  POPRUN_CHECK(png_image_write_to_memory(&image, nullptr, &size, 0, picture.pixels.data(), 0, nullptr) != 0);
  Bytes bytes(size);
  POPRUN_CHECK(png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr) != 0);
  bytes.resize(size);
  return bytes;
}

inline Bytes jpeg_bytes(const Picture& picture, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type.
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = picture.width;
  info.image_height = picture.height;
  info.input_components = static_cast<int>(picture.channels);
  info.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) {
    jpeg_simple_progression(&info);
  }
  jpeg_start_compress(&info, TRUE);
  Bytes pixels = picture.pixels;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + std::size_t{info.next_scanline} * picture.width * picture.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc): libjpeg's memory.
  return bytes;
}

/// Returns the header of a tar archive's file, with padding to 512 bytes.
inline Bytes tar_header(const std::string& name, std::uint64_t size, char type = '0') {
  Bytes block(512);
  const auto put = [&](std::size_t at, const std::string& text) {
    std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto octal = [](std::uint64_t value, int digits) {
    std::string text(static_cast<std::size_t>(digits), '0');
    for (auto at = text.rbegin(); at != text.rend(); ++at, value /= 8) {
      *at = static_cast<char>('0' + value % 8);
    }
    return text;
  };
  put(0, name.substr(0, 100));
  put(124, octal(size, 11));
  put(156, std::string(1, type));
  put(257, "ustar");
  put(148, "        ");
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : block) {
    sum += byte;
  }
  put(148, octal(sum, 6) + std::string(1, '\0'));
  return block;
}

inline void append_padded(Bytes& archive, const Bytes& contents) {
  archive.insert(archive.end(), contents.begin(), contents.end());
  archive.resize((archive.size() + 511) / 512 * 512);
}

/// Returns a tar archive; names of more than 100 bytes are stored as GNU tar does.
inline Bytes tar_bytes(const std::vector<std::pair<std::string, Bytes>>& files) {
  Bytes archive;
  for (const auto& [name, contents] : files) {
    if (name.size() > 100) {
      append_padded(archive, tar_header("././@LongLink", name.size() + 1, 'L'));
      append_padded(archive, Bytes(name.c_str(), name.c_str() + name.size() + 1));
    }
    append_padded(archive, tar_header(name, contents.size()));
    append_padded(archive, contents);
  }
  archive.resize(archive.size() + 1024);
  return archive;
}

inline Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace poprun::hostio::testing
