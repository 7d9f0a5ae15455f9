#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

/// Functions that find the user's settings of Open MPI's parameters in the places where mpirun looks for them.
namespace poprun::launcher {

/// Returns the folder with Open MPI's configuration files, in which the distribution or an administrator sets defaults.
std::string mca_folder();

/// Removes from the arguments every `--mca NAME VALUE` whose NAME is one of the synonyms `names`.
std::vector<std::string> without_mca_argument(std::span<const std::string> names, std::vector<std::string> arguments);

/// Returns the value that mpirun uses for the parameter with these synonymous `names`. The value comes from mpirun's
/// command line, the environment (OMPI_MCA_NAME), the user's parameter file or the parameter file in `mca_folder`.
std::optional<std::string> mca_parameter(std::span<const std::string> names, std::span<const std::string> arguments);

/// Returns the names of the environment variables set here that select Open MPI's components or its installation. None
/// of them is needed, and if the value of one is wrong, Open MPI does not start.
std::vector<std::string> component_variables();

/// Returns the value of the first of these environment variables that is set and not empty.
std::optional<std::string> variable(std::initializer_list<const char*> names);

}  // namespace poprun::launcher
