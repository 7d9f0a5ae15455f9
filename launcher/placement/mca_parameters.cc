#include "launcher/placement/mca_parameters.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "launcher/process/supervisor.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 4> kOptions = {"--mca", "-mca", "--gmca", "-gmca"};

/// Returns the index of the first `--mca NAME VALUE` whose NAME is one of `names`.
std::optional<std::size_t> argument_at(std::span<const std::string> names, std::span<const std::string> arguments) {
  for (std::size_t i = 0; i + 2 < arguments.size(); ++i) {
    if (std::ranges::count(kOptions, arguments[i]) > 0 && std::ranges::count(names, arguments[i + 1]) > 0) {
      return i;
    }
  }
  return std::nullopt;
}

std::optional<std::string> value_in_file(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::optional<std::string> value;
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos && trimmed({line.data(), equals}) == name) {
      value = trimmed(std::string_view{line}.substr(equals + 1));
    }
  }
  return value;
}

/// Returns the parameter files, from the highest priority to the lowest.
Words parameter_files() {
  Words files;
  if (const auto list = variable({"OMPI_MCA_mca_base_param_files", "OMPI_MCA_mca_param_files"})) {
    std::istringstream paths(*list);
    for (std::string path; std::getline(paths, path, ':');) {
      files.push_back(path);
    }
    return files;
  }
  if (const auto home = variable({"HOME"})) {
    files.push_back(fmt::format("{}/.openmpi/mca-params.conf", *home));
  }
  files.push_back(mca_folder() + "/openmpi-mca-params.conf");
  return files;
}

}  // namespace

std::optional<std::string> variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      return value;
    }
  }
  return std::nullopt;
}

std::string mca_folder() {
  if (const auto folder = variable({"OPAL_SYSCONFDIR"})) {
    return *folder;
  }
  std::error_code error;
  const std::filesystem::path mpirun = std::filesystem::canonical(in_path("mpirun").value_or(""), error);
  const std::filesystem::path prefix = mpirun.parent_path().parent_path();
  // Debian's package has the prefix /usr, but its configuration is in /etc.
  return error || prefix == "/usr" ? "/etc/openmpi" : (prefix / "etc").string();
}

Words without_mca_argument(std::span<const std::string> names, Words arguments) {
  while (const auto at = argument_at(names, arguments)) {
    const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(*at);
    arguments.erase(first, first + 3);
  }
  return arguments;
}

std::optional<std::string> mca_parameter(std::span<const std::string> names, std::span<const std::string> arguments) {
  if (const auto at = argument_at(names, arguments)) {
    return arguments[*at + 2];
  }
  for (const std::string& name : names) {
    if (const auto value = variable({fmt::format("OMPI_MCA_{}", name).c_str()})) {
      return value;
    }
  }
  for (const std::string& file : parameter_files()) {
    for (const std::string& name : names) {
      if (auto value = value_in_file(file, name)) {
        return value;
      }
    }
  }
  return std::nullopt;
}

Words component_variables() {
  Words found;
  for (const char* name :
       {"OPAL_PREFIX", "OMPI_MCA_ess", "OMPI_MCA_plm", "OMPI_MCA_ras", "OMPI_MCA_rmaps", "OMPI_MCA_odls",
        "OMPI_MCA_oob", "OMPI_MCA_routed", "OMPI_MCA_grpcomm", "OMPI_MCA_schizo", "OMPI_MCA_pmix", "OMPI_MCA_pml",
        "OMPI_MCA_mtl", "OMPI_MCA_btl", "OMPI_MCA_bml", "OMPI_MCA_coll", "OMPI_MCA_osc"}) {
    if (variable({name})) {
      found.emplace_back(name);
    }
  }
  return found;
}

}  // namespace poprun::launcher
