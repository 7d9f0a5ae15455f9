#include "launcher/mpi/tagged_lines.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr std::size_t kNoticeCharactersMax = 250;
constexpr std::size_t kNoticesMax = 200;
constexpr const char* kUnknownOption = "unknown option";
constexpr const char* kNoDaemon = "unable to reliably start";

/// Reads an unsigned integer off the front of `text`.
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

/// `[1,3]<stdout>:` at the front of `text`.
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

std::string_view stripped(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view{}
             : line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

/// The number after `name` in a line, where it has that name.
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
  if (!replica || !text.starts_with(" @ ") || close == std::string_view::npos ||
      close + 3 >= text.size() || text[close + 3] != ' ' ||
      std::string_view("DIWE").find(text[close + 2]) == std::string_view::npos) {
    return std::nullopt;
  }
  return ReplicaLine{*replica, text[close + 2]};
}

void MpirunNotices::take(std::string_view line) {
  line = stripped(line);
  if (line.find_first_not_of("-=*") == std::string_view::npos) {
    const bool ruler = !line.empty();
    first_notice_ = ruler && first_notice_ == 0 ? lines_.size() : first_notice_;
    return;
  }
  if (lines_.size() < kNoticesMax) {
    lines_.emplace_back(line);
  }
  read_start_failure(line);
  read_rank_end(line);
  // "  Remote daemon: [[23813,0],2] on node node2", on which mpirun ends the job.
  if (const std::size_t on = line.find(" on node ");
      line.starts_with("Remote daemon:") && on != std::string_view::npos && !findings_.lost_node) {
    findings_.lost_node = line.substr(on + std::string_view(" on node ").size());
  }
}

/// "Executable: /x/replica" or "Working directory: /x" or "Error: system limit exceeded on ...",
/// with "Node: node2" before or after it.
void MpirunNotices::read_start_failure(std::string_view line) {
  const auto take_value = [line](std::string_view name, std::string& into) {
    if (line.starts_with(name)) {
      into = stripped(line.substr(name.size()));
    }
  };
  take_value("Executable:", being_read_.lacks);
  take_value("Working directory:", being_read_.lacks);
  take_value("Error:", being_read_.problem);
  take_value("Node:", being_read_.node);
  const bool complete =
      !being_read_.node.empty() && !(being_read_.lacks.empty() && being_read_.problem.empty());
  if (complete && !findings_.start_failure) {
    findings_.start_failure = being_read_;
  }
}

void MpirunNotices::read_rank_end(std::string_view line) {
  if (findings_.rank_end) {
    return;
  }
  // "mpirun noticed that process rank 5 with PID 0 on node n exited on signal 9 (Killed)."
  const std::optional<std::uint32_t> noticed = number_after(line, "noticed that process rank ");
  const std::optional<std::uint32_t> signal = number_after(line, "exited on signal ");
  if (noticed && signal) {
    findings_.rank_end = RankEnd{*noticed, static_cast<int>(*signal), 0};
  }
  // "Process name: [[19389,1],5]" and on the next line "Exit code:    7"
  if (line.starts_with("Process name: [[")) {
    named_rank_ = number_after(line, "],");
  } else if (line.starts_with("Exit code:") && named_rank_) {
    std::string_view rest = stripped(line.substr(std::string_view("Exit code:").size()));
    if (const std::optional<std::uint32_t> code = take_number(rest)) {
      findings_.rank_end = RankEnd{*named_rank_, 0, static_cast<int>(*code)};
    }
  }
}

std::string MpirunNotices::essential() const {
  const auto line_with = [&](std::string_view part) -> std::string {
    const auto line = std::ranges::find_if(
        lines_, [&](const std::string& l) { return l.find(part) != std::string::npos; });
    return line == lines_.end() ? "" : *line;
  };
  if (const std::string orted = line_with("orted: "); !orted.empty()) {
    return fmt::format(
        "a host has no Open MPI in the PATH of non-interactive shells; install the same "
        "version on all hosts, on Debian: apt install openmpi-bin ({})",
        orted);
  }
  for (const char* telling :
       {"Could not resolve hostname", "not enough slots", "No route to host", "Connection refused",
        "Permission denied", "Host key verification failed", "unrecognized", kUnknownOption,
        ": Error:", kNoDaemon}) {
    // A line of a notice that has the folder in another one begins so.
    if (std::string line = line_with(telling); !line.empty() && !line.starts_with("Error:")) {
      return line;
    }
  }
  std::string notice = lines_.empty() ? "" : lines_.front();
  for (std::size_t i = 1; i < first_notice_ && notice.size() < kNoticeCharactersMax; ++i) {
    notice += ' ' + lines_[i];
  }
  return notice;
}

bool MpirunNotices::misses_a_daemon() const {
  return essential().find(kNoDaemon) != std::string::npos;
}

bool MpirunNotices::refuses_arguments() const {
  return essential().find(kUnknownOption) != std::string::npos;
}

}  // namespace poprun::launcher
