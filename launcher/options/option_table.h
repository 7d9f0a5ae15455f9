#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.h"

/// The one table of options: parsing, help, manual page and completion read it. A new option is one
/// new row in command_rows.cc or, if its name has a dot, in job_rows.cc, with a line in train.cfg;
/// a field of that name in RunConfig then gets its value.
namespace poprun::launcher {

enum class Arity : std::uint8_t {
  kValue,      ///< Needs a value; given at most once.
  kFlag,       ///< The value may be left out and is then true. At most once.
  kRepeated,   ///< Needs a value; may be given several times.
  kArguments,  ///< As kRepeated; the value may look like an option of ours.
};

/// What a row made of a text: nothing when it took it, otherwise what it allows.
using Refusal = std::optional<std::string>;

struct OptionRow {
  std::string name;     ///< With a dot, "training.seed": also a key of train.cfg.
  char letter = 0;      ///< Short form, 0 for none.
  std::string section;  ///< Where help shows it: one of `sections()`.
  Arity arity = Arity::kValue;
  std::string placeholder;  ///< How help shows the value; FILE, DIR and the like tell completion.
  std::string fallback;     ///< Default as the user would write it; empty for none.
  std::string help;         ///< A noun phrase or a sentence, without a full stop.
  std::function<Refusal(Options&, const std::string&)> set;
  std::vector<std::string> choices = {};  ///< All values there are; empty where any text may do.

  [[nodiscard]] bool in_file() const { return name.find('.') != std::string::npos; }
};

std::span<const OptionRow> option_table();

/// A part of the help that --help can be asked for.
struct Section {
  std::string name;   ///< "training"; of keys it is also their section of train.cfg.
  std::string title;  ///< "Training".
};

/// In the order of the table.
std::span<const Section> sections();

/// The row of that full name, or of the key `name` of a section: `model` is model.name. Or null.
const OptionRow* find_row(std::string_view name);

}  // namespace poprun::launcher
