#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "launcher/console.h"
#include "launcher/inquiry.h"
#include "launcher/job.h"
#include "launcher/mpirun.h"
#include "launcher/options.h"
#include "launcher/placement.h"
#include "launcher/surroundings.h"

/// poprun-emu, the command. Exit codes: design section 8.
namespace poprun::launcher {
namespace {

/// What would be done, in the order in which it would be done.
void print_plan(Console& console, const Options& options, const Placement& placement) {
  const MpirunCommand command = mpirun_here(options, placement, replica_path());
  console.out(topology_table(placement));
  console.out(fmt::format("# {}, resolved\n{}", options.config_file, resolved_config(options)));
  console.out(fmt::format("# mpirun\n{}\n", shell_line(command)));
  for (std::size_t i = 0; i < command.instances.size(); ++i) {
    console.out(
        fmt::format("# instance {} on {}", i, placement.host_of(static_cast<std::uint32_t>(i))));
    for (const auto& [name, value] : command.instances[i]) {
      console.out(fmt::format("{}={}", name, value));
    }
    console.out(
        "POPRUN_EMU_COORDINATOR=<this launcher's address, chosen at "
        "start>\nPOPRUN_EMU_TOKEN=<secret>\n");
  }
}

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
    return ask_replica(options->question, console);
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
    print_plan(console, *options, *placement);
    return 0;
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
