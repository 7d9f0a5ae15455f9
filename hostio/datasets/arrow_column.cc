#include "hostio/datasets/arrow_column.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "hostio/datasets/tables.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {

ArrowColumn column_of(const ArrowField& field, std::size_t node, std::size_t buffer) {
  ArrowColumn column{.name = field.name, .node = node, .buffer = buffer, .lists = {}, .leaf = {}};
  const ArrowField* at = &field;
  while (at->kind == ArrowField::Kind::kList || at->kind == ArrowField::Kind::kFixedList) {
    ArrowField list = *at;
    list.children.clear();
    column.lists.push_back(std::move(list));
    at = &at->children[0];
  }
  column.leaf = *at;
  column.leaf.children.clear();
  return column;
}

bool is_useful(const ArrowColumn& column) {
  const bool is_plain = printable(column.name, column.name.size()) == column.name;  // Names occur in messages.
  switch (column.leaf.kind) {
    case ArrowField::Kind::kInteger:
    case ArrowField::Kind::kFloat:
    case ArrowField::Kind::kBool:
      return is_plain;
    case ArrowField::Kind::kText:
      return column.lists.empty() && (column.name == "text" || is_label_name(column.name));
    case ArrowField::Kind::kList:
    case ArrowField::Kind::kFixedList:
    case ArrowField::Kind::kOther:
      break;
  }
  return false;
}

tl::unexpected<Error> BatchReader::damaged(std::string_view why) const {
  return fail(ErrorCode::kData, fmt::format("{}: column '{}': {}; write the file again", place_, column_.name, why));
}

Status BatchReader::check_bytes(std::size_t buffer, std::uint64_t begin, std::uint64_t end) const {
  const std::uint64_t bytes = batch_.buffers[buffer].bytes;
  if (begin > end || end > bytes) {
    return damaged(fmt::format("expected {} bytes of values, found {}", grouped(end), grouped(bytes)));
  }
  return {};
}

Status BatchReader::read_values(std::uint64_t begin, std::span<std::byte> out) const {
  POPRUN_TRY(check_bytes(value_buffer(), begin, begin + out.size()));
  return read_at(file_, batch_.buffers[value_buffer()].offset + begin, out, place_);
}

Result<std::vector<std::byte>> BatchReader::values(std::uint64_t begin, std::uint64_t end) const {
  POPRUN_TRY(check_bytes(value_buffer(), begin, end));
  std::vector<std::byte> bytes(end - begin);
  POPRUN_TRY(read_values(begin, bytes));
  return bytes;
}

Result<Elements> BatchReader::elements(std::uint64_t row, std::uint64_t count) const {
  Elements found{.first = row, .count = count, .row_lengths = {}, .inner_lengths = {}};
  std::size_t buffer = column_.buffer;
  std::size_t node = column_.node;
  for (std::size_t level = 0; level < column_.lists.size(); ++level) {
    const ArrowField& list = column_.lists[level];
    POPRUN_TRY(check_nulls(node, buffer));
    POPRUN_TRY(list.kind == ArrowField::Kind::kList ? enter_list(level, buffer, found)
                                                    : enter_fixed_list(level, found));
    buffer += list.buffers;
    ++node;
    const std::uint64_t length = batch_.nodes[node].length;
    if (found.first > length || found.count > length - found.first) {
      return damaged("a list ends after the last value");
    }
  }
  POPRUN_TRY(check_nulls(node, buffer));
  const std::uint64_t end = found.first + found.count;
  if (column_.leaf.kind != ArrowField::Kind::kText) {
    POPRUN_TRY(check_bytes(value_buffer(), 0,
                           column_.leaf.kind == ArrowField::Kind::kBool ? (end + 7) / 8 : end * column_.leaf.width));
  }
  return found;
}

Result<std::vector<std::uint64_t>> BatchReader::text_ends(std::uint64_t row, std::uint64_t count) const {
  POPRUN_ASSIGN(std::vector<std::uint64_t> ends, offsets(column_.leaf_buffer() + 1, column_.leaf.width, row, count));
  POPRUN_TRY(check_bytes(value_buffer(), ends.front(), ends.back()));
  return ends;
}

