#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "launcher/console.h"
#include "launcher/dry_run.h"
#include "launcher/inquiry.h"
#include "launcher/job.h"
#include "launcher/options.h"
#include "launcher/placement.h"

/// poprun-emu, the command. Exit codes: design section 8.
namespace poprun::launcher {
namespace {

/// A log for each of thousands of replicas is more open files than shells allow by default.
void allow_many_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

int run(const std::vector<std::string>& args, double launched_at) {
  Console console;
  const Result<Options> options = parse_options(args);
  if (!options) {
    console.say(options.error().message);
    return static_cast<int>(options.error().code);
  }
  if (options->help || options->version) {
    console.out(options->help ? help_text() : fmt::format("poprun-emu {}", POPRUN_VERSION));
    return 0;
  }
  if (!options->question.empty()) {
    return ask_replica(options->question, "", console);
  }
  const Result<Placement> placement = place(*options);
  if (!placement) {
    console.say(placement.error().message);
    return static_cast<int>(placement.error().code);
  }
  for (const std::string& note : options->notes) {
    console.say(fmt::format("note: {}", note));
  }
  if (options->dry_run) {
    return dry_run(*options, *placement, console);
  }
  allow_many_files();
  if (options->print_topology || options->verbosity > 0) {
    console.out(topology_table(*placement));
  }
  return Job(*options, *placement, console, launched_at).run();
}

}  // namespace
}  // namespace poprun::launcher

int main(int argc, char** argv) {
  const double launched_at = poprun::launcher::monotonic_seconds();
  // A reader that goes away must not end the job, and gRPC's own words must not come before ours.
  std::signal(SIGPIPE, SIG_IGN);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return poprun::launcher::run({argv + 1, argv + argc}, launched_at);
}
