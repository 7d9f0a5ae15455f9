#pragma once

#include <string>

/// What every call between the processes of a job must carry.
namespace poprun::launcher {

/// POPRUN_EMU_TOKEN of our own environment, or else 128 random bits.
std::string job_token();

/// True where the user chose the token, and can start a data server with it.
bool token_is_users();

}  // namespace poprun::launcher
