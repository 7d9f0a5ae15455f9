#include "launcher/process/programs.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sys/wait.h>
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

}  // namespace

Result<Programs> find_programs(bool other_hosts) {
  Programs programs;
  POPRUN_ASSIGN(programs.replica, beside_us("poprun-emu-replica"));
  POPRUN_ASSIGN(programs.data_server, beside_us("poprun-emu-hostio"));
  if (other_hosts) {
    POPRUN_TRY(beside_us("poprun-emu-remote-shell").map([](const std::string&) {}));
  }
  const std::optional<std::string> mpirun = in_path("mpirun");
  if (!mpirun) {
    return fail(ErrorCode::kHostResources,
                "mpirun is not in PATH; install Open MPI 4.1, on Debian: apt install openmpi-bin");
  }
  programs.mpirun = *mpirun;
  return programs;
}

std::optional<std::string> in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / program;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return std::nullopt;
}

Status check_mpirun_version(const std::string& mpirun, const std::string& answer) {
  constexpr std::string_view kOpenMpi = "(Open MPI) ";
  const std::size_t at = answer.find(kOpenMpi);
  std::string is = "not Open MPI's";
  if (at != std::string::npos) {
    const std::string version = answer.substr(at + kOpenMpi.size());
    if (version.starts_with("4.")) {
      return {};
    }
    is = "of Open MPI " + version.substr(0, version.find_first_of(" \n"));
  } else if (answer.find("Intel") != std::string::npos) {
    is = "of Intel MPI";
  } else if (answer.find("HYDRA") != std::string::npos) {
    is = "of MPICH";
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("no replica could be started: {} is {}, but Open MPI 4.1 is needed; put "
                          "its folder first in PATH, on Debian: apt install openmpi-bin",
                          mpirun, is));
}

constexpr int kTimedOut = 124;  // The code of `timeout`.

Status check_mpirun_program(const std::string& mpirun) {
  std::string quoted;
  for (const char c : mpirun) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  const std::string line =
      fmt::format("env -u OPAL_PREFIX timeout 5 '{}' --version </dev/null 2>&1", quoted);
  FILE* const pipe = popen(line.c_str(), "re");
  if (pipe == nullptr) {
    return {};
  }
  std::string answer;
  std::array<char, 4096> part{};
  while (true) {
    const std::size_t bytes = fread(part.data(), 1, part.size(), pipe);
    answer.append(part.data(), bytes);
    if (bytes > 0 || (ferror(pipe) != 0 && errno == EINTR)) {  // Processes of the job end now.
      clearerr(pipe);
      continue;
    }
    break;
  }
  const int status = pclose(pipe);
  const bool answered = WIFEXITED(status) && WEXITSTATUS(status) != kTimedOut;
  return answered || !answer.empty() ? check_mpirun_version(mpirun, answer) : Status{};
}

std::string path_beside_us(const std::string& program) {
  return own_folder() / program;
}

}  // namespace poprun::launcher
