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

Rows command_rows();        ///< Of the command itself: placement, hosts, output, timeouts.
Rows job_rows();            ///< Of the job, named `section.key`.
Rows compatibility_rows();  ///< poprun's options for real Pods: nothing here can act on them.

Rows joined(const std::vector<Rows>& parts);

/// Reads a text as `kind` (option_values.h) does and gives the value to `store`.
template <typename Kind, typename Store>
std::function<Refusal(Options&, const std::string&)> set(Kind kind, Store store) {
  return [kind = std::move(kind), store = std::move(store)](Options& options,
                                                            const std::string& text) -> Refusal {
    const auto value = kind.read(text);
    if (!value) {
      return value.error();
    }
    store(options, *value);
    return std::nullopt;
  };
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

/// A row `section.key` with one value, for the field of its name unless `store` does otherwise.
template <typename Kind, typename Store>
OptionRow job(const std::string& name, const char* placeholder, const char* fallback,
              const std::string& help, Kind kind, Store store) {
  return {.name = name,
          .group = Group::kJob,
          .placeholder = placeholder,
          .fallback = fallback,
          .help = help,
          .set = set(std::move(kind), std::move(store))};
}

template <typename Kind>
OptionRow job(const std::string& name, const char* placeholder, const char* fallback,
              const std::string& help, Kind kind) {
  return job(name, placeholder, fallback, help, std::move(kind), Field(name));
}

}  // namespace poprun::launcher
