#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "launcher/options/options.h"
#include "proto/run_config.pb.h"

/// What the text of an option may be. Every kind has
///
///   Read<T> read(const std::string& text) const;
///
/// and never crashes, whatever the text.
namespace poprun::launcher {

/// The value of a text, or what is allowed in its place: "an integer from 1 to 64".
template <typename T>
using Read = tl::expected<T, std::string>;

struct Integer {
  std::uint64_t least;
  std::uint64_t most;

  [[nodiscard]] Read<std::uint64_t> read(const std::string& text) const;
};

/// Finite numbers.
struct Real {
  double least;
  double most;
  bool least_allowed = true;
  bool most_allowed = true;

  [[nodiscard]] Read<double> read(const std::string& text) const;
};

struct Boolean {
  [[nodiscard]] Read<bool> read(const std::string& text) const;
};

/// A boolean, or 2.
struct Verbosity {
  [[nodiscard]] Read<std::uint32_t> read(const std::string& text) const;
};

struct Choice {
  std::vector<std::string> choices;

  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// Any text that can be printed on one line and sent (protobuf carries UTF-8 only), not empty.
struct Text {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// An ECMAScript regular expression.
struct Regex {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// Several words in one text, quoted as in a shell.
struct Words {
  [[nodiscard]] Read<std::vector<std::string>> read(const std::string& text) const;
};

/// As Words, each a Text.
struct Names {
  [[nodiscard]] Read<std::vector<std::string>> read(const std::string& text) const;
};

/// Some integers, separated by blanks or commas.
struct Integers {
  std::int64_t least;
  std::int64_t most;

  [[nodiscard]] Read<std::vector<std::int64_t>> read(const std::string& text) const;
};

/// A number of layers for each stage, one of which may be -1; or `balanced`, which reads as none.
struct LayersPerIpu {
  [[nodiscard]] Read<std::vector<std::int64_t>> read(const std::string& text) const;
};

/// INSTANCE:WORDS.
struct InstanceWords {
  [[nodiscard]] Read<std::pair<std::uint32_t, std::vector<std::string>>> read(
      const std::string& text) const;
};

/// An IPv4 network, ADDRESS/BITS.
struct Subnet {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// An IPv4 or IPv6 address.
struct IpAddress {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

struct HostPort {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// A number above 0, or `auto`, which reads as 0.
struct LossScale {
  [[nodiscard]] Read<double> read(const std::string& text) const;
};

/// A number of steps, or a time with a unit: s, min or h.
struct Interval {
  [[nodiscard]] Read<CheckpointInterval> read(const std::string& text) const;
};

/// REGEX@STEP[,STEP...]; the steps stand after the last @.
struct Dumps {
  [[nodiscard]] Read<std::vector<proto::DumpRequest>> read(const std::string& text) const;
};

/// TILE of each IPU, or IPU:TILE.
struct TileName {
  [[nodiscard]] Read<NamedTile> read(const std::string& text) const;
};

/// KEY=VALUE[,VALUE...], no value twice. Knows no key.
struct Variation {
  struct Value {
    std::string key;
    std::vector<std::string> values;
  };

  [[nodiscard]] Read<Value> read(const std::string& text) const;
};

/// The instruction sets that oneDNN can be held to, the least first, as --cpu-isa names them.
std::vector<std::string> cpu_isas();

/// poprun's booleans: yes no on off true false 1 0.
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace poprun::launcher
