#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// Everything a user can ask for, from one table (option_table.h) for the command line and
/// train.cfg.
///
///   table's default  <  train.cfg (`[training]` + `seed = 7`)  <  command line (`--training.seed
///   7`)
namespace poprun::launcher {

enum class Origin : std::uint8_t { kDefault, kFile, kCommandLine };

/// What to do with the job; subcommands.h has their words.
enum class Subcommand : std::uint8_t { kRun, kCheck, kEstimate, kProfile };

/// One row's value as the user would write it, and who wrote it. For --dry-run.
struct Setting {
  std::string name;  ///< "training.seed", "num-replicas".
  std::string text;  ///< Empty where an optional row was left out.
  Origin origin = Origin::kDefault;
  std::string derived =
      {};  ///< Where `text` is empty: the default that follows from other options.
};

/// The job with one value of what --vary names.
struct VariedJob {
  std::string value;  ///< As written.
  proto::RunConfig config;
};

/// What --vary asks for.
struct Varied {
  std::string key;  ///< Empty: nothing is varied.
  std::vector<std::string> values;
  std::vector<VariedJob> jobs;  ///< In the order of the values.
};

/// A tile that --tile names.
struct NamedTile {
  std::optional<std::uint32_t> ipu;  ///< Nothing: of each.
  std::uint32_t tile = 0;
};

/// What `poprun-emu profile` is asked for.
struct ProfileRequest {
  bool run = true;          ///< Execute `steps` steps.
  std::uint32_t steps = 0;  ///< > 0.
  std::vector<NamedTile> tiles;
  bool compare = false;               ///< Profiles that are there already, and no job:
  std::vector<std::string> compared;  ///< source and target, if so.
};

/// When checkpoints are taken: after so many steps, or so many seconds; 0 and 0: never by
/// themselves.
struct CheckpointInterval {
  std::uint64_t steps = 0;
  double seconds = 0;
};

/// The request, each value checked for itself and against the others. Not yet placed on hosts.
struct Options {
  Subcommand subcommand = Subcommand::kRun;
  proto::RunConfig config;  ///< Without topology.instance_host.

  std::vector<std::string> command;  ///< The arguments, each quoted for a shell.
  std::string config_file;           ///< As given; empty only where no job is run.
  std::vector<std::string> host_lists;
  std::string hostfile;
  std::string host_subnet;
  std::string cpu_isa;          ///< Every replica's; empty: the best of each host.
  bool print_topology = false;  ///< Without a config_file: and nothing else.
  bool dry_run = false;
  bool estimate_compile = false;   ///< For Subcommand::kEstimate.
  bool estimate_by_layer = false;  ///< Likewise.

  std::string output_dir;
  bool overwrite = false;

  CheckpointInterval checkpoint_every;
  std::uint32_t checkpoint_keep = 0;  ///< > 0 once parsed.
  std::string checkpoint_dir;         ///< Not empty once parsed.
  std::string resume;                 ///< A folder, "auto", or empty.
  std::uint32_t restarts = 0;         ///< At most, after failures that may pass.
  std::uint32_t hosts_min = 0;        ///< That a restart needs; > 0 once parsed.

  std::int64_t only_output_from_instance = -1;  ///< -1: from all.
  std::uint32_t verbosity = 0;                  ///< 0, 1 (-v), 2 (-vv).

  std::vector<std::string> mpi_global_args;  ///< Split into words.
  std::vector<std::string> mpi_local_args;   ///< Split into words.
  std::map<std::uint32_t, std::vector<std::string>>
      instance_mpi_local_args;  ///< By instance, split into words.

  TlsFiles tls_files;  ///< None: certificates are made from the token where they are needed.

  std::string hostio_address;                ///< Empty: start a data server.
  std::uint32_t hostio_timeout_seconds = 0;  ///< > 0 once parsed, like all below.
  double heartbeat_interval_seconds = 0;
  double heartbeat_timeout_seconds = 0;
  std::uint32_t collective_timeout_seconds = 0;
  double timeout_seconds = 0;        ///< Limit for the whole job; 0: none.
  double drain_timeout_seconds = 0;  ///< From the signal that ends the job on; 0: none.

  std::uint16_t metrics_port = 0;  ///< 0: serve none.
  std::string metrics_address;     ///< Empty: as --help metrics says.

  /// The command that answers a question instead of running a job; see inquiry.h.
  std::vector<std::string> question;
  std::optional<std::string> help;  ///< The topic of --help; empty for the common options.
  bool version = false;

  std::vector<Setting> settings;  ///< Every row, in table order.
  /// What other keys of [data] ask of the source: "task=masked-lm", in table order.
  std::vector<std::string> source_parameters;
  std::uint32_t check_steps = 0;               ///< For Subcommand::kCheck, as in CheckConfig.
  std::vector<std::uint32_t> check_ipus;       ///< Likewise.
  Varied varied;                               ///< For Subcommand::kEstimate.
  ProfileRequest profile;                      ///< For Subcommand::kProfile.
  std::optional<double> loss_scaling;          ///< As the configuration's; none: by the precision.
  std::uint64_t learning_rate_base_batch = 0;  ///< training.scale-learning-rate; 0: not scaled.
  std::vector<std::string> notes;  ///< What was decided, or has no effect. One line each.
};

}  // namespace poprun::launcher
