#include "launcher/process/surroundings.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/placement/hosts.h"

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
    return fail(ErrorCode::kUnreachable,
                fmt::format("{} is not executable or not there; the three programs poprun-emu, "
                            "poprun-emu-replica and poprun-emu-hostio belong into one folder",
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
      ErrorCode::kUnreachable,
      fmt::format("{} is not in PATH; install Open MPI 4.1, on Debian: apt install openmpi-bin",
                  name));
}

/// The source address that the kernel would take towards `host`. Sends nothing.
std::optional<std::string> address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  auto* const own_address = reinterpret_cast<sockaddr*>(&own);
  const bool known = descriptor >= 0 &&
                     connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(descriptor, own_address, &size) == 0;
  if (descriptor >= 0) {
    close(descriptor);
  }
  std::array<char, INET_ADDRSTRLEN> text{};
  if (!known || inet_ntop(AF_INET, &own.sin_addr, text.data(), text.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(text.data());
}

std::string users_token() {
  const char* token = std::getenv("POPRUN_EMU_TOKEN");
  return token == nullptr ? "" : token;
}

}  // namespace

Result<Programs> find_programs() {
  Programs programs;
  POPRUN_ASSIGN(programs.replica, beside_us("poprun-emu-replica"));
  POPRUN_ASSIGN(programs.data_server, beside_us("poprun-emu-hostio"));
  POPRUN_ASSIGN(programs.mpirun, from_path("mpirun"));
  return programs;
}

std::string path_beside_us(const std::string& program) {
  return own_folder() / program;
}

std::string advertised_host(const Placement& placement) {
  if (placement.all_local) {
    return "127.0.0.1";
  }
  const auto remote = std::ranges::find_if_not(
      placement.hosts, [](const auto& host) { return is_this_machine(host); });
  return address_towards(*remote).value_or(machine_name());
}

std::string job_token() {
  if (std::string users = users_token(); !users.empty()) {
    return users;
  }
  std::array<unsigned char, 16> bytes{};
  POPRUN_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return token;
}

bool token_is_users() {
  return !users_token().empty();
}

}  // namespace poprun::launcher
