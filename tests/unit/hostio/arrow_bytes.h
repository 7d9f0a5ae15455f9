#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/hostio/npy_bytes.h"

/// Hand-made Arrow streams, which follow format/Message.fbs and format/Schema.fbs of Apache Arrow.
namespace poprun::hostio::testing {

/// Writes something at the end of a buffer, and returns its position.
using FlatWrite = std::function<std::size_t(Bytes&)>;

/// A field of a FlatBuffers table: a scalar, or something to which the table refers.
struct FlatField {
  unsigned id;
  std::uint64_t scalar = 0;
  FlatWrite child = nullptr;
};

inline void align(Bytes& out) {
  out.resize((out.size() + 7) / 8 * 8);
}

inline void patch(Bytes& out, std::size_t at, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) {
    out[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

/// Writes a table whose fields take 8 bytes each, then what it refers to.
inline std::size_t flat_table(Bytes& out, const std::vector<FlatField>& fields) {
  unsigned count = 0;
  for (const FlatField& field : fields) {
    count = std::max(count, field.id + 1);
  }
  align(out);
  const std::size_t slots = out.size();
  append(out, 4 + 2 * count, 2);
  append(out, 8 + 8 * fields.size(), 2);
  out.resize(out.size() + 2 * count);
  align(out);
  const std::size_t table = out.size();
  append(out, table - slots, 8);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    patch(out, slots + 4 + 2 * fields[i].id, 8 + 8 * i, 2);
    append(out, fields[i].scalar, 8);
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].child != nullptr) {
      const std::size_t place = table + 8 + 8 * i;
      patch(out, place, fields[i].child(out) - place, 4);
    }
  }
  return table;
}

inline FlatWrite flat_text(const std::string& text) {
  return [text](Bytes& out) {
    align(out);
    const std::size_t at = out.size();
    append(out, text.size(), 4);
    out.insert(out.end(), text.begin(), text.end());
    out.push_back(0);
    return at;
  };
}

/// Writes a vector of tables.
inline FlatWrite flat_tables(const std::vector<FlatWrite>& tables) {
  return [tables](Bytes& out) {
    align(out);
    const std::size_t at = out.size();
    append(out, tables.size(), 4);
    out.resize(out.size() + 4 * tables.size());
    for (std::size_t i = 0; i < tables.size(); ++i) {
      const std::size_t place = at + 4 + 4 * i;
      patch(out, place, tables[i](out) - place, 4);
    }
    return at;
  };
}

/// Writes a vector of structs of 8-byte numbers.
inline FlatWrite flat_numbers(const std::vector<std::uint64_t>& numbers, std::size_t per_struct) {
  return [numbers, per_struct](Bytes& out) {
    align(out);
    out.resize(out.size() + 4);
    const std::size_t at = out.size();
    append(out, numbers.size() / per_struct, 4);
    for (const std::uint64_t number : numbers) {
      append(out, number, 8);
    }
    return at;
  };
}

/// A column with its values. `buffers` do not include the bitmap of nulls.
struct ArrowArray {
  std::string name;
  std::uint8_t type = 0;
  std::vector<FlatField> type_fields{};
  std::uint64_t length = 0;
  std::vector<Bytes> buffers{};
  std::vector<ArrowArray> children{};
  Bytes bitmap{};
  std::uint64_t nulls = 0;
};

inline ArrowArray arrow_integers(const std::string& name, const std::vector<std::int64_t>& values, unsigned width = 8,
                                 bool is_signed = true) {
  return {.name = name,
          .type = 2,
          .type_fields = {{.id = 0, .scalar = 8 * width}, {.id = 1, .scalar = is_signed ? 1U : 0U}},
          .length = values.size(),
          .buffers = {integers(values, static_cast<int>(width))}};
}

inline ArrowArray arrow_floats(const std::string& name, const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {
      .name = name, .type = 3, .type_fields = {{.id = 0, .scalar = 1}}, .length = values.size(), .buffers = {bytes}};
}

inline Bytes arrow_offsets(const std::vector<std::uint64_t>& lengths) {
  std::vector<std::int64_t> ends{0};
  for (const std::uint64_t length : lengths) {
    ends.push_back(ends.back() + static_cast<std::int64_t>(length));
  }
  return integers(ends, 4);
}

