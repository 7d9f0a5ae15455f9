#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>

#include "launcher/options/options.h"

/// The one table of options: parsing, help, manual page and completion read it. A new option is one
/// new row in command_rows.cc or, if its name has a dot, in job_rows.cc, with a line in train.cfg;
/// a field of that name in RunConfig then gets its value.
/// The rows of the table, by who they are for, and what rows are made of.
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

/// What a row was set to. Requires: there is a row of that name.
Setting& setting_of(Options& options, std::string_view name);
const Setting& setting_of(const Options& options, std::string_view name);

/// A setting as the user would write it: "pipeline.split = conv2 fc1".
std::string shown(const Options& options, std::string_view name);

using Rows = std::vector<OptionRow>;

Rows command_rows();        ///< The command's own: placement, hosts, output, timeouts.
Rows job_rows();            ///< Keys of train.cfg, named `section.key`.
Rows compatibility_rows();  ///< poprun's options for real Pods: nothing here can act on them.

Rows joined(const std::vector<Rows>& parts);

/// `row` with a value that is read as `kind` (option_values.h) does and given to `store`.
template <typename Kind, typename Store>
OptionRow with_value(OptionRow row, Kind kind, Store store) {
  if constexpr (requires { kind.choices; }) {
    row.choices = kind.choices;
  }
  row.set = [kind = std::move(kind), store = std::move(store)](Options& options,
                                                               const std::string& text) -> Refusal {
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

inline auto add_words(std::vector<std::string> Options::*member) {
  return [=](Options& options, const std::vector<std::string>& words) {
    auto& list = options.*member;
    list.insert(list.end(), words.begin(), words.end());
  };
}

/// The field of the configuration that has the name of a row: training.learning-rate goes into
/// RunConfig's training.learning_rate.
class Field {
 public:
  explicit Field(std::string name);

  void operator()(Options& options, bool value) const;
  void operator()(Options& options, double value) const;
  void operator()(Options& options, const std::string& value) const;
  void operator()(Options& options, std::uint64_t value) const;

 private:
  struct Place {
    google::protobuf::Message* section;
    const google::protobuf::Reflection* fields;
  };
  [[nodiscard]] Place open(Options& options) const;

  const google::protobuf::FieldDescriptor* section_;
  const google::protobuf::FieldDescriptor* field_;
};

/// A key of train.cfg, `section.key`, whose one value goes to the field of its name unless `store`
/// does otherwise.
template <typename Kind, typename Store>
OptionRow file_key(const std::string& name, const char* placeholder, const char* fallback,
                   const std::string& help, Kind kind, Store store) {
  return with_value({.name = name,
                     .section = name.substr(0, name.find('.')),
                     .placeholder = placeholder,
                     .fallback = fallback,
                     .help = help,
                     .set = {}},
                    std::move(kind), std::move(store));
}

template <typename Kind>
OptionRow file_key(const std::string& name, const char* placeholder, const char* fallback,
                   const std::string& help, Kind kind) {
  return file_key(name, placeholder, fallback, help, std::move(kind), Field(name));
}

}  // namespace poprun::launcher
