#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The only writer on standard output and error, so that lines never meet inside a line. On a
/// terminal it keeps one live line at the bottom of standard error. A reader that went away is
/// ignored: the job goes on.
class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  /// One line, or several with newlines between them.
  void out(std::string_view text);
  void err(std::string_view text);

  /// Errors
  ///   kInfrastructure  a line of `out` could not be written, though its reader is there; says why.
  [[nodiscard]] Status out_status() const;

  /// A line of the launcher itself, on standard error: `poprun-emu: text`.
  void say(std::string_view text);

  [[nodiscard]] bool has_live_line() const { return is_terminal_; }
  /// Columns of the terminal, 80 where unknown.
  [[nodiscard]] std::size_t width() const;
  /// Replaces the live line; nothing where there is none.
  void live(std::string_view text);

 private:
  /// Returns errno, or 0.
  int write(int descriptor, std::string_view text);
  void clear_live();

  bool is_terminal_;
  int out_failure_ = 0;  ///< errno of the first line of `out` that was lost.
  std::string live_;     ///< What the live line shows now.
};

}  // namespace poprun::launcher
