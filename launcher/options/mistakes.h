#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/command_line.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The part of a line of train.cfg that is marked as wrong.
enum class Part : std::uint8_t { kLine, kKey, kValue };

/// Collects the mistakes on a command line and in its train.cfg, to report all of them at once. Lines of the
/// file are quoted, with carets below the wrong part:
///
///     train.cfg:7: ipu = mk3 is not allowed; allowed: bow, mk1, mk2; did you mean mk2?
///       7 | ipu = mk3
///         |       ^^^
class Mistakes {
 public:
  static constexpr std::size_t kShownMax = 20;  ///< Further mistakes are only counted.

  Mistakes() = default;
  /// `file` is the name of the file for messages, and `text` its contents, which must outlive this.
  Mistakes(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  /// Adds a mistake of the command line.
  void add(std::string message);
  /// Adds a mistake on a line of the file, counted from 1. Prepends `file:line: ` to the message.
  void add(std::size_t line, Part part, std::string_view message);
  /// Adds a mistake in the value that was written at `place`, in the file or elsewhere.
  void add(const Written& written, std::string message);
  /// Adds a violated rule about several values. Quotes the lines of the file that set values named in the message,
  /// since rules return only text.
  void add_rule(std::string message, std::span<const Written> written);

  /// Returns the error with all mistakes, those of the command line first, then those of the file by line. Errors:
  /// kUsage if there is a mistake.
  [[nodiscard]] Status status() const;

 private:
  struct Mistake {
    std::size_t line;  ///< 0: not about one line of the file.
    std::string text;
  };

  /// Returns the quoted line, beginning with a line break, or "" if it cannot be printed.
  [[nodiscard]] std::string quoted(std::size_t line, Part part) const;

  std::string file_;
  std::string_view text_;
  std::vector<Mistake> mistakes_;
};

}  // namespace poprun::launcher
