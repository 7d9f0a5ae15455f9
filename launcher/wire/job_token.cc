#include "launcher/wire/job_token.h"

#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/random.h>

#include "replica/base/error.h"

namespace poprun::launcher {
namespace {

std::string users_token() {
  const char* token = std::getenv("POPRUN_EMU_TOKEN");
  return token == nullptr ? "" : token;
}

}  // namespace

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
