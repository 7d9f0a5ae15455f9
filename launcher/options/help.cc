#include "launcher/options/help.h"

#include <cstddef>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/options/row_descriptions.h"

namespace poprun::launcher {
namespace {

constexpr const char* kExitCodes = R"(

Exit codes: 0 done, 64 bad option or train.cfg, 65 bad data, 69 host or data server not reached,
or no room for the job on this machine, 70 a bug, 75 something died or took too long (run again),
86 the model does not fit, 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM; a replica's own
exit code is passed on.
)";

}  // namespace

const char* const kUsageLine =
    "poprun-emu [options] train.cfg, for example: poprun-emu -n 16 train.cfg";

std::string help_text() {
  std::ostringstream out;
  out << "Usage: " << kUsageLine << "\n\n"
      << "Trains the model of train.cfg on emulated IPUs, as poprun would on a Pod.\n\n";
  const std::vector<std::pair<Group, const char*>> groups = {
      {Group::kGeneral, "General"},
      {Group::kPlacement, "Placement"},
      {Group::kHosts, "Hosts and MPI"},
      {Group::kDataServer, "Data server"},
      {Group::kOutput, "Output"},
      {Group::kTimeouts, "Timeouts"},
      {Group::kJob,
       "The job (in train.cfg: `[training]`, then `seed = 7`; the command line overrides it)"}};
  for (const auto& [group, caption] : groups) {
    out << described(group, caption, /*for_help=*/true) << "\n";
  }
  out << "Accepted without effect, for poprun's users:";
  std::size_t place = 0;
  for (const OptionRow& row : option_table()) {
    if (row.group == Group::kCompatibility) {
      out << (place++ % 4 == 0 ? "\n  --" : " --") << row.name;
    }
  }
  out << kExitCodes;
  return out.str();
}

}  // namespace poprun::launcher
