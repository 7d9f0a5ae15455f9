#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

/// What the user has set Open MPI's parameters to, looked for where mpirun looks.
namespace poprun::launcher {

/// The folder of Open MPI's own files, in which the distribution or an administrator sets defaults.
std::string mca_folder();

/// The value of `--mca NAME VALUE` in `arguments` for one of `names`, which are synonyms.
std::optional<std::string> mca_argument(std::span<const std::string> names,
                                        std::span<const std::string> arguments);

/// The same without its three words.
std::vector<std::string> without_mca_argument(std::span<const std::string> names,
                                              std::vector<std::string> arguments);

/// The value that mpirun takes for one of `names`: from its command line, the environment
/// (OMPI_MCA_NAME), the user's file of parameters, or that of `mca_folder`.
std::optional<std::string> mca_parameter(std::span<const std::string> names,
                                         std::span<const std::string> arguments);

/// Variables of the environment that choose Open MPI's components or its installation, as NAME:
/// none is needed, and with a wrong one Open MPI does not start.
std::vector<std::string> component_variables();

/// The first of these environment variables that is set and not empty.
std::optional<std::string> variable(std::initializer_list<const char*> names);

}  // namespace poprun::launcher
