#include "hostio/formats/arrow.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "hostio/formats/flat.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

// Numbers of the tables' fields and of the unions' members are those of Arrow's format/Message.fbs and Schema.fbs.
constexpr std::uint64_t kMetadataBytesMax = std::uint64_t{64} << 20;
constexpr std::size_t kListedMax = std::size_t{1} << 24;  ///< Nodes and buffers of a file, 16 bytes each.
constexpr std::uint64_t kValuesMax = std::uint64_t{1} << 40;
constexpr std::size_t kArrowFieldsMax = 4096;
constexpr std::size_t kArrowNameBytesMax = 4096;
constexpr unsigned kArrowDepthMax = 16;
constexpr std::uint32_t kContinuation = 0xFFFFFFFF;

enum class Header : std::uint8_t { kSchema = 1, kDictionary = 2, kBatch = 3 };

/// Reads one file's messages.
class ArrowLister {
 public:
  ArrowLister(const OpenFile& file, std::string name, const FileScope& scope)
      : file_(file), name_(std::move(name)), scope_(scope) {}

  Result<ArrowFile> list() {
    POPRUN_TRY(skip_magic());
    while (true) {
      POPRUN_ASSIGN(const bool any, read_message());
      if (!any) {
        break;
      }
    }
    if (!has_schema_) {
      return damaged("it has no schema");
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> damaged(std::string_view why) const {
    return fail(ErrorCode::kData,
                fmt::format("{}: message at byte {}: {}; write the file again", name_, grouped(begin_), why));
  }

  /// Skips the beginning of the file format, which is a stream in a frame.
  Status skip_magic() {
    constexpr std::string_view kMagic = "ARROW1";
    std::string magic(std::min<std::uint64_t>(file_.size(), kMagic.size()), '\0');
    POPRUN_TRY(read_at(file_, 0, std::as_writable_bytes(std::span(magic)), name_));
    at_ = magic == kMagic ? 8 : 0;
    if (magic.starts_with("PAR1")) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: expected an Arrow stream, found a Parquet file; save the dataset with "
                              "save_to_disk()",
                              name_));
    }
    return {};
  }

  Result<std::uint32_t> word() {
    std::uint32_t value = 0;
    if (file_.size() - at_ < sizeof(value)) {
      return damaged("the file ends within it");
    }
    POPRUN_TRY(read_at(file_, at_, std::as_writable_bytes(std::span(&value, 1)), name_));
    at_ += sizeof(value);
    return value;
  }

  /// Reads a message. Returns false at the end of the stream.
  Result<bool> read_message() {
    begin_ = at_;
    if (at_ >= file_.size()) {
      return false;
    }
    POPRUN_ASSIGN(std::uint32_t size, word());
    if (size == kContinuation) {
      POPRUN_ASSIGN(size, word());
    }
    if (size == 0) {
      return false;
    }
    if (size > kMetadataBytesMax || size > file_.size() - at_) {
      return damaged(fmt::format("its metadata has {} bytes, but the file ends after {}, and the limit is {}",
                                 grouped(size), grouped(file_.size() - at_), grouped(kMetadataBytesMax)));
    }
    std::vector<std::byte> metadata(size);
    POPRUN_TRY(read_at(file_, at_, metadata, name_));
    scope_.advance(size);
    at_ += size;
    FlatBuffer buffer(metadata);
    FlatTable message = FlatTable::root(buffer);
    const auto type = message.scalar<std::uint8_t>(1);
    FlatTable header = message.table(2);
    const auto body = static_cast<std::uint64_t>(message.scalar<std::int64_t>(3));
    if (buffer.is_damaged() || !header.is_present()) {
      return damaged("expected Arrow metadata");
    }
    if (body > file_.size() - at_) {
      return damaged(
          fmt::format("its data has {} bytes, but the file ends after {}", grouped(body), grouped(file_.size() - at_)));
    }
    POPRUN_TRY(take(static_cast<Header>(type), buffer, header, body));
    at_ += body;
    return true;
  }

  Status take(Header type, FlatBuffer& buffer, FlatTable& header, std::uint64_t body) {
    if (type == Header::kSchema && !has_schema_) {
      POPRUN_TRY(take_schema(header));
    } else if (type == Header::kBatch && has_schema_) {
      POPRUN_TRY(take_batch(buffer, header, body));
    } else if (type != Header::kDictionary) {
      return damaged("expected a schema and then record batches");
    }
    return buffer.is_damaged() ? Status(damaged("expected Arrow metadata")) : Status();
  }

  Status take_schema(FlatTable& schema) {
    if (schema.scalar<std::int16_t>(0) != 0) {
      return damaged("the data is big-endian; write the file on a little-endian host");
    }
    const FlatVector fields = schema.vector(1, 4);
    if (fields.count > kArrowFieldsMax) {
      return damaged(fmt::format("the table has {} columns, but the limit is {}", fields.count, kArrowFieldsMax));
    }
    for (std::uint32_t i = 0; i < fields.count; ++i) {
      POPRUN_ASSIGN(ArrowField field, field_of(schema.entry(fields, i), 0));
      nodes_ += arrow_nodes(field);
      buffers_ += arrow_buffers(field);
      result_.fields.push_back(std::move(field));
    }
    has_schema_ = true;
    return {};
  }

  Result<ArrowField> field_of(FlatTable table, unsigned depth) {
    ArrowField field;
    const std::string_view name = table.text(0);
    if (name.size() > kArrowNameBytesMax) {
      return damaged("the name of a column is too long");
    }
    field.name = name;
    const FlatVector children = table.vector(5, 4);
    // Deep or wide schemas, and offsets that form a loop, end here.
    if (depth == kArrowDepthMax || ++fields_ > kArrowFieldsMax) {
      return damaged("the schema is too deep or has too many fields");
    }
    if (!set_type(table, field)) {
      return damaged(fmt::format("column '{}' has a type that is not supported; remove the column or cast it",
                                 printable(field.name)));
    }
    for (std::uint32_t i = 0; i < children.count; ++i) {
      POPRUN_ASSIGN(ArrowField child, field_of(table.entry(children, i), depth + 1));
      field.children.push_back(std::move(child));
    }
    const bool is_list = field.kind == ArrowField::Kind::kList || field.kind == ArrowField::Kind::kFixedList;
    if (is_list && field.children.size() != 1) {
      return damaged("a list must have one child");
    }
    if (table.table(4).is_present()) {
      field.kind = ArrowField::Kind::kOther;  // Indices into a dictionary.
      field.buffers = 2;
      field.children.clear();
    }
    return field;
  }

  /// Sets the kind of the field and the number of its buffers. Returns false if the type is unknown.
  static bool set_type(FlatTable& table, ArrowField& field) {
    using Kind = ArrowField::Kind;
    FlatTable type = table.table(3);
    field.buffers = 2;
    switch (table.scalar<std::uint8_t>(2)) {
      case 1:  // Null.
        field.buffers = 0;
        return true;
      case 2: {  // Int.
        const auto bits = static_cast<std::uint32_t>(type.scalar<std::int32_t>(0));
        field.kind = Kind::kInteger;
        field.width = bits / 8;
        field.is_signed = type.scalar<std::uint8_t>(1) != 0;
        return bits == 8 || bits == 16 || bits == 32 || bits == 64;
      }
      case 3: {  // FloatingPoint.
        const auto precision = static_cast<std::uint16_t>(type.scalar<std::int16_t>(0));
        field.kind = Kind::kFloat;
        field.width = precision > 2 ? 0 : 2U << precision;
        return precision <= 2;
      }
      case 4:   // Binary.
      case 19:  // LargeBinary.
        field.buffers = 3;
        return true;
      case 5:   // Utf8.
      case 20:  // LargeUtf8.
        field.kind = Kind::kText;
        field.width = table.scalar<std::uint8_t>(2) == 5 ? 4 : 8;
        field.buffers = 3;
        return true;
      case 6:  // Bool.
        field.kind = Kind::kBool;
        return true;
      case 7:   // Decimal.
      case 8:   // Date.
      case 9:   // Time.
      case 10:  // Timestamp.
      case 11:  // Interval.
      case 15:  // FixedSizeBinary.
      case 17:  // Map.
      case 18:  // Duration.
        return true;
      case 12:  // List.
      case 21:  // LargeList.
        field.kind = Kind::kList;
        field.width = table.scalar<std::uint8_t>(2) == 12 ? 4 : 8;
        return true;
      case 13:  // Struct.
        field.buffers = 1;
        return true;
      case 16: {  // FixedSizeList.
        const auto size = type.scalar<std::int32_t>(0);
        field.kind = Kind::kFixedList;
        field.buffers = 1;
        field.list_size = static_cast<std::uint64_t>(std::max(size, 0));
        return size > 0;
      }
      default:
        return false;
    }
  }

  Status take_batch(FlatBuffer& buffer, FlatTable& header, std::uint64_t body) {
    const FlatVector nodes = header.vector(1, sizeof(ArrowNode));
    const FlatVector buffers = header.vector(2, sizeof(ArrowBuffer));
    if (header.table(3).is_present()) {
      return damaged("the data is compressed; write the file without compression");
    }
    if (nodes.count != nodes_ || buffers.count != buffers_) {
      return damaged("the batch does not match the schema");
    }
    listed_ += nodes.count + buffers.count;
    if (listed_ > kListedMax) {
      return damaged("the file has too many batches; write it with larger ones");
    }
    ArrowBatch batch{.rows = static_cast<std::uint64_t>(header.scalar<std::int64_t>(0)), .nodes = {}, .buffers = {}};
    for (std::uint32_t i = 0; i < nodes.count; ++i) {
      const std::uint64_t place = nodes.begin + std::uint64_t{16} * i;
      if (buffer.at<std::uint64_t>(place) > kValuesMax) {
        return damaged("a column has too many values");
      }
      batch.nodes.push_back({.length = buffer.at<std::uint64_t>(place), .nulls = buffer.at<std::uint64_t>(place + 8)});
    }
    for (std::uint32_t i = 0; i < buffers.count; ++i) {
      const std::uint64_t place = buffers.begin + std::uint64_t{16} * i;
      ArrowBuffer entry{.offset = buffer.at<std::uint64_t>(place), .bytes = buffer.at<std::uint64_t>(place + 8)};
      if (entry.offset > body || entry.bytes > body - entry.offset) {
        return damaged("a buffer is outside the batch");
      }
      entry.offset += at_;
      batch.buffers.push_back(entry);
    }
    POPRUN_TRY(check_rows(batch));
    result_.batches.push_back(std::move(batch));
    return {};
  }

  /// Checks that each column has as many values as the batch has rows.
  [[nodiscard]] Status check_rows(const ArrowBatch& batch) const {
    std::size_t node = 0;
    for (const ArrowField& field : result_.fields) {
      if (batch.nodes[node].length != batch.rows) {
        return damaged(fmt::format("column '{}' has {} values, but the batch has {} rows", printable(field.name),
                                   grouped(batch.nodes[node].length), grouped(batch.rows)));
      }
      node += arrow_nodes(field);
    }
    return {};
  }

  const OpenFile& file_;
  std::string name_;
  const FileScope& scope_;
  ArrowFile result_;
  bool has_schema_ = false;
  std::size_t fields_ = 0;
  std::size_t nodes_ = 0;    ///< Number of nodes that the schema describes.
  std::size_t buffers_ = 0;  ///< Number of buffers that the schema describes.
  std::size_t listed_ = 0;
  std::uint64_t begin_ = 0;  ///< Position of the current message in the file.
  std::uint64_t at_ = 0;
};

}  // namespace

std::size_t arrow_nodes(const ArrowField& field) {
  std::size_t nodes = 1;
  for (const ArrowField& child : field.children) {
    nodes += arrow_nodes(child);
  }
  return nodes;
}

std::size_t arrow_buffers(const ArrowField& field) {
  std::size_t buffers = field.buffers;
  for (const ArrowField& child : field.children) {
    buffers += arrow_buffers(child);
  }
  return buffers;
}

Result<ArrowFile> list_arrow(const std::filesystem::path& path, const FileScope& scope) {
  POPRUN_ASSIGN(const OpenFile file, OpenFile::open(path, scope));
  return ArrowLister(file, path.string(), scope).list();
}

}  // namespace poprun::hostio
