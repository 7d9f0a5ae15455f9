#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/job/job.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/options/shell_words.h"
#include "launcher/outputs/result_files.h"
#include "replica/base/rare.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kFirstPauseSeconds = 1;
constexpr double kPauseSecondsMax = 30;
constexpr double kLeastSeconds = 0.001;  // Not 0, because 0 means no limit.

/// Returns whether a restart may help. A host or process that died may come back, and an unreachable host can be left
/// out. However, a first attempt that could not reach its hosts is not repeated, because it never ran.
bool may_go_on(const JobEnd& end, std::uint32_t restarts_done) {
  return end.may_pass && (end.exit_code == exit_code_of(ErrorCode::kInfrastructure) || restarts_done > 0);
}

/// Places the job on all hosts except `lost`. Errors: kUsage if too few hosts are left.
Result<Placement> place_without(const Options& options, const std::vector<std::string>& lost) {
  POPRUN_ASSIGN(Placement placement, place(options, lost));
  if (placement.hosts.size() < options.restarts.hosts_min) {
    return fail(ErrorCode::kUsage, fmt::format("only {} left, but --hosts-min is {}",
                                               counted(placement.hosts.size(), "host"), options.restarts.hosts_min));
  }
  return placement;
}

/// Returns the `hosts` on which mpirun's remote shell can run a program. Probes all hosts in parallel, within 10 s.
std::vector<std::string> that_answer(const std::vector<std::string>& hosts, const Options& options,
                                     const Placement& placement) {
  std::string shell = remote_shell(options, placement);
  shell.resize(std::min(shell.size(), shell.find(':')));  // The first of a list such as "ssh : rsh".
  const bool is_ssh = shell.starts_with("ssh") || shell.find("/ssh") != std::string::npos;
  const std::string user = placement.ssh_user.empty() ? "" : "-l " + quote_shell_word(placement.ssh_user);
  std::vector<std::pair<std::string, FILE*>> asked;
  for (const std::string& host : hosts) {
    const std::string line =
        fmt::format("timeout --kill-after=1 9 {} {} {} {} true </dev/null >/dev/null 2>&1", shell,
                    is_ssh ? "-o BatchMode=yes -o ConnectTimeout=5" : "", user, quote_shell_word(host));
    asked.emplace_back(host, popen(line.c_str(), "re"));
  }
  std::vector<std::string> back;
  for (const auto& [host, pipe] : asked) {
    if (pipe != nullptr && pclose(pipe) == 0) {
      back.push_back(host);
    }
  }
  return back;
}

}  // namespace

JobEnd run_attempts(World& world, const Options& options, const Placement& placement, Console& console,
                    double launched_at) {
  if (options.restarts.count_max > 0 && placement.hosts.size() < options.restarts.hosts_min) {
    console.say(
        fmt::format("--hosts-min {}: the job has {}, so it could never be restarted; lower --hosts-min, or add hosts",
                    options.restarts.hosts_min, counted(placement.hosts.size(), "host")));
    return {.exit_code = exit_code_of(ErrorCode::kUsage)};
  }
  Options attempt = options;
  Placement where = placement;
  JobHistory history{.goodput = Goodput(launched_at)};
  std::vector<std::string> lost;
  std::uint64_t farthest = 0;  // Step of the latest checkpoint of any attempt.
  std::uint32_t restarts = 0;  // Restarts since that checkpoint.
  for (;; ++history.restarts, ++restarts) {
    JobEnd end;
    {
      Job job(world, attempt, where, console, history, launched_at);
      end = job.run();
    }
    std::signal(SIGUSR1, SIG_IGN);  // Between attempts, there is no job that could take a checkpoint.
    if (end.has_checkpoint && end.checkpoint_step > farthest) {
      restarts = 0;
    }
    farthest = std::max(farthest, end.checkpoint_step);
    if (restarts == options.restarts.count_max || !may_go_on(end, history.restarts)) {
      return end;
    }
    for (const std::string& back : that_answer(lost, options, placement)) {
      POPRUN_RARE("job.host-returns");
      console.say(fmt::format("note: host {} answers again, so the job uses it", back));
      std::erase(lost, back);
    }
    lost.insert(lost.end(), end.lost_hosts.begin(), end.lost_hosts.end());
    Result<Placement> left = place_without(options, lost);
    if (!left) {
      console.say(fmt::format("no restart: {}", left.error().message));
      return end;
    }
    where = std::move(*left);
    const double wait =
        std::min(kPauseSecondsMax, kFirstPauseSeconds * static_cast<double>(1U << std::min(restarts, 5U)));
    console.say(fmt::format("restart {} of {} in {:.0f} s{}", restarts + 1, options.restarts.count_max, wait,
                            lost.empty() ? "" : fmt::format(", without {}", fmt::join(lost, ", "))));
    POPRUN_RARE("job.restart");
    if (const int number = world.pause(wait); number != 0) {
      return {.exit_code = 128 + number};
    }
    // Until the job has stored a checkpoint, a restart repeats the first start. The restart may overwrite the results
    // without --overwrite, because `history.folder` shows that they are the job's own.
    if (end.has_checkpoint) {
      attempt.checkpoints.resume = "auto";
    }
    attempt.config.mutable_corruption()->clear_flips();  // A fault of the memory happens once.
    const double now = world.now();
    if (attempt.timeouts.job_seconds > 0) {
      attempt.timeouts.job_seconds = std::max(kLeastSeconds, attempt.timeouts.job_seconds - (now - launched_at));
    }
    launched_at = now;
    history.goodput.restarted(now);
  }
}

}  // namespace poprun::launcher
