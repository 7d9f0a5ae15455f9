#pragma once

#include <string>
#include <string_view>

/// Lines for people, on standard error, tagged at their source.
///
/// A line is one write(2) of `[<source>] <level> <message>\n`, so that lines of many processes never interleave inside
/// a line. Level is I, W or E; D when verbose. Sources are set once per thread group: "replica 3 @ host1" in a replica,
/// nothing in the launcher.
namespace poprun::log {

enum class Level : unsigned char { kDebug, kInfo, kWarning, kError };

/// Lines below `level` are dropped from now on. Call before threads start. Default kInfo.
void set_level(Level level);

/// Writes one line. `source` may be empty, then the tag is left out. Newlines in `message` become several tagged lines.
/// Thread-safe.
void write(Level level, std::string_view source, std::string_view message);

/// `replica 3 @ host1`, the source of a replica's lines; the launcher parses it back.
std::string replica_source(unsigned replica, std::string_view host);

}  // namespace poprun::log
