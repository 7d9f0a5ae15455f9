#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/pass.h"
#include "replica/graph/graph.h"

/// Declarations that the passes "sequence-slices", "serialisation", "slices" and "accumulation" share.
namespace poprun {

/// The attribute of an operation that is to be sliced. Its value is the number of slices, which is greater than 1. The
/// pass "serialisation" sets the attribute, gradients inherit it, and the pass "slices" removes it. After that pass,
/// the attribute marks a `concat` of a gradient's slices.
inline constexpr const char* kSlices = "slices";

inline bool is_serialised(const CompileOptions& options) {
  return options.serialisation.embedding > 1 || !options.serialisation.matmuls.empty();
}

struct NamedLayer {
  Place place;
  std::size_t index;  ///< The operation's index in its region.
  Operation layer;    ///< The operation as a "linear".
  std::string name;   ///< The name of its output, without the prefix of evaluation.
};

/// Returns the dense layers of all forward passes whose names match `asked`, a setting of the option `key`. Errors:
/// kUsage if there is none; the message suggests the nearest name.
Result<std::vector<NamedLayer>> layers_named(std::string_view key, const SerialisationOptions::Layers& asked,
                                             const Job& job);

struct Piece {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Divides `n` elements into at most `slices` pieces of equal size; the last one may be smaller.
inline std::vector<Piece> pieces_of(std::int64_t n, std::int64_t slices) {
  const std::int64_t size = (n + slices - 1) / slices;
  std::vector<Piece> pieces;
  for (std::int64_t begin = 0; begin < n; begin += size) {
    pieces.push_back({begin, begin + size < n ? size : n - begin});
  }
  return pieces;
}

}  // namespace poprun
