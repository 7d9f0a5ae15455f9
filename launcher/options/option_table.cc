#include "launcher/options/option_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::launcher {

std::span<const OptionRow> option_table() {
  static const Rows table = joined({command_rows(), job_rows(), compatibility_rows()});
  return table;
}

std::span<const Section> sections() {
  static const std::vector<Section> all = {{"general", "General"},
                                           {"placement", "Placement"},
                                           {"hosts", "Hosts and MPI"},
                                           {"data-server", "Data server"},
                                           {"output", "Output"},
                                           {"checkpoints", "Checkpoints"},
                                           {"metrics", "Metrics"},
                                           {"timeouts", "Timeouts"},
                                           {"check", "Subcommand check"},
                                           {"estimate", "Subcommand estimate"},
                                           {"profile", "Subcommand profile"},
                                           {"validate", "Subcommand validate"},
                                           {"scale", "Subcommand scale"},
                                           {"model", "Model"},
                                           {"data", "Data"},
                                           {"training", "Training"},
                                           {"pipeline", "Pipeline"},
                                           {"memory", "Memory"},
                                           {"device", "Device"},
                                           {"report", "Report"},
                                           {"published", "Published results, for validate"},
                                           {"poprun", "Options of poprun that are accepted but have no effect"}};
  return all;
}

const OptionRow* find_row(std::string_view name) {
  const std::string key_name = fmt::format("{}.name", name);
  const auto row = std::ranges::find_if(
      option_table(), [&](const OptionRow& candidate) { return candidate.name == name || candidate.name == key_name; });
  return row == option_table().end() ? nullptr : &*row;
}

using google::protobuf::FieldDescriptor;

Rows joined(const std::vector<Rows>& parts) {
  Rows all;
  for (const Rows& rows : parts) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

Field::Field(std::string name) {
  std::ranges::replace(name, '-', '_');
  const std::size_t dot = name.find('.');
  section_ = proto::RunConfig::descriptor()->FindFieldByName(name.substr(0, dot));
  POPRUN_CHECK(section_ != nullptr);
  field_ = section_->message_type()->FindFieldByName(name.substr(dot + 1));
  POPRUN_CHECK(field_ != nullptr);
}

void Field::operator()(Options& options, bool value) const {
  const auto [section, fields] = open(options);
  fields->SetBool(section, field_, value);
}

void Field::operator()(Options& options, double value) const {
  const auto [section, fields] = open(options);
  fields->SetDouble(section, field_, value);
}

void Field::operator()(Options& options, const std::string& value) const {
  const auto [section, fields] = open(options);
  fields->SetString(section, field_, value);
}

void Field::operator()(Options& options, std::uint64_t value) const {
  const auto [section, fields] = open(options);
  if (field_->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    fields->SetUInt32(section, field_, static_cast<std::uint32_t>(value));
  } else {
    fields->SetUInt64(section, field_, value);
  }
}

Field::Place Field::open(Options& options) const {
  google::protobuf::Message* section = options.config.GetReflection()->MutableMessage(&options.config, section_);
  return {section, section->GetReflection()};
}

Setting& setting_of(Options& options, std::string_view name) {
  return *std::ranges::find(options.settings, name, &Setting::name);
}

const Setting& setting_of(const Options& options, std::string_view name) {
  return *std::ranges::find(options.settings, name, &Setting::name);
}

std::string shown(const Options& options, std::string_view name) {
  return fmt::format("{} = {}", name, setting_of(options, name).text);
}

}  // namespace poprun::launcher
