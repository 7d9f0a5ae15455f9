// --real and --what-if: Pods that are larger than the job that runs, or that are disturbed.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// Above all replicas: a host that only other rows of a table have.
constexpr std::uint64_t kNoReplica = std::numeric_limits<std::uint32_t>::max();

constexpr const char* kDisturbances =
    "slow=REPLICAS:FACTORx[@stepFIRST[-LAST]], jitter=lognormal:PERCENT% or "
    "dead=hostN|replicaN@stepN,restart[:SECONDS]; for example slow=37:1.3x, slow=0-15:1.1x@step100, "
    "slow=37:2x@step100-199, "
    "jitter=lognormal:2%, dead=host5@step200,restart or dead=replica80@step200,restart:120s";

std::string_view without_prefix(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::string_view without_suffix(std::string_view text, std::string_view suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

/// Splits the text at the first `separator`. The second part is empty if there is none.
std::pair<std::string_view, std::string_view> split_at(std::string_view text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  return {text.substr(0, at), text.substr(std::min(at + 1, text.size()))};
}

std::optional<proto::Slowdown> slowdown_of(std::string_view text) {
  constexpr double kFactorMax = 1000;
  const auto [who, when] = split_at(text, '@');
  const auto [replicas, factor_text] = split_at(who, ':');
  const auto range = parse_range(replicas);
  const auto factor = parse_number<double>(without_suffix(factor_text, "x"));
  const std::string_view steps_text = without_prefix(when, "step");
  auto steps = parse_range(steps_text);
  if (when.empty()) {
    steps = {1, std::numeric_limits<std::uint64_t>::max()};
  } else if (steps && steps_text.find('-') == std::string_view::npos) {
    steps->second = std::numeric_limits<std::uint64_t>::max();  // From this step on.
  }
  if (!range || range->second >= kNoReplica || !factor || !(*factor >= 0.001) || *factor > kFactorMax || !steps ||
      steps->first == 0 || (who.size() < text.size() && when.empty())) {
    return std::nullopt;
  }
  proto::Slowdown slowdown;
  slowdown.set_first_replica(static_cast<std::uint32_t>(range->first));
  slowdown.set_last_replica(static_cast<std::uint32_t>(range->second));
  slowdown.set_factor(*factor);
  slowdown.set_first_step(steps->first);
  slowdown.set_last_step(steps->second);
  return slowdown;
}

std::optional<proto::Loss> loss_of(std::string_view text) {
  constexpr double kSecondsMax = 1e8;
  const auto [place, when] = split_at(text, '@');
  const auto [step_text, restart] = split_at(when, ',');
  const auto step = parse_number<std::uint64_t>(without_prefix(step_text, "step"));
  const auto [word, seconds_text] = split_at(restart, ':');
  const auto seconds = seconds_text.empty() ? 0.0 : parse_number<double>(without_suffix(seconds_text, "s"));
  const auto number_after = [place = place](std::string_view kind) {
    return place.starts_with(kind) ? parse_number<std::uint32_t>(place.substr(kind.size())) : std::nullopt;
  };
  const auto host = number_after("host");
  const auto replica = number_after("replica");
  if ((!host && !replica) || !step || *step == 0 || word != "restart" || !seconds || !(*seconds >= 0) ||
      *seconds > kSecondsMax) {
    return std::nullopt;
  }
  proto::Loss loss;
  host ? loss.set_host(*host) : loss.set_replica(*replica);
  loss.set_step(*step);
  loss.set_restart_seconds(*seconds);
  return loss;
}

}  // namespace

Read<proto::WhatIf> Disturbance::read(const std::string& text) const {
  constexpr double kJitterMax = 100;
  const auto [kind, rest] = split_at(text, '=');
  proto::WhatIf what_if;
  if (const auto slowdown = slowdown_of(rest); kind == "slow" && slowdown) {
    *what_if.add_slowdowns() = *slowdown;
    return what_if;
  }
  if (const auto loss = loss_of(rest); kind == "dead" && loss) {
    *what_if.add_losses() = *loss;
    return what_if;
  }
  const auto percent = parse_number<double>(without_suffix(without_prefix(rest, "lognormal:"), "%"));
  if (kind == "jitter" && rest.starts_with("lognormal:") && rest.ends_with('%') && percent && *percent > 0 &&
      *percent <= kJitterMax) {
    what_if.set_jitter(*percent / 100);
    return what_if;
  }
  if (kind == "dead" && rest.find(',') == std::string_view::npos && rest.find("@") != std::string_view::npos) {
    return tl::unexpected<std::string>(
        fmt::format("followed by ',restart', such as {},restart: without a restart, the job ends there", text));
  }
  return tl::unexpected<std::string>(kDisturbances);
}

Status resolve_real(Options& options) {
  proto::Topology& topology = *options.config.mutable_topology();
  const std::uint32_t real = options.real;
  const std::uint32_t all = topology.num_replicas();
  if (real == 0) {
    return {};
  }
  POPRUN_TRY(check_trains(options, fmt::format("--real = {}", real)));
  if (real > all) {
    return fail(ErrorCode::kUsage, fmt::format("--real = {} is more than --num-replicas = {}; give the number of "
                                               "replicas that run, out of all of them",
                                               real, all));
  }
  if (real < all) {
    topology.set_timed_replicas(all);
    topology.set_num_replicas(real);
  }
  return {};
}

Status resolve_what_if(Options& options) {
  if (!options.config.has_what_if()) {
    return {};
  }
  proto::WhatIf& what_if = *options.config.mutable_what_if();
  const proto::Topology& topology = options.config.topology();
  const std::uint32_t replicas = std::max(topology.timed_replicas(), topology.num_replicas());
  if (options.config.inference() || options.subcommand() == Subcommand::kCheck ||
      options.subcommand() == Subcommand::kEstimate || options.subcommand() == Subcommand::kValidate) {
    return fail(ErrorCode::kUsage,
                "--what-if applies to training jobs, their --dry-run, profile and scale; leave it out here");
  }
  const auto check = [&](std::uint64_t replica, const std::string& place) -> Status {
    // Each row of scale is such a job, and small ones lack some of the replicas.
    if (replica < replicas || options.subcommand() == Subcommand::kScale) {
      return {};
    }
    return fail(ErrorCode::kUsage,
                fmt::format("--what-if: {} does not exist; the job has replicas 0 to {}{}", place,
                            grouped(replicas - 1), place.starts_with("host") ? ", and a host has 16 IPUs" : ""));
  };
  for (const proto::Slowdown& slowdown : what_if.slowdowns()) {
    POPRUN_TRY(check(slowdown.last_replica(), fmt::format("replica {}", slowdown.last_replica())));
  }
  for (proto::Loss& loss : *what_if.mutable_losses()) {
    if (!loss.has_host()) {
      POPRUN_TRY(check(loss.replica(), fmt::format("replica {}", loss.replica())));
      continue;
    }
    // A POD16 has one host, and a POD64 up to four (Graphcore's datasheets).
    constexpr std::uint64_t kIpusOfAHost = 16;
    const std::uint64_t first = loss.host() * kIpusOfAHost / topology.ipus_per_replica();
    POPRUN_TRY(check(first, fmt::format("host {}", loss.host())));
    loss.set_replica(static_cast<std::uint32_t>(std::min(first, kNoReplica)));
  }
  if (what_if.losses_size() > 0 && options.checkpoints.every.seconds > 0) {
    return fail(ErrorCode::kUsage,
                "--what-if dead= needs --checkpoint-every in steps, such as 100, because it knows no wall time");
  }
  if (what_if.losses_size() > 0) {
    what_if.set_checkpoint_every_steps(options.checkpoints.every.steps);
    what_if.set_detection_seconds(options.timeouts.heartbeat_seconds);
  }
  return {};
}

}  // namespace poprun::launcher
