#include <string_view>

#include <fmt/format.h>

#include "launcher/options/option_values.h"
#include "launcher/options/rows.h"

namespace poprun::launcher {

Rows compatibility_rows() {
  constexpr const char* kHardware = "there is no IPU hardware to act on";
  constexpr const char* kSync = "copy the programs to the hosts yourself";
  const auto row = [](const char* name, Arity arity, const char* why) -> OptionRow {
    const auto note = [=](Options& options, const auto&) {
      options.notes.push_back(fmt::format("--{} has no effect here: {}", name, why));
    };
    const bool flag = arity == Arity::kFlag;
    return {name,
            0,
            Group::kCompatibility,
            arity,
            flag ? "BOOL" : "X",
            "",
            "",
            flag ? set(Boolean{}, note) : set(Text{}, note)};
  };
  Rows rows;
  for (const char* name :
       {"vipu-server-host", "vipu-server-port", "vipu-server-timeout", "vipu-partition",
        "vipu-partition-attempts", "vipu-allocation", "vipu-cluster", "sync-type", "num-ilds"}) {
    rows.push_back(row(name, Arity::kRepeated, kHardware));
  }
  rows.push_back(
      row("executable-cache-path", Arity::kRepeated, "compiling takes moments and is not cached"));
  rows.push_back(row("process-placement", Arity::kRepeated,
                     "processes are not bound; --mpi-global-args can bind them"));
  for (const char* name :
       {"update-partition", "reset-partition", "remove-partition", "offline-mode"}) {
    rows.push_back(row(name, Arity::kFlag, kHardware));
  }
  rows.push_back(
      row("numa-aware", Arity::kFlag, "processes are not bound; --mpi-global-args can bind them"));
  rows.push_back(row("allow-run-as-root", Arity::kFlag, "root is always allowed"));
  for (const char* name :
       {"synchronise-python-venv", "synchronise-poplar-sdk", "distribute-ssh-key"}) {
    rows.push_back(row(name, Arity::kFlag, kSync));
  }
  return rows;
}

std::optional<std::string> why_refused(std::string_view name) {
  if (name == "import-config") {
    return "is poprun's; here a job's settings stand in train.cfg and its placement on the command "
           "line";
  }
  if (name == "export-config" || name == "overwrite-config") {
    return "is poprun's; here --dry-run prints every resolved setting, in the form of a train.cfg";
  }
  if (name == "version-format") {
    return "is poprun's; here --version prints one form, and profile.json of a run has the "
           "libraries' versions";
  }
  return std::nullopt;
}

}  // namespace poprun::launcher
