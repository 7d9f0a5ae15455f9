#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

/// Finds the user's settings of Open MPI's parameters in the places where mpirun looks.
namespace poprun::launcher {

/// Returns the folder of Open MPI's own files, where the distribution or an administrator sets defaults.
std::string mca_folder();

/// Returns the arguments without the three words of `--mca NAME VALUE` for one of `names`, which are synonyms.
std::vector<std::string> without_mca_argument(std::span<const std::string> names, std::vector<std::string> arguments);

/// Returns the value that mpirun uses for one of `names`: from its command line, the environment (OMPI_MCA_NAME), the
/// user's parameter file, or the parameter file in `mca_folder`.
std::optional<std::string> mca_parameter(std::span<const std::string> names, std::span<const std::string> arguments);

/// Names of the environment variables that select Open MPI's components or its installation. None is needed, and with a
/// wrong one Open MPI does not start.
std::vector<std::string> component_variables();

/// Returns the value of the first of these environment variables that is set and not empty.
std::optional<std::string> variable(std::initializer_list<const char*> names);

}  // namespace poprun::launcher
