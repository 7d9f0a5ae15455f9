#include "replica/instance/process.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "collectives/session/session.h"
#include "replica/base/text.h"
#include "replica/link/launcher_link.h"
#include "replica/ops/dnnl/numerics.h"

namespace poprun {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// Environment variable in which the restarted program finds the dropped variables, one per line.
constexpr const char* kDropped = "POPRUN_EMU_DROPPED";

/// Returns whether an environment variable changes bits of results. `OMP_NUM_THREADS=1`, set by the launcher, does not.
bool moves_bits(std::string_view variable) {
  constexpr std::array<std::string_view, 3> kFamilies = {"OMP_", "GOMP_", "KMP_"};
  constexpr std::array<std::string_view, 4> kNames = {
      "ONEDNN_DEFAULT_FPMATH_MODE=", "DNNL_DEFAULT_FPMATH_MODE=", "ONEDNN_CPU_ISA_HINTS=", "DNNL_CPU_ISA_HINTS="};
  const auto begins = [variable](std::string_view name) { return variable.starts_with(name); };
  return variable != "OMP_NUM_THREADS=1" &&
         (std::ranges::any_of(kFamilies, begins) || std::ranges::any_of(kNames, begins));
}

}  // namespace

void remove_leftovers() {
  if (variable("OMPI_COMM_WORLD_LOCAL_RANK") == "0") {
    collectives::remove_leftovers(collectives::session_place(machine_name()));
  }
}

void leave_without_launcher(ErrorCode code) {
  collectives::end_daemon(variable("OMPI_MCA_orte_jobfam_session_dir"), getppid());
  ::_exit(exit_code_of(code));
}

Status check_room_for_mpi() {
  const std::uint32_t processes = processes_on_host();
  if (processes < 2 || variable("OMPI_COMM_WORLD_LOCAL_RANK") != "0" ||
      variable("OMPI_MCA_btl").find("vader") == std::string::npos) {
    return {};
  }
  const std::string folder = variable("OMPI_MCA_btl_vader_backing_directory");
  return check_shared_folder(folder.empty() ? "/dev/shm" : folder, machine_name(), processes);
}

proto::JoinRequest join_request() {
  const Numerics numerics = numerics_here();
  proto::JoinRequest request;
  request.mutable_cpu_isas()->Assign(numerics.cpu_isas.begin(), numerics.cpu_isas.end());
  request.set_onednn_version(numerics.onednn_version);
  request.set_libm_digest(numerics.libm_digest);
  return request;
}

void leave_signals_to_launcher() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    std::signal(number, SIG_IGN);
  }
}

void pin_environment(char** arguments) {
  // Without this, the process would be called `exe` after the restart.
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
  // This is reached only if the restart fails, for example without /proc. The program then continues unchanged.
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

std::uint32_t processes_on_host() {
  return static_cast<std::uint32_t>(std::max(1, std::atoi(variable("OMPI_COMM_WORLD_LOCAL_SIZE").c_str())));
}

void pin_arithmetic() {
  std::fesetenv(FE_DFL_ENV);
}

Bytes memory_touched(const Program& program) {
  Bytes bytes{0};
  for (const proto::IpuMemory& memory : program.memory()) {
    bytes += bytes_touched(memory);
  }
  return bytes;
}

Bytes memory_shared(const Program& program) {
  Bytes bytes{0};
  for (const proto::Tensor& tensor : program.tensors()) {
    if (tensor.common() && tensor.always_live()) {
      bytes += Bytes{static_cast<std::int64_t>(tensor.bytes())};
    }
  }
  return bytes;
}

Status check_host_memory(const FreeMemory& memory, const std::string& host, std::uint32_t replicas, Bytes each,
                         Bytes copies, Bytes shared) {
  const Bytes own = each - shared;
  const std::int64_t needed = own.count() * static_cast<std::int64_t>(replicas) + (shared + copies).count();
  if (needed <= memory.bytes.count()) {
    return {};
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("{} on host {} {} {} of memory for {} tensors{}, "
                          "but only {} is free ({}); use more hosts (-H), fewer replicas or a "
                          "smaller data.micro-batch-size, or raise that limit",
                          counted(replicas, "replica"), host, replicas == 1 ? "needs" : "need", bytes_text(needed),
                          replicas == 1 ? "its" : "their", copies.count() > 0 ? " and a checkpoint" : "",
                          bytes_text(memory.bytes.count()), memory.source),
              {.shortage = Shortage{.needed = Bytes{needed}, .had = memory.bytes}});
}

Status check_shared_folder(const std::string& folder, const std::string& host, std::uint32_t processes) {
  constexpr std::int64_t kSegment = std::int64_t{4} << 20;
  const std::int64_t needed = std::int64_t{processes} * (64 + 4 * std::int64_t{processes}) * 1024;
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) {
    return {};
  }
  const auto free = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
  if (free < kSegment || free >= needed) {
    return {};
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("{} processes on host {} need {} in {} for Open MPI, but only {} is free; mount a larger "
                          "file system there (docker run --shm-size), remove any vader_segment.* files that killed "
                          "jobs left behind, or use fewer processes (--num-instances)",
                          processes, host, bytes_text(needed), folder, bytes_text(free)),
              {.shortage = Shortage{.needed = Bytes{needed}, .had = Bytes{free}}});
}

}  // namespace poprun
