#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "launcher/screen/outlet.h"
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

  /// One line, or several with newlines between them.
  void out(std::string_view text, Keep keep = Keep::kAlways);
  void err(std::string_view text, Keep keep = Keep::kAlways);

  /// From now on nothing here blocks (outlet.h) but `settle`.
  void never_wait();
  /// Returns once everything is written, or a reader has taken nothing for 10 s.
  void settle();

  /// Errors
  ///   kInfrastructure  a line of `out` could not be written, though its reader is there; says why.
  [[nodiscard]] Status out_status() const;

  /// A line of the launcher itself, on standard error: `poprun-emu: text`.
  void say(std::string_view text, Keep keep = Keep::kAlways);

  [[nodiscard]] bool has_live_line() const { return is_terminal_; }
  /// Columns of the terminal, 80 where unknown.
  [[nodiscard]] std::size_t width() const;
  /// Columns for what goes to standard output: COLUMNS, else its terminal's, else 80.
  [[nodiscard]] std::size_t page_width() const;
  /// Replaces the live line; nothing where there is none.
  void live(std::string_view text);

 private:
  bool is_terminal_;
  std::shared_ptr<Outlet> err_;
  std::shared_ptr<Outlet>
      out_;  ///< The same where both are one file, so that lines keep their order.
};

}  // namespace poprun::launcher
