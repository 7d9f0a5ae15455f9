#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Whether a line may be left out where its reader has stopped reading.
enum class Keep : std::uint8_t { kAlways, kIfRoom };

/// A terminal, pipe or file that takes lines, and may stop taking them: Ctrl-S, a pager that waits
/// for its user. At first whoever writes waits, as programs do. Once `never_wait` was called a
/// thread writes, and what waits for it is bounded: lines that may go are left out first, and where
/// they are missing a line says how many.
///
/// A terminal may have one live line at its bottom, which gives way to every other line. A reader
/// that went away is ignored. Belongs to one thread.
class Outlet {
 public:
  /// What waits at most.
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;

  Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  /// Clears the live line, and waits as `settle` does.
  ~Outlet();

  /// One line, or several with newlines between them. `descriptor` is the outlet's file.
  void write(int descriptor, std::string_view text, Keep keep);
  /// Replaces the live line.
  void live(int descriptor, std::string_view text);

  /// From now on a thread writes. Where none can be started whoever writes keeps waiting.
  void never_wait();

  /// Returns once everything is written, or nothing was taken for 10 s; from then on at once.
  void settle();

  /// errno of the first write to `descriptor` that failed though its reader was there, or 0.
  [[nodiscard]] int failure(int descriptor) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< The thread's too, which may outlive this in a write.
};

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