inline ArrowArray arrow_texts(const std::string& name, const std::vector<std::string>& texts) {
  std::vector<std::uint64_t> lengths;
  Bytes bytes;
  for (const std::string& text : texts) {
    lengths.push_back(text.size());
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  return {.name = name, .type = 5, .length = texts.size(), .buffers = {arrow_offsets(lengths), bytes}};
}

inline ArrowArray arrow_lists(const std::string& name, const std::vector<std::uint64_t>& lengths, ArrowArray values) {
  values.name = "item";
  return {.name = name,
          .type = 12,
          .length = lengths.size(),
          .buffers = {arrow_offsets(lengths)},
          .children = {std::move(values)}};
}

inline ArrowArray arrow_fixed_lists(const std::string& name, std::uint64_t size, ArrowArray values) {
  values.name = "item";
  const std::uint64_t length = values.length / size;
  return {.name = name,
          .type = 16,
          .type_fields = {{.id = 0, .scalar = size}},
          .length = length,
          .children = {std::move(values)}};
}

inline FlatWrite arrow_field(const ArrowArray& array) {
  return [array](Bytes& out) {
    std::vector<FlatWrite> children;
    for (const ArrowArray& child : array.children) {
      children.push_back(arrow_field(child));
    }
    return flat_table(out, {{.id = 0, .child = flat_text(array.name)},
                            {.id = 2, .scalar = array.type},
                            {.id = 3, .child = [&](Bytes& to) { return flat_table(to, array.type_fields); }},
                            {.id = 5, .child = flat_tables(children)}});
  };
}

inline void arrow_message(Bytes& file, std::uint8_t type, const FlatWrite& header, const Bytes& body) {
  Bytes metadata(8);
  const std::size_t root = flat_table(metadata, {{.id = 0, .scalar = 4},
                                                 {.id = 1, .scalar = type},
                                                 {.id = 2, .child = header},
                                                 {.id = 3, .scalar = body.size()}});
  patch(metadata, 0, root, 4);
  align(metadata);
  append(file, 0xFFFFFFFF, 4);
  append(file, metadata.size(), 4);
  file.insert(file.end(), metadata.begin(), metadata.end());
  file.insert(file.end(), body.begin(), body.end());
}

/// Appends the nodes and buffers of a column and its children.
inline void arrow_layout(const ArrowArray& array, std::vector<std::uint64_t>& nodes,
                         std::vector<std::uint64_t>& buffers, Bytes& body) {
  nodes.insert(nodes.end(), {array.length, array.nulls});
  const auto add = [&](const Bytes& bytes) {
    buffers.insert(buffers.end(), {body.size(), bytes.size()});
    body.insert(body.end(), bytes.begin(), bytes.end());
    align(body);
  };
  add(array.bitmap);
  for (const Bytes& bytes : array.buffers) {
    add(bytes);
  }
  for (const ArrowArray& child : array.children) {
    arrow_layout(child, nodes, buffers, body);
  }
}

/// Returns a stream of record batches; all have the columns of the first.
inline Bytes arrow_bytes(const std::vector<std::vector<ArrowArray>>& batches) {
  Bytes file;
  std::vector<FlatWrite> fields;
  for (const ArrowArray& array : batches[0]) {
    fields.push_back(arrow_field(array));
  }
  arrow_message(file, 1, [&](Bytes& out) { return flat_table(out, {{.id = 1, .child = flat_tables(fields)}}); }, {});
  for (const std::vector<ArrowArray>& batch : batches) {
    std::vector<std::uint64_t> nodes;
    std::vector<std::uint64_t> buffers;
    Bytes body;
    for (const ArrowArray& array : batch) {
      arrow_layout(array, nodes, buffers, body);
    }
    arrow_message(
        file, 3,
        [&](Bytes& out) {
          return flat_table(out, {{.id = 0, .scalar = batch[0].length},
                                  {.id = 1, .child = flat_numbers(nodes, 2)},
                                  {.id = 2, .child = flat_numbers(buffers, 2)}});
        },
        body);
  }
  append(file, 0xFFFFFFFF, 4);
  append(file, 0, 4);
  return file;
}

}  // namespace poprun::hostio::testing
