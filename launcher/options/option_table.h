#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "launcher/options/options.h"

/// The one table of options. A new option is one new row in command_rows.cc or, if its name has a
/// dot, in job_rows.cc, with a line in train.cfg; a field of that name in RunConfig then gets its
/// value.
namespace poprun::launcher {

enum class Group : std::uint8_t {
  kGeneral,
  kPlacement,
  kHosts,
  kDataServer,
  kOutput,
  kTimeouts,
  kJob,            ///< Named `section.key`; may stand in train.cfg.
  kCompatibility,  ///< poprun's options for real Pods: accepted, noted, without effect.
};

enum class Arity : std::uint8_t {
  kValue,      ///< Needs a value; given at most once.
  kFlag,       ///< A boolean; its value may be left out and is then true. At most once.
  kRepeated,   ///< Needs a value; may be given several times.
  kArguments,  ///< As kRepeated; the value may look like an option of ours.
};

/// What a row made of a text: nothing when it took it, otherwise what it allows.
using Refusal = std::optional<std::string>;

struct OptionRow {
  std::string name;
  char letter = 0;  ///< Short form, 0 for none.
  Group group = Group::kGeneral;
  Arity arity = Arity::kValue;
  std::string placeholder;  ///< How help shows the value.
  std::string fallback;     ///< Default as the user would write it; empty for none.
  std::string help;
  std::function<Refusal(Options&, const std::string&)> set;
};

std::span<const OptionRow> option_table();

/// What to use instead of an option of poprun's that there is not; nothing for any other name.
std::optional<std::string> why_refused(std::string_view name);

/// The row of that full name, or null.
const OptionRow* find_row(std::string_view name);

}  // namespace poprun::launcher
