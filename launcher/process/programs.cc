#include "launcher/process/programs.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : own.parent_path();
}

Result<std::string> beside_us(const char* name) {
  const fs::path path = own_folder() / name;
  if (access(path.c_str(), X_OK) != 0) {
    return fail(ErrorCode::kHostResources,
                fmt::format("{} is missing or not executable; poprun-emu, poprun-emu-replica, "
                            "poprun-emu-hostio and poprun-emu-remote-shell must be in one folder",
                            path.string()));
  }
  return path.string();
}

Result<std::string> from_path(const char* name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return fail(
      ErrorCode::kHostResources,
      fmt::format("{} is not in PATH; install Open MPI 4.1, on Debian: apt install openmpi-bin",
                  name));
}

}  // namespace

Result<Programs> find_programs(bool other_hosts) {
  Programs programs;
  POPRUN_ASSIGN(programs.replica, beside_us("poprun-emu-replica"));
  POPRUN_ASSIGN(programs.data_server, beside_us("poprun-emu-hostio"));
  if (other_hosts) {
    POPRUN_TRY(beside_us("poprun-emu-remote-shell").map([](const std::string&) {}));
  }
  POPRUN_ASSIGN(programs.mpirun, from_path("mpirun"));
  return programs;
}

std::string path_beside_us(const std::string& program) {
  return own_folder() / program;
}

}  // namespace poprun::launcher
