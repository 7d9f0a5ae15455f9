#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>

#include "launcher/options/option_table.h"

/// The rows of the table, by who they are for, and what rows are made of.
namespace poprun::launcher {

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
