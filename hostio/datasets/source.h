#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// A dataset's full name, as sent to data servers: the text that users write in `[data] source`, then the parameters
/// from other keys of [data].
///
///   tokens:/data/book.u16?sequence-length=128,task=masked-lm
///   |------- text ------||------------ parameters ---------|
///
/// The text ends at the last `?`, unless the path continues after it: with a slash, or without `=`.
struct Source {
  std::string text;
  std::map<std::string, std::string, std::less<>> parameters;
  FileScope scope;  ///< Folders in which its files may lie.

  /// Errors
  ///   kUsage  a parameter is not `key=value`.
  static Result<Source> parse(std::string_view source);
};

/// Returns the full name for the text of `[data] source` and parameters `key=value`. If the text has a `?` of its own,
/// the result always ends with another one and the parameters.
std::string source_with(std::string_view text, const std::vector<std::string>& parameters);

/// Parses `key=value,key=value`. `what` names the list in messages.
///
/// Errors
///   kUsage  an entry without `=`.
Result<std::map<std::string, std::string, std::less<>>> parse_parameters(std::string_view list, std::string_view what);

/// Parameter `key` as an integer; `fallback` if it is not given.
///
/// Errors
///   kUsage  not an integer from `least` to `most`.
Result<std::uint64_t> integer_parameter(const std::map<std::string, std::string, std::less<>>& parameters,
                                        const std::string& key, std::uint64_t fallback, std::uint64_t least,
                                        std::uint64_t most);

}  // namespace poprun::hostio
