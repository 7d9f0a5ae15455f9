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
#include "replica/choices/choices.h"

/// Kinds of option values. Each has `Read<T> read(const std::string& text) const`, which must not crash on any text.
namespace poprun::launcher {

/// The value of a text or, if the text is invalid, a description of the allowed values: "an integer from 1 to 64".
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

/// A boolean or the number 2.
struct Verbosity {
  [[nodiscard]] Read<std::uint32_t> read(const std::string& text) const;
};

struct Choice {
  std::vector<std::string> choices;

  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// A value of an enum of replica/choices/choices.h.
template <Chosen Enum>
struct OneOf {
  std::vector<std::string> choices = all_words<Enum>();

  [[nodiscard]] Read<Enum> read(const std::string& text) const {
    return Choice{choices}.read(text).map([](const std::string& word) { return choice_of<Enum>(word); });
  }
};

/// A framework of replica/device/calibration.h, or a number of seconds. "none" becomes "".
struct HostCall {
  [[nodiscard]] Read<std::string> read(const std::string& text) const;
};

/// Any non-empty text that can be printed on one line. It must be UTF-8, since it is sent in protobuf messages.
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

/// Several words, each a Text.
struct Names {
  [[nodiscard]] Read<std::vector<std::string>> read(const std::string& text) const;
};

/// Several integers, separated by spaces or commas.
struct Integers {
  std::int64_t least;
  std::int64_t most;

  [[nodiscard]] Read<std::vector<std::int64_t>> read(const std::string& text) const;
};

/// The number of layers of each stage, one of which may be -1; or `balanced`, which is read as an empty list.
struct LayersPerIpu {
  [[nodiscard]] Read<std::vector<std::int64_t>> read(const std::string& text) const;
};

/// INSTANCE:WORDS.
struct InstanceWords {
  [[nodiscard]] Read<std::pair<std::uint32_t, std::vector<std::string>>> read(const std::string& text) const;
};

/// An IPv4 network: ADDRESS/BITS.
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

/// A number above 0, or `auto`, which is read as 0.
struct LossScale {
  [[nodiscard]] Read<double> read(const std::string& text) const;
};

/// A number of steps, or a time with a unit: s, min or h.
struct Interval {
  [[nodiscard]] Read<CheckpointInterval> read(const std::string& text) const;
};

/// REGEX@STEP[,STEP...]; the steps follow the last @.
struct Dumps {
  [[nodiscard]] Read<std::vector<proto::DumpRequest>> read(const std::string& text) const;
};

/// Parses NUMBER or FIRST-LAST, with FIRST <= LAST. Returns nothing for other text.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_range(std::string_view text);

/// STEP or FIRST-LAST, with 1 <= FIRST <= LAST.
struct StepRange {
  struct Value {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };

  [[nodiscard]] Read<Value> read(const std::string& text) const;
};

/// One disturbance of the Pod: slow=REPLICA[-REPLICA]:FACTORx[@stepN[-M]], jitter=lognormal:P% or
/// dead=PLACE@stepN,restart[:SECONDS], where PLACE is hostN or replicaN.
struct Disturbance {
  [[nodiscard]] Read<proto::WhatIf> read(const std::string& text) const;
};

/// REPLICA:TENSOR@STEP. The name of a tensor may contain ':' and '@'.
struct FlippedBit {
  [[nodiscard]] Read<proto::BitFlip> read(const std::string& text) const;
};

/// TILE, which means this tile of every IPU, or IPU:TILE.
struct TileName {
  [[nodiscard]] Read<NamedTile> read(const std::string& text) const;
};

/// KEY=VALUE[,VALUE...] without duplicate values. Any key is accepted.
struct Variation {
  struct Value {
    std::string key;
    std::vector<std::string> values;
  };

  [[nodiscard]] Read<Value> read(const std::string& text) const;
};

/// ROWSxINNERxCOLUMNS, the sizes of the product [ROWS, INNER] x [INNER, COLUMNS].
struct Matmul {
  [[nodiscard]] Read<proto::MatmulWork> read(const std::string& text) const;
};

/// BATCHxCHANNELSxHEIGHTxWIDTH,OUTPUTSxHEIGHTxWIDTH: an image and a kernel, then any of ,stride=N ,padding=N ,groups=N.
struct Convolution {
  [[nodiscard]] Read<proto::ConvolutionWork> read(const std::string& text) const;
};

/// Returns the instruction sets to which --cpu-isa can limit oneDNN, from the smallest to the largest.
std::vector<std::string> cpu_isas();

/// Parses poprun's booleans: yes no on off true false 1 0.
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace poprun::launcher
