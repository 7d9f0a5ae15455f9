#include "launcher/mpi_leftovers.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "launcher/hosts.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

/// The first of these variables that is set, or else `fallback`.
fs::path folder_from(std::initializer_list<const char*> variables, const char* fallback) {
  for (const char* variable : variables) {
    if (const char* value = std::getenv(variable)) {
      return value;
    }
  }
  return fallback;
}

void remove_shared_memory(std::uint64_t ranks_job) {
  const fs::path folder = folder_from({"OMPI_MCA_btl_vader_backing_directory"}, "/dev/shm");
  const std::string prefix =
      fmt::format("vader_segment.{}.{}.{:x}.", machine_name(), geteuid(), ranks_job);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) {
      std::error_code unused;
      fs::remove(entry->path(), unused);
    }
  }
}

}  // namespace

void remove_mpi_leftovers(pid_t mpirun) {
  const fs::path base =
      folder_from({"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}, "/tmp") /
      fmt::format("ompi.{}.{}", machine_name(), geteuid());
  const fs::path session = base / fmt::format("pid.{}", mpirun);
  std::uint64_t job = 0;
  if (std::ifstream(session / "contact.txt") >> job) {
    remove_shared_memory(job + 1);
  }
  std::error_code unused;
  if (fs::remove_all(session, unused) > 0) {
    fs::remove(base, unused);  // Stays where another job's session is in it.
  }
}

}  // namespace poprun::launcher
