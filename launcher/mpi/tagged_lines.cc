#include "launcher/mpi/tagged_lines.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::size_t kNoticeCharactersMax = 250;
constexpr std::size_t kLinesMax = 200;
constexpr const char* kUnknownOption = "unknown option";
constexpr const char* kNoDaemon = "unable to reliably start";
/// Texts that identify a notice as a warning, after which mpirun continues.
constexpr std::array kWarnings = {std::string_view("deprecated MCA variable"), std::string_view("WARNING:"),
                                  std::string_view("Warning:")};

std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

struct Tag {
  std::uint32_t rank = 0;
  bool is_stderr = false;
  std::size_t length = 0;
};

/// Parses a tag such as `[1,3]<stdout>:` at the beginning of `text`.
std::optional<Tag> parse_tag(std::string_view text) {
  std::string_view rest = text;
  if (!take_prefix(rest, "[") || !take_number(rest) || !take_prefix(rest, ",")) {
    return std::nullopt;
  }
  const std::optional<std::uint32_t> rank = take_number(rest);
  if (!rank || !take_prefix(rest, "]<std")) {
    return std::nullopt;
  }
  const bool is_stderr = rest.starts_with("err>:");
  if (!is_stderr && !rest.starts_with("out>:")) {
    return std::nullopt;
  }
  return Tag{*rank, is_stderr, text.size() - rest.size() + 5};
}

std::optional<std::uint32_t> number_after(std::string_view line, std::string_view name) {
  const std::size_t place = line.find(name);
  if (place == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view rest = line.substr(place + name.size());
  return take_number(rest);
}

}  // namespace

TagReader::Output TagReader::take(std::string_view line) {
  Output output;
  std::optional<Tag> tag = parse_tag(line);
  if (!tag) {
    output.untagged = line;
    return output;
  }
  while (tag) {
    line.remove_prefix(tag->length);
    std::size_t next = line.find('[');
    std::optional<Tag> next_tag;
    while (next != std::string_view::npos && !(next_tag = parse_tag(line.substr(next)))) {
      next = line.find('[', next + 1);
    }
    std::string& piece = pieces_[{tag->rank, tag->is_stderr}];
    piece += line.substr(0, next);
    if (!next_tag) {
      output.lines.push_back({tag->rank, tag->is_stderr, std::exchange(piece, {})});
    } else {
      line.remove_prefix(next);
    }
    tag = next_tag;
  }
  return output;
}

std::optional<ReplicaLine> parse_replica_line(std::string_view text) {
  if (!take_prefix(text, "[replica ")) {
    return std::nullopt;
  }
  const std::optional<std::uint32_t> replica = take_number(text);
  const std::size_t close = text.find("] ");
  if (!replica || !text.starts_with(" @ ") || close == std::string_view::npos || close + 3 >= text.size() ||
      text[close + 3] != ' ' || std::string_view("DIWE").find(text[close + 2]) == std::string_view::npos) {
    return std::nullopt;
  }
  return ReplicaLine{*replica, text[close + 2]};
}

void MpirunNotices::take(std::string_view line) {
  line = trimmed(line);
  if (line.find_first_not_of("-=*") == std::string_view::npos) {
    if (!line.empty()) {
      notices_.emplace_back();
    }
    return;
  }
  // Our remote shell (remote_shell.sh) writes this line.
  if (std::string_view rest = line; take_prefix(rest, "poprun-emu: no start on host ")) {
    const std::size_t colon = std::min(rest.find(": "), rest.size());
    if (!findings_.start_failure) {
      findings_.start_failure = StartFailure{.node = std::string(rest.substr(0, colon)),
                                             .lacks = "",
                                             .problem = std::string(rest.substr(std::min(colon + 2, rest.size()))),
                                             .no_daemon = true};
    }
    return;
  }
  if (std::string_view rest = line; take_prefix(rest, "poprun-emu: host ")) {
    constexpr std::string_view kSays = " says: ";
    const std::size_t says = rest.find(kSays);
    return says == std::string_view::npos
               ? void()
               : take_of_host(rest.substr(0, says), trimmed(rest.substr(says + kSays.size())));
  }
  keep(line, /*by_host=*/false);
  read_start_failure(line);
  read_rank_end(line);
  // After a line such as "  Remote daemon: [[23813,0],2] on node node2", mpirun ends the job.
  if (const std::size_t on = line.find(" on node ");
      line.starts_with("Remote daemon:") && on != std::string_view::npos && !findings_.lost_node) {
    findings_.lost_node = line.substr(on + std::string_view(" on node ").size());
  }
}

void MpirunNotices::keep(std::string_view line, bool by_host) {
  if (lines_ == kLinesMax) {
    return;
  }
  if (notices_.back().by_host != by_host) {
    notices_.push_back({{}, by_host});
  }
  ++lines_;
  notices_.back().lines.emplace_back(line);
}

