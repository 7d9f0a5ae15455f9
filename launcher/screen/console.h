#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Whether a line may be dropped when its reader has stopped reading.
enum class Keep : std::uint8_t { kAlways, kIfRoom };

/// A terminal, pipe or file to which lines are written. It may stop accepting them, for example after Ctrl-S or when a
/// pager waits for its user. At first, writing blocks, as in other programs. After `never_wait`, a thread does the
/// writing, and the memory for waiting lines is bounded. When this memory is full, lines are dropped, those of
/// Keep::kIfRoom first, and a line states how many are missing. A terminal can have one live line at its bottom, below
/// all others. If the reader has gone away, all further lines are discarded. An outlet belongs to one thread.
class Outlet {
 public:
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;

  Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  /// Clears the live line, and then waits as `settle` does.
  ~Outlet();

  /// Writes one line, or several lines separated by newlines. `descriptor` is the outlet's file descriptor.
  void write(int descriptor, std::string_view text, Keep keep);
  void live(int descriptor, std::string_view text);

  /// Starts a thread that does all further writing. If no thread can be started, writing continues to block.
  void never_wait();

  /// Returns when everything has been written or nothing was accepted for 10 s. After such a timeout, later calls
  /// return immediately.
  void settle();

  /// Returns the errno of the first write to `descriptor` that failed for a reason other than a lost reader, or 0.
  [[nodiscard]] int failure(int descriptor) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< Shared with the thread, which may outlive this.
};

/// Returns the time of the system's clock in seconds since 1970, which may jump.
double unix_seconds();

/// The only writer to standard output and standard error, so that lines are never interleaved. On a terminal, it keeps
/// one live line at the bottom of standard error. If a reader has gone away, the job continues without it.
class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Writes one line, or several separated by newlines.
  void out(std::string_view text, Keep keep = Keep::kAlways);
  void err(std::string_view text, Keep keep = Keep::kAlways);

  /// After this call, no function here blocks except `settle` (see Outlet::never_wait).
  void never_wait();
  /// Returns when everything has been written, or when a reader has accepted nothing for 10 s.
  void settle();

  /// Checks that everything passed to `out` was written. Errors: kInfrastructure if a line could not be written
  /// although the reader was still there. The message says why.
  [[nodiscard]] Status out_status() const;

  /// Decides whether the output is coloured: "always", "never", or "auto", on a terminal only and unless NO_COLOR is
  /// set. Initially "auto".
  void colour(std::string_view when);

  /// Writes an answer for people to standard output, with its headings and verdict emphasised if it is coloured.
  void page(std::string_view text);
  /// Suggests the command that the user may want next, on standard error. Does nothing if `command` is empty.
  void next(std::string_view command);

  /// A line of the launcher itself.
  struct Said {
    double time = 0;  ///< Unix time.
    std::string text;
  };
  static constexpr std::size_t kSaidMax = 100;
  static constexpr std::size_t kSaidBytesMax = 1000;

  /// Writes a line of the launcher itself, `poprun-emu: text`, to standard error.
  void say(std::string_view text, Keep keep = Keep::kAlways);
  /// Writes the error's message as a line of the launcher itself, and returns the error's exit code.
  int say(const Error& error);
  /// Writes an error as a line of the launcher itself, with its beginning in red if standard error is coloured.
  void complain(std::string_view text);

  /// Returns the last kSaidMax lines passed to `say` with Keep::kAlways, oldest first, each cut to kSaidBytesMax.
  [[nodiscard]] const std::deque<Said>& said() const { return said_; }

  [[nodiscard]] bool has_live_line() const { return is_terminal_; }
  /// Returns the number of columns of the terminal, or 80 if it is unknown.
  [[nodiscard]] std::size_t width() const;
  /// Returns the number of columns for standard output: COLUMNS if it is set, else the width of the terminal, else 80.
  [[nodiscard]] std::size_t page_width() const;
  /// Returns whether lines of standard output may be longer than page_width, since a file or another program reads
  /// them: it is not a terminal, and COLUMNS is not set.
  [[nodiscard]] bool is_page_unbounded() const;
  /// Replaces the live line. Does nothing if standard error is not a terminal that can show one.
  void live(std::string_view text);

 private:
  bool is_terminal_;
  bool colours_out_ = false;
  bool colours_err_ = false;
  std::shared_ptr<Outlet> err_;
  std::deque<Said> said_;
  std::shared_ptr<Outlet> out_;  ///< Same as err_ if both are one file, to keep the order of lines.
};

}  // namespace poprun::launcher
