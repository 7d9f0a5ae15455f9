#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>

#include "launcher/options/options.h"
#include "replica/choices/choices.h"

/// The single table of options, from which parsing, help, manual page and completion are derived. To add an option, add
/// one row in command_rows.cc. If its name has a dot, add the row in job_rows.cc instead, and a line in train.cfg; the
/// value then goes into the RunConfig field of that name. This header also declares the groups of rows and the parts
/// from which rows are built.
namespace poprun::launcher {

enum class Arity : std::uint8_t {
  kValue,      ///< The option needs a value, and can be given only once.
  kFlag,       ///< The value can be omitted, and is then true. The option can be given only once.
  kRepeated,   ///< The option needs a value, and can be given several times.
  kArguments,  ///< Like kRepeated, but the value can look like one of our options.
};

/// The result of setting a row: nothing if the text was accepted, otherwise a description of the allowed values.
using Refusal = std::optional<std::string>;

struct OptionRow {
  std::string name;     ///< A name with a dot, such as "training.seed", is also a key of train.cfg.
  char letter = 0;      ///< Short form; 0: none.
  std::string section;  ///< Section of the help: one of `sections()`.
  Arity arity = Arity::kValue;
  std::string placeholder;  ///< The value's name in the help. FILE and DIR also make completion list files or folders.
  std::string fallback;     ///< Default as the user would write it; empty: none.
  std::string help;         ///< A noun phrase or sentence, without a final full stop.
  std::function<Refusal(Options&, const std::string&)> set;
  std::vector<std::string> choices = {};  ///< All allowed values; empty if they cannot be listed.

  [[nodiscard]] bool in_file() const { return name.find('.') != std::string::npos; }
};

std::span<const OptionRow> option_table();

/// A section of the help, which is also a topic of --help.
struct Section {
  std::string name;   ///< "training"; if the rows are keys, also the name of the section in train.cfg.
  std::string title;  ///< "Training".
};

/// Returns all sections, in the order of the table.
std::span<const Section> sections();

/// Returns the row with this full name, or null if there is none. The name of a section finds the section's key `name`:
/// `model` finds model.name.
const OptionRow* find_row(std::string_view name);

/// Returns the setting of the row with this name. Requires: the row exists.
Setting& setting_of(Options& options, std::string_view name);
const Setting& setting_of(const Options& options, std::string_view name);

/// Formats a setting as the user would write it: "pipeline.split = conv2 fc1".
std::string shown(const Options& options, std::string_view name);

using Rows = std::vector<OptionRow>;

Rows command_rows();        ///< Options of the command: placement, hosts, output, timeouts.
Rows job_rows();            ///< Keys of train.cfg, named `section.key`.
Rows compatibility_rows();  ///< Options of poprun that concern real Pods and have no effect here.

Rows joined(const std::vector<Rows>& parts);

/// Stores the value of an option of this kind (see option_values.h). It is not a template parameter of the functions
/// that build rows: each of them would be compiled for every row.
template <typename Kind>
using Store =
    std::function<void(Options&, const typename decltype(std::declval<Kind>().read(std::string{}))::value_type&)>;

/// Completes `row` with its setter: `kind` parses the value, and `store` stores it.
template <typename Kind>
OptionRow with_value(OptionRow row, Kind kind, Store<std::type_identity_t<Kind>> store) {
  if constexpr (requires { kind.choices; }) {
    row.choices = kind.choices;
  }
  row.set = [kind = std::move(kind), store = std::move(store)](Options& options, const std::string& text) -> Refusal {
    const auto value = kind.read(text);
    if (!value) {
      return value.error();
    }
    store(options, *value);
    return std::nullopt;
  };
  return row;
}

template <typename T>
auto into(T Options::*member) {
  return [=](Options& options, const auto& value) { options.*member = static_cast<T>(value); };
}

template <typename Group, typename T>
auto into(Group Options::*group, T Group::*member) {
  return [=](Options& options, const auto& value) { options.*group.*member = static_cast<T>(value); };
}

inline auto add_words(std::vector<std::string> MpirunOptions::*member) {
  return [=](Options& options, const std::vector<std::string>& words) {
    auto& list = options.mpirun.*member;
    list.insert(list.end(), words.begin(), words.end());
  };
}

/// Stores a value in the RunConfig field with the row's name: training.learning-rate goes into training.learning_rate.
class Field {
 public:
  explicit Field(std::string name);

  void operator()(Options& options, bool value) const;
  void operator()(Options& options, double value) const;
  void operator()(Options& options, const std::string& value) const;
  void operator()(Options& options, std::uint64_t value) const;
  void operator()(Options& options, Chosen auto value) const { (*this)(options, word_of(value)); }

 private:
  struct Place {
    google::protobuf::Message* section;
    const google::protobuf::Reflection* fields;
  };
  [[nodiscard]] Place open(Options& options) const;

  const google::protobuf::FieldDescriptor* section_;
  const google::protobuf::FieldDescriptor* field_;
};

/// Returns the row of a key of train.cfg, `section.key`. `store` stores the key's value; the overload below stores the
/// value in the RunConfig field with the key's name.
template <typename Kind>
OptionRow file_key(const std::string& name, const char* placeholder, const std::string& fallback,
                   const std::string& help, Kind kind, Store<std::type_identity_t<Kind>> store) {
  return with_value({.name = name,
                     .section = name.substr(0, name.find('.')),
                     .placeholder = placeholder,
                     .fallback = fallback,
                     .help = help,
                     .set = {}},
                    std::move(kind), std::move(store));
}

template <typename Kind>
OptionRow file_key(const std::string& name, const char* placeholder, const std::string& fallback,
                   const std::string& help, Kind kind) {
  return file_key(name, placeholder, fallback, help, std::move(kind), Field(name));
}

}  // namespace poprun::launcher
