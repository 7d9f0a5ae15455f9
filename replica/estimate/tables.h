#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/estimate/estimate.h"
#include "replica/program/program.h"

/// Formats estimates as `poprun-emu estimate` prints them, in 80 columns; names of layers may be longer.
namespace poprun {

/// Live bytes of all IPUs, each at its fullest step, by purpose (000 3.5).
struct Shares {
  Bytes vertex;    ///< Code and state of vertices.
  Bytes control;   ///< Control code.
  Bytes exchange;  ///< Code for exchanges between tiles, between IPUs and with the host.
  Bytes data;      ///< The rest: tensors, temporary values and buffers, with the gaps they need.

  [[nodiscard]] Bytes total() const { return vertex + control + exchange + data; }
};

/// The needs of a job according to the compiler.
struct CompiledNeed {
  std::int64_t ipus = 0;
  Bytes peaks;         ///< Sum over all IPUs.
  Bytes fullest_tile;  ///< Peak of the fullest tile of all IPUs.
  bool fits = true;    ///< Whether all IPUs fit.
  Shares shares;
};

/// Returns the needs of a compiled job. Requires: the Program has a layout for each IPU.
CompiledNeed compiled_need(const Program& program);

/// Returns the parameters by kind of block, the guide's totals, the job's own totals and the suggested number of IPUs.
std::string estimate_text(const Estimate& estimate);

/// Returns a row per layer and, if `blocks` is true, a row below it for each of its blocks, with the formula.
std::string layers_text(const Estimate& estimate, bool blocks);

/// Returns rows for the IPUs of the compiled job, and compares their sum with the estimate. Requires: the Program has a
/// layout for each IPU.
std::string compiled_text(const Estimate& estimate, const Program& program, bool all_ipus);

/// Results for one value of the varied key.
struct VariedRow {
  std::string value;
  std::int64_t parameters = 0;
  Bytes estimated;
  std::int64_t ipus = 1;  ///< Suggested number.
  std::optional<CompiledNeed> compiled = std::nullopt;
};
VariedRow varied_row(const std::string& value, const Estimate& estimate, const std::optional<CompiledNeed>& compiled);

/// Returns the rows and, if the values are whole numbers, the mean growth per unit from the first row to the last.
/// If the rows were compiled, returns the same for the shares after that. Requires: either all rows have `compiled`, or
/// none.
std::string varied_text(const std::string& key, const std::vector<VariedRow>& rows);

}  // namespace poprun
