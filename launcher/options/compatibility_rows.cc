#include <fmt/format.h>

#include "launcher/options/option_values.h"
#include "launcher/options/rows.h"

namespace poprun::launcher {

Rows compatibility_rows() {
  const char* const hardware = "there is no IPU hardware to act on";
  const char* const unbound = "processes are not bound; --mpi-global-args can bind them";
  const char* const copying = "copy the programs to the hosts yourself";
  struct Ignored {
    const char* name;
    bool is_flag;
    const char* why;
  };
  const Ignored all[] = {
      {"vipu-server-host", false, hardware},
      {"vipu-server-port", false, hardware},
      {"vipu-server-timeout", false, hardware},
      {"vipu-partition", false, hardware},
      {"vipu-partition-attempts", false, hardware},
      {"vipu-allocation", false, hardware},
      {"vipu-cluster", false, hardware},
      {"update-partition", true, hardware},
      {"reset-partition", true, hardware},
      {"remove-partition", true, hardware},
      {"offline-mode", true, hardware},
      {"sync-type", false, hardware},
      {"num-ilds", false, "IPU-Link domains follow from --ipus-per-replica and the device"},
      {"executable-cache-path", false, "compiling is fast and is not cached"},
      {"process-placement", false, unbound},
      {"numa-aware", true, unbound},
      {"allow-run-as-root", true, "root is always allowed"},
      {"synchronise-python-venv", true, copying},
      {"synchronise-poplar-sdk", true, copying},
      {"distribute-ssh-key", true, copying}};
  Rows rows;
  for (const auto& [name, is_flag, why] : all) {
    const auto note = [name = name, why = why](Options& options, const auto&) {
      options.notes.push_back(fmt::format("--{} has no effect: {}", name, why));
    };
    OptionRow row{.name = name,
                  .section = "poprun",
                  .arity = is_flag ? Arity::kFlag : Arity::kRepeated,
                  .placeholder = is_flag ? "" : "VALUE",
                  .fallback = "",
                  .help = fmt::format("No effect: {}", why),
                  .set = {}};
    rows.push_back(is_flag ? with_value(std::move(row), Boolean{}, note)
                           : with_value(std::move(row), Text{}, note));
  }
  return rows;
}

}  // namespace poprun::launcher
