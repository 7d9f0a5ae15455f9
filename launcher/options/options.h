#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/inquiry.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// Everything that a user can request. One table (option_table.h) defines the options of both the command line and
/// train.cfg. Each source of a value overrides the sources to its left in this line:
///
///   table's default < train.cfg (`[training]` + `seed = 7`) < environment (`POPRUN_EMU_TRAINING_SEED=7`)
///                   < command line (`--training.seed 7`)
namespace poprun::launcher {

/// Where a value comes from. Later enumerators override earlier ones.
enum class Origin : std::uint8_t { kDefault, kFile, kEnvironment, kCommandLine };

/// The subcommand. `subcommands` in command_line.h returns the word for each.
enum class Subcommand : std::uint8_t { kRun, kCheck, kEstimate, kProfile, kValidate, kReport, kScale };

/// The value of one row as the user would write it, and its origin. --dry-run shows both.
struct Setting {
  std::string name;  ///< "training.seed", "num-replicas".
  std::string text;  ///< Empty if an optional row was left out.
  Origin origin = Origin::kDefault;
  std::string derived = {};  ///< If `text` is empty: the default that follows from other options.
};

/// The job that results from one of the values of --vary.
struct VariedJob {
  std::string value;  ///< The value as written by the user.
  proto::RunConfig config;
};

struct Varied {
  std::string key;  ///< Empty: nothing is varied.
  std::vector<std::string> values;
  std::vector<VariedJob> jobs;  ///< In the order of the user's values.
};

/// A tile named by --tile.
struct NamedTile {
  std::optional<std::uint32_t> ipu;  ///< If not set: this tile of every IPU.
  std::uint32_t tile = 0;
};

/// The interval of automatic checkpoints, either in steps or in seconds. If both are 0, there are none.
struct CheckpointInterval {
  std::uint64_t steps = 0;
  double seconds = 0;
};

/// Where replicas run (see placement/), and which instruction set they use.
struct HostOptions {
  std::vector<std::string> lists;
  std::string file;
  std::string subnet;
  std::string cpu_isa;  ///< Instruction set of every replica; empty: the best that each host supports.
};

/// Additional arguments for mpirun, split into words.
struct MpirunOptions {
  std::vector<std::string> global_args;
  std::vector<std::string> local_args;
  std::map<std::uint32_t, std::vector<std::string>> instance_local_args;  ///< Keyed by instance.
};

struct OutputOptions {
  std::string dir;
  bool report = false;  ///< Also write report.html.
  bool overwrite = false;
  std::string tensorboard;          ///< Folder for event files; empty: write none.
  std::int64_t only_instance = -1;  ///< -1: show all instances.
};

struct CheckpointOptions {
  CheckpointInterval every;
  std::uint32_t keep = 0;  ///< Positive after parsing.
  std::string dir;         ///< Not empty after parsing.
  std::string resume;      ///< A folder, "auto", or empty.
};

struct RestartOptions {
  std::uint32_t count_max = 0;
  std::uint32_t hosts_min = 0;  ///< Minimum for a restart; positive after parsing.
};

/// The job's data server, and the certificates of all the job's services.
struct HostioOptions {
  std::string address;                ///< Empty: start our own data server.
  std::uint32_t timeout_seconds = 0;  ///< Positive after parsing.
  TlsFiles tls_files;                 ///< Empty: certificates are derived from the token, if any are needed.
};

/// The heartbeat interval, and time limits. The first three members are positive after parsing.
struct TimeoutOptions {
  double heartbeat_interval_seconds = 0;
  double heartbeat_seconds = 0;          ///< --heartbeat-timeout.
  std::uint32_t collective_seconds = 0;  ///< --collective-timeout.
  double job_seconds = 0;                ///< Limit for the whole job; 0: none.
  double drain_seconds = 0;              ///< Limit on draining, counted from the signal that ends the job; 0: none.
};

struct MetricsOptions {
  std::uint16_t port = 0;  ///< 0: do not serve metrics.
  std::string address;     ///< Empty: the default in --help metrics.
};

struct RunRequest {};

/// The request of `poprun-emu check`. The fields have the same meanings as in CheckConfig.
struct CheckRequest {
  std::uint32_t steps = 0;
  std::vector<std::uint32_t> ipus;
  std::string certificate;  ///< The file to write; empty: none.
};

struct EstimateRequest {
  bool compile = false;
  bool by_layer = false;
  Varied varied;
  /// A single product or all-reduce to estimate instead of a job. Its config is set when the question is asked.
  std::optional<proto::MicroQuestion> micro;
};

struct ProfileRequest {
  bool run = true;          ///< Whether to execute `steps` steps.
  std::uint32_t steps = 0;  ///< Must be positive.
  std::vector<NamedTile> tiles;
  std::string chakra;                 ///< Folder for execution traces; empty: none.
  bool compare = false;               ///< Whether to compare two stored profiles instead of running a job.
  std::vector<std::string> compared;  ///< Paths of the two profiles to compare: source and target.
};

struct ValidateRequest {
  std::vector<std::string> folders;  ///< Folders with rows; empty: the installed one.
};

struct ReportRequest {
  std::vector<std::string> folders;  ///< Output folders of jobs; at least one after parsing.
};

struct ScaleRequest {
  Varied varied;  ///< Its key is num-replicas; it has at least one job after parsing.
};

/// The options that belong to only one subcommand. The alternatives are in the order of Subcommand.
using Request = std::variant<RunRequest, CheckRequest, EstimateRequest, ProfileRequest, ValidateRequest, ReportRequest,
                             ScaleRequest>;

/// A result that somebody published for real IPUs, with which `poprun-emu validate` compares the job of a file. The
/// members are the keys of the file's section [published], which nothing else reads.
struct Published {
  std::vector<std::string> options;  ///< Options that complete the job: `-n 16`.
  double value = 0;                  ///< 0 if the file has no section [published].
  std::string unit;                  ///< samples/s, s (of a device step), TFLOP/s or GB/s.
  double items_per_sample = 1;       ///< Sequences packed into one sample; published samples/s count sequences.
  std::string family;                ///< Rows of a family share a mean error.
  std::string series;                ///< Rows of a series are the same job on different numbers of IPUs.
  std::string reference;             ///< Where the result was published.
  std::string conditions;            ///< Known differences between the published job and this one.
};

/// The form of answers on standard output (--format). Those other than text are for scripts.
enum class AnswerForm : std::uint8_t { kText, kJson, kCsv };

/// The user's request. Each value has been checked, both on its own and against the others. The job is not placed yet.
struct Options {
  Request request;
  [[nodiscard]] Subcommand subcommand() const { return static_cast<Subcommand>(request.index()); }

