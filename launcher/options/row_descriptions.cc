#include "launcher/options/row_descriptions.h"

namespace poprun::launcher {

namespace po = boost::program_options;

po::options_description described(Group group, const std::string& caption, bool for_help) {
  po::options_description description(caption, 110, 60);
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      continue;
    }
    const std::string names = row.letter == 0 ? row.name : row.name + "," + row.letter;
    if (row.arity == Arity::kFlag) {
      description.add_options()(names.c_str(), new po::untyped_value(/*zero_tokens=*/for_help),
                                row.help.c_str());
    } else {
      auto* value = po::value<std::string>()->value_name(row.placeholder);
      if (!row.fallback.empty()) {
        value->default_value(row.fallback);
      }
      description.add_options()(names.c_str(), value, row.help.c_str());
    }
  }
  return description;
}

}  // namespace poprun::launcher
