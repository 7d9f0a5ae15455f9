#include "hostio/formats/picture.h"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
// libjpeg's headers need <cstdio>.
#include <jpeglib.h>
// And this one needs jpeglib.h.
#include <jerror.h>
#include <png.h>

#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(magic);
}

bool is_jpeg(std::span<const std::byte> file) {
  return begins_with(file, "\xFF\xD8\xFF");
}

tl::unexpected<Error> undecodable(std::string_view name, std::string_view kind, std::string_view why) {
  return fail(ErrorCode::kData, fmt::format("{}: cannot be decoded as {}: {}; replace or remove the image", name, kind,
                                            printable(why, 200)));
}

/// A JPEG file that is being decoded. libjpeg reports errors by a jump to `escape`, so the functions that set it hold
/// no objects with destructors.
struct Jpeg {
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct info{};
  std::jmp_buf escape{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  explicit Jpeg(std::span<const std::byte> file) : file_(file) {
    constexpr int kScansMax = 500;  // Each scan of a progressive file passes over the whole image.
    progress.progress_monitor = [](j_common_ptr common) {
      auto* jpeg = static_cast<Jpeg*>(common->client_data);
      if (jpeg->info.input_scan_number > kScansMax) {
        jpeg->errors.msg_code = JERR_BAD_PROGRESSION;
        give_up(common);
      }
    };
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = [](j_common_ptr common) { give_up(common); };
    // A warning (level -1) means that the data is damaged, except for those that no decoder minds.
    errors.emit_message = [](j_common_ptr common, int level) {
      const int code = common->err->msg_code;
      if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM && code != JWRN_JFIF_MAJOR &&
          code != JWRN_BOGUS_ICC) {
        give_up(common);
      }
    };
  }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
  ~Jpeg() { jpeg_destroy_decompress(&info); }

  /// Reads the header. Returns false after an error.
  bool read_header() {
    if (setjmp(escape) != 0) {
      return false;
    }
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
    jpeg_read_header(&info, TRUE);
    return true;
  }

  [[nodiscard]] bool is_grey() const { return info.jpeg_color_space == JCS_GRAYSCALE; }
  [[nodiscard]] bool is_cmyk() const { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }

  /// Decodes all rows. `row` has memory for one. Returns false after an error.
  bool decode(std::uint8_t* row, RowResizer& resizer) {
    if (setjmp(escape) != 0) {
      return false;
    }
    info.out_color_space = is_grey() ? JCS_GRAYSCALE : is_cmyk() ? JCS_CMYK : JCS_RGB;
    info.dct_method = JDCT_ISLOW;  // The only one whose results are the same with and without SIMD.
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      jpeg_read_scanlines(&info, &row, 1);
      if (is_cmyk()) {
        to_rgb(row, info.output_width);
      }
      resizer.add(row);
    }
    jpeg_finish_decompress(&info);
    return true;
  }

 private:
  [[noreturn]] static void give_up(j_common_ptr common) {
    auto* jpeg = static_cast<Jpeg*>(common->client_data);
    common->err->format_message(common, jpeg->message.data());
    std::longjmp(jpeg->escape, 1);
  }

  /// Converts pixels in place. Such files store the inverse of CMYK, as Adobe's programs do.
  static void to_rgb(std::uint8_t* row, std::size_t pixels) {
    for (std::size_t i = 0; i < pixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        row[3 * i + c] = static_cast<std::uint8_t>((row[4 * i + c] * row[4 * i + 3] + 127) / 255);
      }
    }
  }

  std::span<const std::byte> file_;
};

/// A PNG file that is being decoded.
struct Png {
  png_image image{};

  Png() { image.version = PNG_IMAGE_VERSION; }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  ~Png() { png_image_free(&image); }

  bool read_header(std::span<const std::byte> file) {
    return png_image_begin_read_from_memory(&image, file.data(), file.size()) != 0;
  }
  [[nodiscard]] bool is_grey() const { return (image.format & PNG_FORMAT_FLAG_COLOR) == 0; }
};

