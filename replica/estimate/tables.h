#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/estimate/estimate.h"
#include "replica/program/program.h"

/// Estimates as `poprun-emu estimate` prints them, in 80 columns; names of layers may be longer.
namespace poprun {

/// Live bytes of all IPUs, each at its fullest step, by what they are for (000 3.5).
struct Shares {
  Bytes vertex;    ///< Code and state of vertices.
  Bytes control;   ///< Control code.
  Bytes exchange;  ///< Code for exchanges: between tiles, IPUs and with the host.
  Bytes data;      ///< The rest: tensors, temporary values and buffers, with the gaps they need.

  [[nodiscard]] Bytes total() const { return vertex + control + exchange + data; }
};

/// The needs of a job according to the compiler.
struct CompiledNeed {
  std::int64_t ipus = 0;
  Bytes peaks;         ///< All IPUs' added up.
  Bytes fullest_tile;  ///< Its peak, of all IPUs' tiles.
  bool fits = true;    ///< All IPUs.
  Shares shares;
};

/// Requires: the Program has a layout for each IPU.
CompiledNeed compiled_need(const Program& program);

/// Parameters by kind of block; the guide's totals; the job's own; IPUs suggested.
std::string estimate_text(const Estimate& estimate);

/// A row for each layer; with `blocks` below it one for each block, with its formula.
std::string layers_text(const Estimate& estimate, bool blocks);

/// A row for each IPU of the compiled job, and all of them beside the estimate. Requires: the Program has a layout for
/// each IPU.
std::string compiled_text(const Estimate& estimate, const Program& program, bool all_ipus);

/// One value of what is varied.
struct VariedRow {
  std::string value;
  std::int64_t parameters = 0;
  Bytes estimated;
  std::int64_t ipus = 1;  ///< Suggested.
  std::optional<CompiledNeed> compiled = std::nullopt;
};
VariedRow varied_row(const std::string& value, const Estimate& estimate, const std::optional<CompiledNeed>& compiled);

/// The rows; below them, where the values are whole numbers, what each 1 more adds, from the first row to the last.
/// Then, where they were compiled, the same for the shares. Requires: either all rows have what was compiled, or none.
std::string varied_text(const std::string& key, const std::vector<VariedRow>& rows);

}  // namespace poprun
