#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace poprun::planner {

/// Into how many parts each dimension of a viewed product is cut. Parallel parts lie on different
/// tiles, serial ones are computed one after the other by the same tiles.
///
/// Members are in the order of tiles, outermost first (ipu.md 2.3): tiles that differ only in their
/// output channels are neighbours and read the same inputs. Plans of equal cost are ordered by
/// these numbers.
struct Splits {
  std::int64_t groups = 1;
  std::int64_t inputs = 1;  ///< Input channels.
  std::int64_t kernel = 1;  ///< Rows of the kernel.
  std::int64_t batch = 1;
  std::int64_t rows = 1;     ///< The output field's.
  std::int64_t columns = 1;  ///< The output field's.
  std::int64_t outputs = 1;  ///< Output channels.
  std::int64_t serial_inputs = 1;
  std::int64_t serial_outputs = 1;

  /// Tiles that hold the parts of one output.
  [[nodiscard]] std::int64_t reduction_depth() const { return inputs * kernel; }
  /// Tiles that read the same weights.
  [[nodiscard]] std::int64_t positions() const { return batch * rows * columns; }
  [[nodiscard]] std::int64_t tiles() const {
    return groups * reduction_depth() * positions() * outputs;
  }
  [[nodiscard]] std::int64_t serial() const { return serial_inputs * serial_outputs; }

  friend auto operator<=>(const Splits&, const Splits&) = default;
};

/// `batch 4 x rows 14 x outputs 2, serial inputs 4`; `1 tile` if nothing is cut.
std::string to_text(const Splits& splits);

}  // namespace poprun::planner
