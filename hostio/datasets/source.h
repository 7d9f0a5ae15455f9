#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

using Parameters = std::map<std::string, std::string, std::less<>>;

/// A dataset's full name, as sent to data servers: the text that users write in `[data] source`, then the parameters
/// from other keys of [data].
///
///   tokens:/data/book.u16?sequence-length=128,task=masked-lm
///   |------- text ------||------------ parameters ---------|
///
/// The text ends at the last `?`, unless a slash or text without `=` follows, because such a `?` is part of a path.
struct Source {
  std::string text;
  Parameters parameters;
  FileScope scope;  ///< Folders that may contain its files.

  /// Errors: kUsage if a parameter is not `key=value`.
  static Result<Source> parse(std::string_view source);

  /// Returns parameter `key`, or `fallback` if it is not given.
  [[nodiscard]] std::string parameter(std::string_view key, std::string_view fallback) const {
    const auto found = parameters.find(key);
    return found == parameters.end() ? std::string{fallback} : found->second;
  }
};

/// Returns the full name for the text of `[data] source` and parameters `key=value`. If the text itself contains a `?`,
/// the result has a further `?` after the text, even if there are no parameters.
std::string source_with(std::string_view text, const std::vector<std::string>& parameters);

/// The files that a source names: "TRAIN" or "TRAIN,test=TEST".
struct SplitNames {
  std::string train;
  std::optional<std::string> test;
};

SplitNames split_names(std::string_view text);

/// Returns data.test-fraction, or its default if it is not given. Errors: kUsage if it is not a number from 0 to 0.9.
Result<double> test_fraction(const Source& source);

/// Returns how many of `items` are test items, if any can be.
std::uint64_t test_items_of(std::uint64_t items, double fraction);

/// Parses `key=value,key=value`. `what` names the list in messages. Errors: kUsage for an entry without `=`.
Result<Parameters> parse_parameters(std::string_view list, std::string_view what);

/// Returns parameter `key` as an integer, or `fallback` if it is not given. Errors: kUsage if it is not an integer from
/// `least` to `most`.
Result<std::uint64_t> integer_parameter(const Parameters& parameters, const std::string& key, std::uint64_t fallback,
                                        std::uint64_t least, std::uint64_t most);

/// Returns parameter `key` as a number, or `fallback` if it is not given. Errors: kUsage if it is not a finite number
/// or, for "deviation", not positive.
Result<double> real_parameter(const Source& source, const std::string& key, double fallback);

}  // namespace poprun::hostio
