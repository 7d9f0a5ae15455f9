#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// Lists the columns and record batches of an Apache Arrow file (arrow.apache.org/docs/format/Columnar.html, "IPC
/// Streaming Format"; of the "IPC File Format", the stream inside is read). Only metadata is read. Any input yields a
/// list whose buffers are inside the file, or a one-line error.
namespace poprun::hostio {

struct ArrowField {
  /// kOther is any type whose buffers are known, but whose values are not of use.
  enum class Kind : std::uint8_t { kInteger, kFloat, kBool, kText, kList, kFixedList, kOther };

  std::string name;
  Kind kind = Kind::kOther;
  unsigned width = 0;           ///< Bytes of an integer or float, or of an offset of a text or list.
  bool is_signed = true;        ///< Whether integers are signed.
  std::uint64_t list_size = 0;  ///< Length of each list of a kFixedList.
  unsigned buffers = 0;         ///< Number of its own buffers in a batch.
  std::vector<ArrowField> children;
};

/// Values of one field of a batch. Children follow their parents.
struct ArrowNode {
  std::uint64_t length = 0;
  std::uint64_t nulls = 0;
};

/// Bytes of the file.
struct ArrowBuffer {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ArrowBatch {
  std::uint64_t rows = 0;
  std::vector<ArrowNode> nodes;
  std::vector<ArrowBuffer> buffers;
};

struct ArrowFile {
  std::vector<ArrowField> fields;
  std::vector<ArrowBatch> batches;
};

/// Errors: those of OpenFile::open, and kData, with the offset, if the file is damaged, ends early, is compressed, is
/// big-endian or has types whose layout is unknown.
Result<ArrowFile> list_arrow(const std::filesystem::path& path, const FileScope& scope);

/// Returns the number of nodes, and of buffers, of a field and its children.
std::size_t arrow_nodes(const ArrowField& field);
std::size_t arrow_buffers(const ArrowField& field);

}  // namespace poprun::hostio
