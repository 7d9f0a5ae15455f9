#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// A dataset's full name, as it travels: what users write in `[data] source`, then what other keys
/// of [data] ask of it.
///
///   tokens:/data/book.u16?sequence-length=128,task=masked-lm
///   |------- text ------||------------ parameters ---------|
///
/// The text ends at the last `?`, unless a path goes on there: with a slash, or without `=`.
struct Source {
  std::string text;
  std::map<std::string, std::string, std::less<>> parameters;
  FileScope scope;  ///< Where its files may lie.

  /// Errors
  ///   kUsage  a parameter is not `key=value`.
  static Result<Source> parse(std::string_view source);
};

/// The full name of what a user writes in `[data] source`, with parameters `key=value`. A text with
/// a `?` of its own always gets a last one.
std::string source_with(std::string_view text, const std::vector<std::string>& parameters);

/// `key=value,key=value` by key. `what` names the list in messages.
///
/// Errors
///   kUsage  an entry without `=`.
Result<std::map<std::string, std::string, std::less<>>> parse_parameters(std::string_view list,
                                                                         std::string_view what);

/// Parameter `key` as an integer, `fallback` where it is not there.
///
/// Errors
///   kUsage  not an integer from `least` to `most`.
Result<std::uint64_t> integer_parameter(
    const std::map<std::string, std::string, std::less<>>& parameters, const std::string& key,
    std::uint64_t fallback, std::uint64_t least, std::uint64_t most);

}  // namespace poprun::hostio
