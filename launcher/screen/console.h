#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Whether a line may be dropped if its reader has stopped reading.
enum class Keep : std::uint8_t { kAlways, kIfRoom };

/// A terminal, pipe or file that accepts lines and may stop accepting them, as after Ctrl-S or when a pager waits for
/// its user. At first, writing blocks, as in other programs. After `never_wait`, a thread writes, and the memory for
/// waiting lines is bounded: droppable lines are left out first, and a line says how many are missing. A terminal may
/// have one live line at its bottom, which gives way to all others. A reader that has gone away is ignored. Belongs to
/// one thread.
class Outlet {
 public:
  static constexpr std::size_t kWaitingBytesMax = 1 << 20;

  Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  /// Clears the live line, and waits as `settle` does.
  ~Outlet();

  /// Writes one line, or several separated by newlines. `descriptor` is the outlet's file.
  void write(int descriptor, std::string_view text, Keep keep);
  void live(int descriptor, std::string_view text);

  /// Makes a thread do all further writing. If none can be started, writing keeps blocking.
  void never_wait();

  /// Returns once everything is written, or nothing was accepted for 10 s; later calls then return immediately.
  void settle();

  /// Returns errno of the first write to `descriptor` that failed although its reader was there; 0 if no write did.
  [[nodiscard]] int failure(int descriptor) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< Shared with the thread, which may outlive this.
};

/// The only writer to standard output and error, so that lines are never interleaved. On a terminal it keeps one live
/// line at the bottom of standard error. A reader that has gone away is ignored: the job continues.
class Console {
 public:
  Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Writes one line, or several separated by newlines.
  void out(std::string_view text, Keep keep = Keep::kAlways);
  void err(std::string_view text, Keep keep = Keep::kAlways);

  /// From now on, no function here blocks except `settle` (Outlet::never_wait).
  void never_wait();
  /// Returns once everything is written, or a reader has accepted nothing for 10 s.
  void settle();

  /// Returns whether all of `out` was written. Errors: kInfrastructure if a line could not be written although its
  /// reader was there; the message says why.
  [[nodiscard]] Status out_status() const;

  /// Writes a line of the launcher itself to standard error: `poprun-emu: text`.
  void say(std::string_view text, Keep keep = Keep::kAlways);
  /// Writes an error as a line of the launcher itself, and returns the error's exit code.
  int say(const Error& error);

  [[nodiscard]] bool has_live_line() const { return is_terminal_; }
  /// Returns the columns of the terminal; 80 if unknown.
  [[nodiscard]] std::size_t width() const;
  /// Returns the columns for standard output: COLUMNS, else its terminal's width, else 80.
  [[nodiscard]] std::size_t page_width() const;
  /// Replaces the live line; does nothing if there is none.
  void live(std::string_view text);

 private:
  bool is_terminal_;
  std::shared_ptr<Outlet> err_;
  std::shared_ptr<Outlet> out_;  ///< The same as err_ if both are one file, so that lines keep their order.
};

}  // namespace poprun::launcher
