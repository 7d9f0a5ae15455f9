#include "launcher/screen/output_router.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr std::size_t kHiddenLinesMax = 20;
constexpr std::size_t kHeldLinesMax = 1000;

/// Formats a rank's line for the screen. A line without a replica's tag becomes `[instance 3 @ node1] text`.
std::string screen_line(const TaggedLine& line, const Placement& placement) {
  if (parse_replica_line(line.text)) {
    return line.text;
  }
  const std::size_t last_state = line.text.rfind('\r');
  const std::string_view text = last_state == std::string::npos ? std::string_view(line.text)
                                                                : std::string_view(line.text).substr(last_state + 1);
  return fmt::format("[instance {} @ {}] {}", line.rank, placement.host_of(line.rank), text);
}

}  // namespace

OutputRouter::OutputRouter(Console& console, ReplicaLogs& logs, const Placement& placement, Setup setup)
    : console_(console),
      logs_(logs),
      placement_(placement),
      setup_(setup),
      has_lines_(placement.num_instances, false),
      hidden_(placement.num_instances) {}

void OutputRouter::take(std::string_view line, bool is_stderr) {
  // A progress bar may end its line with \r. Without this loop, screen_line would show an empty text.
  while (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  const TagReader::Output output = (is_stderr ? stderr_tags_ : stdout_tags_).take(line);
  if (output.untagged) {
    take_mpirun(*output.untagged);
  }
  for (const TaggedLine& tagged : output.lines) {
    take_instance(tagged);
  }
}

void OutputRouter::take_mpirun(const std::string& line) {
  notices_.take(line);
  if (setup_.show_mpirun && held_.size() < kHeldLinesMax) {
    held_.push_back(line);
  }
}

void OutputRouter::release_mpirun_lines() {
  for (const std::string& line : std::exchange(held_, {})) {
    console_.err(line);
  }
}

void OutputRouter::take_instance(const TaggedLine& line) {
  if (line.rank >= placement_.num_instances) {
    return;
  }
  const std::optional<ReplicaLine> source = parse_replica_line(line.text);
  const std::uint32_t replica = source && source->replica < placement_.num_replicas
                                    ? source->replica
                                    : line.rank * placement_.replicas_per_instance();
  has_lines_[line.rank] = true;
  const std::string shown = screen_line(line, placement_);
  const bool chatter = source && source->level == 'I' && !setup_.show_info;
  if (is_shown(line.rank) && !chatter) {
    line.is_stderr ? console_.err(shown, Keep::kIfRoom) : console_.out(shown, Keep::kIfRoom);
  } else {
    std::deque<std::string>& hidden = hidden_[line.rank];
    hidden.push_back(shown);
    if (hidden.size() > kHiddenLinesMax) {
      hidden.pop_front();
    }
  }
  logs_.write(replica, line.text);
}

std::vector<std::string> OutputRouter::hidden_lines(std::uint32_t instance) const {
  return {hidden_[instance].begin(), hidden_[instance].end()};
}

}  // namespace poprun::launcher
