#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/screen/drawings.h"
#include "proto/profile.pb.h"
#include "proto/report.pb.h"

/// Functions that the screens for one profile and for two profiles share.
namespace poprun::launcher {

/// Largest numbers of rows in a table, and of IPUs with a section of their own, unless -v is given.
inline constexpr std::size_t kRowsOfTables = 10;
inline constexpr std::size_t kIpusInDetail = 4;

struct ProfileFrame {
  std::size_t width = 80;
  bool everything = false;   ///< Show every IPU, even if there are many, with more details.
  bool whole_names = false;  ///< Let lines be longer than `width` instead of cutting names and plans.

  /// Returns the width at which lines with names and plans are cut.
  [[nodiscard]] std::size_t cut() const { return whole_names ? std::string::npos : width; }
};

/// Number of columns for the name before a bar.
inline constexpr std::size_t kBarName = 12;

/// Shortens `text` to at most `width` columns, with ".." in place of its end.
std::string shortened(std::string_view text, std::size_t width);

/// Wraps `text` at spaces into lines of at most `width` columns, indented by `indent` spaces. ".." replaces the text
/// that does not fit into `lines` lines. The result ends with a newline.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width, std::size_t lines);

/// Formats a share from 0 to 1 as "12.3 %".
std::string percent(double share);

/// Formats a relative change: "+1.5 %", or nothing if `from` is 0.
std::string change(double from, double to);

/// Formats a number of bytes in a tile's memory, with thousands separators: "1,234 B".
std::string of_tile(std::uint64_t bytes);

/// Returns the letter that represents a category in bars: a capital for bytes that are always live.
char letter_of(std::string_view category, bool always_live);

/// Returns the parts of a bar: first the bytes that are always live, by category, then the other live bytes, by
/// category, and finally, as '-', the bytes that the plan leaves unused.
std::vector<BarPart> bar_parts(const proto::Report& report, const proto::CategoryBytes& bytes, std::uint64_t peak);

/// Formats a line of `width` columns with a name, a bar (see memory_bar) and figures.
std::string bar_line(const std::string& name, const std::vector<BarPart>& parts, std::uint64_t limit, std::size_t width,
                     const std::string& figures, std::uint64_t scale = 0);

/// Formats the line below a curve that describes peak `number` of the curve, in at most `width` columns.
std::string peak_line(std::size_t number, const proto::Peak& peak, std::uint64_t limit, std::size_t width);

std::vector<NamedStep> function_beginnings(const proto::Report& report);

std::uint64_t total_cycles(const proto::Cost& cost);

/// Returns the bytes of a category, whether or not they are always live.
std::uint64_t bytes_of(const proto::CategoryBytes& bytes, int category);

/// Returns the variables that are live on an IPU at its worst step, the largest first.
std::vector<const proto::Variable*> variables_at_peak(const proto::Report& report, std::uint32_t ipu);

/// Formats a variable's live range: "always live" or "steps 12 to 40", "step 7", "steps 12 to 90, 4 times".
std::string lives_text(const proto::Variable& variable);

/// Formats the tiles of a variable: "all tiles", "tile 7", "tiles 0 to 1,471, 736 of them".
std::string tiles_text(const proto::Variable& variable, std::uint64_t tiles);

/// All operators of one kind in a step.
struct KindRow {
  std::string kind;
  std::uint64_t calls = 0;
  std::uint64_t cycles = 0;
  std::uint64_t flops = 0;  ///< 0 unless the operator is a convolution or a matmul.
  double seconds = 0;       ///< Wall time on this machine.
};

/// Returns a row for each kind of operator, and one for waiting, those with the most wall time first. Requires: the
/// profile has wall times of steps.
std::vector<KindRow> kinds_of_operators(const proto::Profile& profile);

/// Returns the operators of a step, those with the most cycles first.
std::vector<const proto::OperatorRow*> longest_operators(const proto::Report& report);

/// Returns the cycles of a step, summed over all operators.
std::uint64_t step_cycles(const proto::Report& report);

/// Returns "conv2d 'conv1'", or only the operation if the operator has no name.
std::string name_of(const proto::OperatorRow& row);

/// Returns "small-cnn on 1 IPU of mk2".
std::string title_of(const proto::Profile& profile);

/// Returns the number of an IPU's tiles that exceed their memory.
std::uint64_t overflowing_tiles(const proto::IpuReport& ipu);

}  // namespace poprun::launcher