/// Reads `count` + 1 offsets from the one with index `first`. They ascend.
Result<std::vector<std::uint64_t>> BatchReader::offsets(std::size_t buffer, unsigned width, std::uint64_t first,
                                                        std::uint64_t count) const {
  if (batch_.buffers[buffer].bytes == 0 && count == 0) {
    return std::vector<std::uint64_t>{0};
  }
  POPRUN_TRY(check_bytes(buffer, first * width, (first + count + 1) * width));
  std::vector<std::byte> raw((count + 1) * width);
  POPRUN_TRY(read_at(file_, batch_.buffers[buffer].offset + first * width, raw, place_));
  std::vector<std::uint64_t> result(count + 1);
  for (std::uint64_t i = 0; i <= count; ++i) {
    std::int64_t value = 0;
    if (width == 4) {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, raw.data() + i * sizeof(narrow), sizeof(narrow));
      value = narrow;
    } else {
      std::memcpy(&value, raw.data() + i * sizeof(value), sizeof(value));
    }
    if (value < 0 || (i > 0 && static_cast<std::uint64_t>(value) < result[i - 1])) {
      return damaged("the offsets of a list do not ascend");
    }
    result[i] = static_cast<std::uint64_t>(value);
  }
  return result;
}

/// Refuses null values. `buffer` is the bitmap of those that are not null.
Status BatchReader::check_nulls(std::size_t node, std::size_t buffer) const {
  constexpr std::uint64_t kPieceBytes = 1 << 20;
  if (batch_.nodes[node].nulls == 0) {
    return {};
  }
  const ArrowBuffer& bitmap = batch_.buffers[buffer];
  std::uint64_t index = batch_.nodes[node].length;
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < bitmap.bytes; at += piece.size()) {
    piece.resize(std::min(bitmap.bytes - at, kPieceBytes));
    POPRUN_TRY(read_at(file_, bitmap.offset + at, piece, place_));
    const auto found = std::ranges::find_if(piece, [](std::byte b) { return b != std::byte{0xFF}; });
    if (found != piece.end()) {
      index = (at + static_cast<std::uint64_t>(found - piece.begin())) * 8 +
              static_cast<std::uint64_t>(std::countr_one(std::to_integer<unsigned char>(*found)));
      break;
    }
  }
  if (index >= batch_.nodes[node].length) {
    return damaged("the number of nulls does not match the bitmap");
  }
  return fail(ErrorCode::kData,
              fmt::format("{}: column '{}': value {} of a batch of {} is null; fill it in or remove the row", place_,
                          column_.name, grouped(index), grouped(batch_.nodes[node].length)));
}

Status BatchReader::enter_list(std::size_t level, std::size_t buffer, Elements& found) const {
  POPRUN_ASSIGN(const auto ends, offsets(buffer + 1, column_.lists[level].width, found.first, found.count));
  std::vector<std::uint64_t> lengths(ends.size() - 1);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = ends[i + 1] - ends[i];
  }
  found.first = ends.front();
  found.count = ends.back() - ends.front();
  if (level == 0) {
    found.row_lengths = std::move(lengths);
    return {};
  }
  const std::uint64_t length = lengths.empty() ? 0 : lengths[0];
  if (std::ranges::any_of(lengths, [&](std::uint64_t other) { return other != length; })) {
    return fail(ErrorCode::kData,
                fmt::format("{}: column '{}': nested lists must have equal lengths; only the outermost may differ",
                            place_, column_.name));
  }
  found.inner_lengths.push_back(length);
  return {};
}

Status BatchReader::enter_fixed_list(std::size_t level, Elements& found) const {
  const std::uint64_t size = column_.lists[level].list_size;
  if (__builtin_mul_overflow(found.first, size, &found.first) ||
      __builtin_mul_overflow(found.count, size, &found.count)) {
    return damaged("a list is too long");
  }
  if (level > 0) {
    found.inner_lengths.push_back(size);
  }
  return {};
}

}  // namespace poprun::hostio
