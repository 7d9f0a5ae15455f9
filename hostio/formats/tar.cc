#include "hostio/formats/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kNameBytesMax = 4096;
constexpr std::uint64_t kExtraBytesMax = 1 << 20;  ///< Limit on the size of a pax header.

using Block = std::array<char, kBlock>;

std::string_view field_of(const Block& block, std::size_t offset, std::size_t size) {
  const std::string_view field(block.data() + offset, size);
  return field.substr(0, field.find('\0'));
}

/// Parses a number: octal digits or, if the first bit is set, big-endian bytes.
std::optional<std::uint64_t> number_of(const Block& block, std::size_t offset, std::size_t size) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(block.at(offset + i)); };
  std::uint64_t value = 0;
  if ((byte(0) & 0x80U) != 0) {
    for (std::size_t i = 0; i < size; ++i) {
      if (value >> 55 != 0) {
        return std::nullopt;
      }
      value = value << 8 | (i == 0 ? byte(0) & 0x7FU : byte(i));
    }
    return value;
  }
  const std::string_view text = trimmed(field_of(block, offset, size));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  return text.empty() || error != std::errc{} || end != text.data() + text.size() ? std::nullopt : std::optional(value);
}

/// Returns whether the checksum is right: the sum of all bytes, with blanks for the checksum itself.
bool has_checksum(const Block& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    sum += i >= 148 && i < 156 ? std::uint64_t{' '} : static_cast<unsigned char>(block.at(i));
  }
  return number_of(block, 148, 8) == sum;
}

/// Fields of a pax header that concern the next file.
struct PaxFields {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
};

/// Parses lines "LENGTH KEY=VALUE\n". Returns false if they are damaged.
bool parse_pax(std::string_view text, PaxFields& fields) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [blank, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto begin = static_cast<std::size_t>(blank - text.data()) + 1;
    if (error != std::errc{} || length > text.size() || length <= begin || *blank != ' ' || text[length - 1] != '\n') {
      return false;
    }
    const std::string_view line = text.substr(begin, length - 1 - begin);
    const std::size_t equals = line.find('=');
    const std::string_view value = line.substr(std::min(line.size(), equals + 1));
    if (line.starts_with("path=")) {
      fields.path = value;
    } else if (line.starts_with("size=")) {
      std::uint64_t size = 0;
      const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (fault != std::errc{} || end != value.data() + value.size()) {
        return false;
      }
      fields.size = size;
    } else if (line.starts_with("GNU.sparse")) {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Result<TarReader> TarReader::open(const std::filesystem::path& archive, const FileScope& scope) {
  POPRUN_ASSIGN(OpenFile file, OpenFile::open(archive, scope));
  return TarReader(std::move(file), archive.string(), scope);
}

tl::unexpected<Error> TarReader::damaged(std::uint64_t offset, std::string_view why) const {
  return fail(ErrorCode::kData,
              fmt::format("{}: header at byte {}: {}; write the archive again", name_, grouped(offset), why));
}

Result<std::string> TarReader::short_contents(std::uint64_t offset, std::uint64_t size) const {
  std::string text(size, '\0');
  POPRUN_TRY(read_at(file_, offset, std::as_writable_bytes(std::span(text)), name_));
  return text;
}

Result<bool> TarReader::next(TarEntry& entry) {
  PaxFields fields;
  while (at_ < file_.size()) {
    const std::uint64_t header = at_;
    Block block{};
    const std::uint64_t there = std::min<std::uint64_t>(kBlock, file_.size() - header);
    POPRUN_TRY(read_at(file_, header, std::as_writable_bytes(std::span(block).first(there)), name_));
    scope_.advance(kBlock);
    if (there == kBlock && std::ranges::all_of(block, [](char c) { return c == '\0'; })) {
      return false;
    }
    if (header == 0 && (field_of(block, 0, 2) == "\x1F\x8B" || field_of(block, 0, 4) == "\x28\xB5\x2F\xFD")) {
      return damaged(header, "the archive is compressed; unpack it to a plain tar file");
    }
    if (there < kBlock) {
      return damaged(header, "the archive ends within it");
    }
    const auto size = number_of(block, 124, 12);
    if (!has_checksum(block) || !size) {
      return damaged(header, "expected a tar header, but its checksum or size is wrong");
    }
    const char type = block[156];
    const bool is_file = type == '0' || type == '\0' || type == '7';
    const std::uint64_t bytes = is_file && fields.size ? *fields.size : *size;
    const std::uint64_t begin = header + kBlock;
    if (bytes > file_.size() - begin) {
      return damaged(header, fmt::format("the file has {} bytes, but the archive ends after {}", grouped(bytes),
                                         grouped(file_.size() - begin)));
    }
    // The padding after the last file may be missing.
    at_ = std::min(file_.size(), begin + (bytes + kBlock - 1) / kBlock * kBlock);
    if (is_file) {
      const std::string_view prefix = field_of(block, 257, 5) == "ustar" ? field_of(block, 345, 155) : "";
      std::string plain = fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "/", field_of(block, 0, 100));
      entry = {.name = fields.path.value_or(std::move(plain)), .offset = begin, .size = bytes};
      return true;
    }
    const bool is_extra = type == 'L' || type == 'x';
    if (is_extra && bytes > (type == 'L' ? kNameBytesMax : kExtraBytesMax)) {
      return damaged(header, fmt::format("its name or pax fields have {} bytes, which is too long", grouped(bytes)));
    }
    if (type == 'L') {
      POPRUN_ASSIGN(std::string name, short_contents(begin, bytes));
      fields.path = name.substr(0, name.find('\0'));
    } else if (type == 'x') {
      POPRUN_ASSIGN(const std::string text, short_contents(begin, bytes));
      if (!parse_pax(text, fields)) {
        return damaged(header, "its pax fields are damaged, or describe a sparse file");
      }
    } else if (type == 'S') {
      return damaged(header, "sparse files are not supported");
    } else {
      fields = {};
    }
  }
  return false;
}

}  // namespace poprun::hostio