  proto::RunConfig config;           ///< topology.instance_host is not set yet.
  std::vector<std::string> command;  ///< The arguments, each quoted for a shell.
  /// The words of the command line that describe the job, such as -n, 16 and train.cfg, each quoted for a shell.
  std::vector<std::string> job_words;
  std::vector<std::string> result_words;  ///< The words for the job's outputs, checkpoints, metrics and timeouts.
  std::string config_file;                ///< The path as given; empty only if no job is run.

  HostOptions hosts;
  MpirunOptions mpirun;
  OutputOptions output;
  CheckpointOptions checkpoints;
  RestartOptions restarts;
  HostioOptions hostio;
  TimeoutOptions timeouts;
  MetricsOptions metrics;
  Published published;
  std::uint32_t verbosity = 0;  ///< 0, 1 (-v), 2 (-vv).

  // Requests for something other than a job.
  bool print_topology = false;  ///< If there is no config_file, nothing else is done.
  bool dry_run = false;
  AnswerForm form = AnswerForm::kText;
  bool list_models = false;               ///< If this or one of the next three is set, no job is run.
  std::optional<std::string> check_onnx;  ///< The folder with ONNX's test cases.
  std::optional<std::string> help;        ///< The topic of --help; "": the common options.
  bool version = false;

  // Used only by options/, which resolves them.
  /// Parameters of the data source that other keys of [data] set, such as "task=masked-lm", in table order.
  std::vector<std::string> source_parameters;
  std::uint32_t real = 0;                      ///< --real; 0: not given.
  std::optional<double> loss_scaling;          ///< As in the configuration. If not set, the precision decides.
  std::uint64_t learning_rate_base_batch = 0;  ///< training.scale-learning-rate; 0: unscaled.
  std::vector<Setting> settings;               ///< All rows, in table order.

  std::vector<std::string> notes;  ///< Notes on derived settings and on options without effect, one line each.
};

}  // namespace poprun::launcher
