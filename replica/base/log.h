#pragma once

#include <string>
#include <string_view>

/// Log lines for people, on standard error, tagged with their source. Each line is one write(2) of `[<source>] <level>
/// <message>\n`, so that lines of different processes never interleave. The level is I, W or E, or D if verbose. The
/// source is "replica 3 @ host1" for a replica and empty for the launcher.
namespace poprun::log {

enum class Level : unsigned char { kDebug, kInfo, kWarning, kError };

/// Drops lines below `level` from now on. Call before threads start. The default is kInfo.
void set_level(Level level);

/// Writes each line of the message as a line of the log, tagged unless `source` is empty. Thread-safe.
void write(Level level, std::string_view source, std::string_view message);

/// Returns `replica 3 @ host1`, the source of a replica's lines, which the launcher parses.
std::string replica_source(unsigned replica, std::string_view host);

}  // namespace poprun::log
