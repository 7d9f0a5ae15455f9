#include <span>

#include <fmt/format.h>

#include "launcher/verdict/post_mortem.h"
#include "launcher/verdict/replica_words.h"

namespace poprun::launcher {
namespace {

std::vector<std::string> facts_of(const proto::Failure& failure) {
  std::vector<std::string> lines;
  if (failure.missing_size() > 0) {
    const std::vector<std::uint32_t> missing{failure.missing().begin(), failure.missing().end()};
    lines.push_back(fmt::format("  missing: replica{} {}", missing.size() == 1 ? "" : "s", number_ranges(missing)));
  }
  if (!failure.address().empty()) {
    lines.push_back("  address: " + failure.address());
  }
  if (failure.has_needed_bytes()) {
    lines.push_back(fmt::format("  needed: {} B, available: {} B", failure.needed_bytes(), failure.had_bytes()));
  }
  return lines;
}

}  // namespace

std::string failure_report(const JobState& state, const Verdict& verdict, double now) {
  std::vector<std::string> lines = {verdict.first_line};
  append(lines, verdict.more);
  lines.emplace_back("\nwhat each replica did last:");
  const std::uint32_t local = state.placement().replicas_per_instance();
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    const char* end = instance.left ? ", exited" : instance.lost ? ", connection lost" : "";
    for (std::uint32_t r = i * local; instance.joined && r < (i + 1) * local; ++r) {
      lines.push_back(fmt::format("  {}; host {}, pid {}{}", what_they_did(state, std::span(&r, 1), now).front(),
                                  instance.host, instance.pid, end));
    }
    if (!instance.joined) {
      lines.push_back(fmt::format("  instance {} on host {} did not join", i, instance.host));
    }
  }
  if (const auto losses = state.losses().found(now); !losses.empty()) {
    lines.push_back("\n" + describe(losses));
  }
  for (const proto::Failure& failure : state.failures()) {
    lines.push_back(fmt::format("\nreplica {}{} failed with code {}: {}", failure.replica(),
                                failure.host().empty() ? "" : " on host " + failure.host(), failure.exit_code(),
                                failure.message()));
    append(lines, facts_of(failure));
    append(lines, last_calls(failure, failure.recent_calls_size()));
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace poprun::launcher
