#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "replica/base/units.h"

/// How this project reports failure.
///
///   The world failed (bad input, full memory, lost peer)  ->  return Result<T> / Status.
///   We failed (a broken invariant)                        ->  POPRUN_CHECK, which aborts.
///
/// Exceptions do not cross folder boundaries. Third-party exceptions are caught at the call and become an Error there.
namespace poprun {

/// The kind of failure, which determines how a caller reacts to it. The value is the exit code of the process, except
/// that kinds that mean the same to a script share one code (see `exit_code_of`).
enum class ErrorCode : std::uint8_t {
  kUsage = 64,           ///< An option or a key of train.cfg is invalid. The message names it and the remedy.
  kData = 65,            ///< An input file or dataset is missing, damaged or of the wrong shape.
  kUnreachable = 69,     ///< A host, data server or peer could not be reached in time.
  kBug = 70,             ///< A bug in this program.
  kHostResources = 71,   ///< Memory, disk, files, processes, a port or a program is not available on a host.
  kInfrastructure = 75,  ///< Something failed during the run; running again may help.
  kOutOfMemory = 86,     ///< The model does not fit the emulated memory.
};

/// Returns the exit code of a process that ends with this error (table in launcher/verdict/README.md).
constexpr int exit_code_of(ErrorCode code) {
  return static_cast<int>(code == ErrorCode::kHostResources ? ErrorCode::kUnreachable : code);
}

struct Shortage {
  Bytes needed;
  Bytes had;

  friend bool operator==(const Shortage&, const Shortage&) = default;
};

/// Facts about an error for callers, which never parse messages. A fact that does not apply is empty.
struct Facts {
  std::vector<std::uint32_t> missing{};  ///< Replicas that did not arrive: their numbers in the job, ascending.
  std::string address{};                 ///< host:port that could not be reached.
  std::optional<Shortage> shortage{};

  friend bool operator==(const Facts&, const Facts&) = default;
};

struct [[nodiscard]] Error {
  ErrorCode code;
  std::string message;  ///< One line: what failed, where, the amounts needed and given, and the remedy.
  Facts facts = {};
};

/// A T, or the Error that explains why there is none. Return it with `return value;` or `return fail(...)`.
template <typename T>
using Result = tl::expected<T, Error>;

/// Success (`return {};`), or the reason for the failure.
using Status = Result<void>;

/// Returns an Error in a form that converts to every Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, Facts facts = {}) {
  return tl::unexpected<Error>{Error{code, std::move(message), std::move(facts)}};
}

/// Prints the failed condition with its location and aborts. Called by `POPRUN_CHECK`.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace poprun

/// Checks an invariant, in every build type. Aborts the process if it does not hold.
#define POPRUN_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) [[unlikely]] {                          \
      ::poprun::check_failed(#condition, __FILE__, __LINE__); \
    }                                                         \
  } while (false)

/// `POPRUN_TRY(f());` returns f's error to the caller, with the message unchanged.
#define POPRUN_TRY(expression)                                         \
  do {                                                                 \
    if (auto&& poprun_status = (expression); !poprun_status) {         \
      return ::tl::unexpected<::poprun::Error>{poprun_status.error()}; \
    }                                                                  \
  } while (false)

#define POPRUN_JOIN_INNER(a, b) a##b
#define POPRUN_JOIN(a, b) POPRUN_JOIN_INNER(a, b)

/// `POPRUN_ASSIGN(auto x, f());` means `auto x = *f()`, but returns f's error to the caller if f fails.
#define POPRUN_ASSIGN(target, expression)                                                    \
  auto POPRUN_JOIN(poprun_result_, __LINE__) = (expression);                                 \
  if (!POPRUN_JOIN(poprun_result_, __LINE__)) {                                              \
    return ::tl::unexpected<::poprun::Error>{POPRUN_JOIN(poprun_result_, __LINE__).error()}; \
  }                                                                                          \
  target = std::move(*POPRUN_JOIN(poprun_result_, __LINE__))  // NOLINT(bugprone-macro-parentheses)
