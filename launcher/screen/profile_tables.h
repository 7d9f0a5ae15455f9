#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/screen/drawings.h"
#include "proto/profile.pb.h"
#include "proto/report.pb.h"

/// What the screens of one profile and of two show alike.
namespace poprun::launcher {

/// Rows that tables have without -v, and the most IPUs of which each has a part of its own.
inline constexpr std::size_t kRowsOfTables = 10;
inline constexpr std::size_t kIpusInDetail = 4;

/// The screen that a profile is for.
struct ProfileFrame {
  std::size_t width = 80;
  bool everything = false;  ///< Also each of many IPUs, and more of each.
};

/// Room for the bar of a line that begins with a name of kBarName columns and ends with figures.
inline constexpr std::size_t kBarName = 12;
inline constexpr std::size_t kBarFigures = 28;

/// `text` in at most `width` columns; its end gives way to "..".
std::string shortened(std::string_view text, std::size_t width);

/// `text` in lines of at most `width` columns, broken at blanks, each after `indent` of them; what
/// does not fit `lines` gives way to "..". Ends with a newline.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width,
                    std::size_t lines);

/// "12.3 %", of 0 to 1.
std::string percent(double share);

/// Bytes of a tile's memory with commas, or of an IPU's in MiB.
std::string of_tile(std::uint64_t bytes);

/// The letter of a category in bars: a capital for bytes that are always live.
char letter_of(std::string_view category, bool always_live);

/// What is always live by category, then what is not, then as '-' what the plan leaves unused.
std::vector<BarPart> bar_parts(const proto::Report& report, const proto::CategoryBytes& bytes,
                               std::uint64_t peak);

/// Where the functions of the Program begin.
std::vector<NamedStep> function_beginnings(const proto::Report& report);

std::uint64_t total_cycles(const proto::Cost& cost);

/// Bytes of both kinds.
std::uint64_t bytes_of(const proto::CategoryBytes& bytes, int category);

/// What lives on an IPU at its worst step, largest first.
std::vector<const proto::Variable*> variables_at_peak(const proto::Report& report,
                                                      std::uint32_t ipu);

/// "always live" or "steps 12 to 40", "step 7", "steps 12 to 90, 4 times".
std::string lives_text(const proto::Variable& variable);

/// "all tiles", "tile 7", "tiles 0 to 1,471, 736 of them".
std::string tiles_text(const proto::Variable& variable, std::uint64_t tiles);

/// The operators of a step, those that take longest first.
std::vector<const proto::OperatorRow*> longest_operators(const proto::Report& report);

/// Cycles of a step, all operators added up.
std::uint64_t step_cycles(const proto::Report& report);

/// "conv2d 'conv1'", or what the step does instead.
std::string name_of(const proto::OperatorRow& row);

/// "small-cnn on 1 IPU of mk2".
std::string title_of(const proto::Profile& profile);

/// Tiles of an IPU that exceed their memory.
std::uint64_t overflowing_tiles(const proto::IpuReport& ipu);

}  // namespace poprun::launcher
