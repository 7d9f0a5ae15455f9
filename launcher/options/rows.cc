#include "launcher/options/rows.h"

#include <algorithm>

namespace poprun::launcher {

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
  google::protobuf::Message* section =
      options.config.GetReflection()->MutableMessage(&options.config, section_);
  return {section, section->GetReflection()};
}

}  // namespace poprun::launcher