void MpirunNotices::take_of_host(std::string_view host, std::string_view text) {
  if (text.find_first_not_of("-=*") == std::string_view::npos) {
    return;
  }
  const bool continues = notices_.back().by_host;
  keep(continues || text.find(host) != std::string_view::npos ? std::string(text)
                                                              : fmt::format("host {}: {}", host, text),
       /*by_host=*/true);
}

/// Parses "Executable: /x/replica", "Working directory: /x" or "Error: ...", and the line "Node: node2", which may
/// precede or follow any of them.
void MpirunNotices::read_start_failure(std::string_view line) {
  const auto take_value = [line](std::string_view name, std::string& into) {
    if (line.starts_with(name)) {
      into = trimmed(line.substr(name.size()));
    }
  };
  take_value("Executable:", being_read_.lacks);
  take_value("Working directory:", being_read_.lacks);
  take_value("Error:", being_read_.problem);
  take_value("Node:", being_read_.node);
  const bool complete = !being_read_.node.empty() && !(being_read_.lacks.empty() && being_read_.problem.empty());
  if (complete && !findings_.start_failure) {
    findings_.start_failure = being_read_;
  }
}

void MpirunNotices::read_rank_end(std::string_view line) {
  if (findings_.rank_end) {
    return;
  }
  // The line is "mpirun noticed that process rank 5 with PID 0 on node n exited on signal 9 (Killed)."
  const std::optional<std::uint32_t> noticed = number_after(line, "noticed that process rank ");
  const std::optional<std::uint32_t> signal = number_after(line, "exited on signal ");
  if (noticed && signal) {
    findings_.rank_end = RankEnd{*noticed, static_cast<int>(*signal), 0};
  }
  // First comes the line "Process name: [[19389,1],5]", and later "Exit code:    7".
  if (line.starts_with("Process name: [[")) {
    named_rank_ = number_after(line, "],");
  } else if (line.starts_with("Exit code:") && named_rank_) {
    std::string_view rest = trimmed(line.substr(std::string_view("Exit code:").size()));
    if (const std::optional<std::uint32_t> code = take_number(rest)) {
      findings_.rank_end = RankEnd{*named_rank_, 0, static_cast<int>(*code)};
    }
  }
}

std::string MpirunNotices::line_with(std::string_view part) const {
  for (const Notice& notice : notices_) {
    for (const std::string& line : notice.lines) {
      if (line.find(part) != std::string::npos) {
        return line;
      }
    }
  }
  return "";
}

std::string MpirunNotices::known_reason() const {
  if (const std::string orted = line_with("orted: command not found"); !orted.empty()) {
    return fmt::format(
        "a host has no Open MPI in the PATH of non-interactive shells; install the same "
        "version on all hosts; on Debian: apt install openmpi-bin ({})",
        orted);
  }
  for (const char* telling :
       {"Could not resolve hostname", "not enough slots", "No route to host", "Connection refused", "Permission denied",
        "Host key verification failed", "unrecognized", kUnknownOption, ": Error:"}) {
    // Skips a line that begins with "Error:", because a different line of the same notice names the folder.
    if (std::string line = line_with(telling); !line.empty() && !line.starts_with("Error:")) {
      return line;
    }
  }
  return "";
}

std::string MpirunNotices::essential() const {
  if (std::string reason = known_reason(); !reason.empty()) {
    return reason;
  }
  const auto text_of = [](const Notice& notice) {
    std::string text;
    for (const std::string& line : notice.lines) {
      text += (text.empty() ? "" : " ") + line;
      if (text.size() >= kNoticeCharactersMax) {
        break;
      }
    }
    return text;
  };
  const auto last_by_host = std::ranges::find_if(notices_.rbegin(), notices_.rend(), &Notice::by_host);
  if (const std::string daemon = line_with(kNoDaemon); !daemon.empty()) {
    return last_by_host == notices_.rend() ? daemon : text_of(*last_by_host);
  }
  // Warnings precede the cause, and a host's message may itself be only a warning.
  const auto is_cause = [](const Notice& notice) {
    return !notice.lines.empty() && !notice.by_host && std::ranges::none_of(kWarnings, [&](std::string_view warning) {
      return notice.lines.front().find(warning) != std::string::npos;
    });
  };
  // A program's message between separator lines takes priority over a line outside them.
  auto cause = std::ranges::find_if(notices_.begin() + 1, notices_.end(), is_cause);
  cause = cause == notices_.end() ? std::ranges::find_if(notices_, is_cause) : cause;
  return cause == notices_.end() ? "" : text_of(*cause);
}

bool MpirunNotices::misses_a_daemon() const {
  return known_reason().empty() && !line_with(kNoDaemon).empty();
}

bool MpirunNotices::refuses_arguments() const {
  return essential().find(kUnknownOption) != std::string::npos;
}

}  // namespace poprun::launcher
