#include "launcher/options/pasted_program.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "launcher/options/command_line.h"
#include "launcher/options/config_file.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

/// Returns whether the file is a program, judging by its contents. Its mode is not used, since some file systems mark
/// every file as executable.
bool is_executable(const std::string& file) {
  std::array<char, 4> begin{};
  std::ifstream(file, std::ios::binary).read(begin.data(), begin.size());
  const std::string_view text(begin.data(), begin.size());
  return text.starts_with("#!") || text ==
                                       "\x7f"
                                       "ELF";
}

bool is_in_path(const std::string& command) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / command;
    std::error_code error;
    if (!folder.empty() && fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

bool is_program(const std::string& word) {
  const fs::path path(word);
  const std::string extension = path.extension();
  if (extension == ".py" || extension == ".sh" || extension == ".cfg") {
    return extension != ".cfg";
  }
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return is_executable(word);
  }
  return !fs::exists(path, error) && word.find('/') == std::string::npos &&
         (word.starts_with("python") || is_in_path(word));
}

}  // namespace

Status check_no_program(std::span<const std::string> args) {
  const std::span<const std::string> words = words_after_options(args);
  if (words.empty() || std::ranges::count(subcommands(), words[0], &SubcommandRow::name) > 0 ||
      is_information(words[0]) || !is_program(words[0])) {
    return {};
  }
  POPRUN_ASSIGN(const CommandLine before, parse_command_line(args.first(args.size() - words.size())));
  if (std::ranges::any_of(before.written, [](const Written& w) { return w.row->name == "help"; })) {
    return {};
  }
  constexpr std::size_t kShown = 4;
  return fail(ErrorCode::kUsage,
              fmt::format("{}{}: poprun-emu runs a train.cfg instead of a program: the file says what to train, with "
                          "which optimiser and on which data; usage: {}{}",
                          fmt::join(words.first(std::min(kShown, words.size())), " "),
                          words.size() > kShown ? " ..." : "", usage_line(Subcommand::kRun), default_job_hint()));
}

}  // namespace poprun::launcher
