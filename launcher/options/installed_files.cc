#include "launcher/options/installed_files.h"

#include <filesystem>
#include <system_error>

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

std::string if_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? path.string() : "";
}

}  // namespace

std::string installed_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path().parent_path() / "share/poprun-emu";
  return !error && fs::is_directory(folder, error) ? folder.string() : "";
}

std::string default_job() {
  return installed_file("train.cfg");
}

std::string installed_file(const std::string& name) {
  const fs::path folder = installed_folder();
  if (folder.empty()) {
    return "";
  }
  const std::string job = if_file(folder / name);
  return job.empty() ? if_file(folder / "examples" / name) : job;
}

}  // namespace poprun::launcher