Result<PictureSize> checked_size(std::uint64_t height, std::uint64_t width, bool is_grey, std::string_view name) {
  if (height == 0 || width == 0 || height * width > kPixelsMax) {
    return fail(ErrorCode::kData, fmt::format("{}: the image has {} x {} pixels, but the limit is {} pixels; make it "
                                              "smaller or remove it",
                                              name, width, height, grouped(kPixelsMax)));
  }
  return PictureSize{.height = static_cast<std::uint32_t>(height),
                     .width = static_cast<std::uint32_t>(width),
                     .channels = is_grey ? 1U : 3U};
}

Result<PictureSize> size_of(const Jpeg& jpeg, std::string_view name) {
  return checked_size(jpeg.info.image_height, jpeg.info.image_width, jpeg.is_grey(), name);
}

Result<PictureSize> size_of(const Png& png, std::string_view name) {
  return checked_size(png.image.height, png.image.width, png.is_grey(), name);
}

Status check_kind(std::span<const std::byte> file, std::string_view name) {
  if (is_jpeg(file) || begins_with(file, "\x89PNG\r\n\x1A\n")) {
    return {};
  }
  return fail(ErrorCode::kData, fmt::format("{}: expected a JPEG or PNG image, found {}; replace or remove the image",
                                            name, file.empty() ? "an empty file" : "something else"));
}

Status decode_jpeg(Jpeg& jpeg, const PictureSize& from, const PictureSize& to, std::span<std::byte> out,
                   std::string_view name) {
  RowResizer resizer(from, to, out);
  std::vector<std::uint8_t> row(std::size_t{4} * from.width);
  return jpeg.decode(row.data(), resizer) ? Status() : undecodable(name, "JPEG", jpeg.message.data());
}

Status decode_png(Png& png, const PictureSize& from, const PictureSize& to, std::span<std::byte> out,
                  std::string_view name) {
  const std::size_t row_bytes = std::size_t{from.width} * from.channels;
  std::vector<std::uint8_t> pixels(row_bytes * from.height);
  png.image.format = from.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const png_color black{};
  if (png_image_finish_read(&png.image, &black, pixels.data(), static_cast<png_int_32>(row_bytes), nullptr) == 0) {
    return undecodable(name, "PNG", &png.image.message[0]);
  }
  RowResizer resizer(from, to, out);
  for (std::size_t y = 0; y < from.height; ++y) {
    resizer.add(pixels.data() + y * row_bytes);
  }
  return {};
}

/// Returns a lock that large images wait for, so that only one of them takes memory.
std::unique_lock<std::mutex> turn_of(const PictureSize& size) {
  static std::mutex large;
  std::unique_lock lock(large, std::defer_lock);
  if (std::uint64_t{size.height} * size.width > kPixelsMax / 4) {
    lock.lock();
  }
  return lock;
}

}  // namespace

Result<PictureSize> picture_size(std::span<const std::byte> file, std::string_view name) {
  POPRUN_TRY(check_kind(file, name));
  if (is_jpeg(file)) {
    Jpeg jpeg(file);
    return jpeg.read_header() ? size_of(jpeg, name) : undecodable(name, "JPEG", jpeg.message.data());
  }
  Png png;
  return png.read_header(file) ? size_of(png, name) : undecodable(name, "PNG", &png.image.message[0]);
}

Status decode_picture(std::span<const std::byte> file, const PictureSize& to, std::span<std::byte> out,
                      std::string_view name) {
  POPRUN_TRY(check_kind(file, name));
  if (is_jpeg(file)) {
    Jpeg jpeg(file);
    if (!jpeg.read_header()) {
      return undecodable(name, "JPEG", jpeg.message.data());
    }
    POPRUN_ASSIGN(const PictureSize from, size_of(jpeg, name));
    const auto lock = turn_of(from);
    return decode_jpeg(jpeg, from, to, out, name);
  }
  Png png;
  if (!png.read_header(file)) {
    return undecodable(name, "PNG", &png.image.message[0]);
  }
  POPRUN_ASSIGN(const PictureSize from, size_of(png, name));
  const auto lock = turn_of(from);
  return decode_png(png, from, to, out, name);
}

}  // namespace poprun::hostio
