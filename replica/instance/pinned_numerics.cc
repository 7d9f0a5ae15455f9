#include "replica/instance/pinned_numerics.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

namespace poprun {
namespace {

/// Variable in which the restarted program finds the dropped ones, one per line.
constexpr const char* kDropped = "POPRUN_EMU_DROPPED";

/// Whether a variable changes bits. `OMP_NUM_THREADS=1`, which the launcher sets, does not.
bool moves_bits(std::string_view variable) {
  constexpr std::array<std::string_view, 3> kFamilies = {"OMP_", "GOMP_", "KMP_"};
  constexpr std::array<std::string_view, 4> kNames = {
      "ONEDNN_DEFAULT_FPMATH_MODE=", "DNNL_DEFAULT_FPMATH_MODE=", "ONEDNN_CPU_ISA_HINTS=", "DNNL_CPU_ISA_HINTS="};
  const auto begins = [variable](std::string_view name) { return variable.starts_with(name); };
  return variable != "OMP_NUM_THREADS=1" &&
         (std::ranges::any_of(kFamilies, begins) || std::ranges::any_of(kNames, begins));
}

}  // namespace

void pin_environment(char** arguments) {
  // After the restart the process would be called `exe`.
  prctl(PR_SET_NAME, std::filesystem::path(arguments[0]).filename().c_str());
  std::string dropped;
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (moves_bits(*variable)) {
      dropped += std::string(*variable) + '\n';
    } else {
      kept.push_back(*variable);
    }
  }
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (dropped.empty() && threads != nullptr) {
    return;
  }
  std::string one_thread = "OMP_NUM_THREADS=1";
  std::string told = std::string(kDropped) + '=' + dropped;
  const std::string told_before = std::string(kDropped) + '=';
  std::erase_if(kept,
                [&](std::string_view variable) { return variable == one_thread || variable.starts_with(told_before); });
  kept.insert(kept.end(), {one_thread.data(), told.data(), nullptr});
  execve("/proc/self/exe", arguments, kept.data());
  // Reached if the restart fails, for example without /proc: continues unchanged.
}

std::vector<std::string> dropped_variables() {
  const char* text = std::getenv(kDropped);
  std::istringstream lines(text == nullptr ? "" : text);
  std::vector<std::string> dropped;
  for (std::string line; std::getline(lines, line);) {
    dropped.push_back(line);
  }
  return dropped;
}

void pin_arithmetic() {
  std::fesetenv(FE_DFL_ENV);
}

}  // namespace poprun
