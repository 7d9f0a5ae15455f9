#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"

namespace poprun::launcher {
namespace {

constexpr std::int64_t kReplicasMax = 65'536;  ///< Limit for planned jobs, because Pods have up to 64k IPUs.

/// The value of --help: a topic or, as for any flag, a boolean.
struct HelpTopic {
  std::vector<std::string> choices = help_topics();

  [[nodiscard]] Read<std::string> read(const std::string& text) const {
    return parse_boolean(text) ? Read<std::string>{text} : Choice{choices}.read(text);
  }
};

/// Returns a row that is valid only on the command line.
template <typename Kind>
OptionRow row(const char* section, const char* name, const char* placeholder, const char* fallback,
              const std::string& help, Kind kind, Store<std::type_identity_t<Kind>> store) {
  return with_value(
      {.name = name, .section = section, .placeholder = placeholder, .fallback = fallback, .help = help, .set = {}},
      std::move(kind), std::move(store));
}

OptionRow flag(const char* section, const char* name, const char* help, Store<Boolean> store) {
  OptionRow made = row(section, name, "", "", help, Boolean{}, std::move(store));
  made.arity = Arity::kFlag;
  return made;
}

OptionRow many(Arity arity, OptionRow made) {
  made.arity = arity;
  return made;
}

OptionRow with_letter(char letter, OptionRow made) {
  made.letter = letter;
  return made;
}

Rows general() {
  // Options that ask for information are handled before the value of any row is set.
  const auto nothing = [](Options&, const auto&) {};
  OptionRow help = many(Arity::kFlag, row("general", "help", "SECTION", "",
                                          "Show the common options, those of SECTION, or all", HelpTopic{}, nothing));
  OptionRow verbose =
      many(Arity::kFlag,
           row("general", "verbose", "", "0",
               "Show more: -v all options and the schedule (--dry-run), or the processes (a run); -vv also mpirun's "
               "command, all IPUs and passes, or debug lines",
               Verbosity{}, into(&Options::verbosity)));
  return {
      with_letter('h', help),
      flag("general", "version", "Show the version; -v shows more", nothing),
      flag("general", "dry-run",
           "Start no replica: say whether the job fits, where it would run, its memory and time, and what you set",
           into(&Options::dry_run)),
      row("general", "format", "NAME", "text",
          "Form of the answer on standard output: text, or json or csv for scripts", Choice{{"text", "json", "csv"}},
          [](Options& o, const std::string& name) {
            o.form = name == "json" ? AnswerForm::kJson : name == "csv" ? AnswerForm::kCsv : AnswerForm::kText;
          }),
      row("general", "color", "WHEN", "auto",
          "Colour the output: auto (on a terminal, unless NO_COLOR is set), always or never",
          Choice{{"auto", "always", "never"}}, nothing),
      flag("general", "allow-out-of-memory",
           "Run a job that does not fit in the memory of the IPUs as if their tiles were large enough, and mark "
           "its results",
           Field("memory.allow-out-of-memory")),
      flag("general", "list-models", "List the built-in models with their parameters, work and sizes", nothing),
      row("general", "check-onnx", "DIR", "", "Run every ONNX test case in or below DIR and compare the outputs",
          Text{}, nothing),
      with_letter('v', verbose),
      flag("general", "debug", "Same as -vv", [](Options& o, bool v) { o.verbosity = v ? 2 : o.verbosity; })};
}

Rows placement() {
  return {with_letter('n', row("placement", "num-replicas", "N", "1", "Number of replicas ([job] replicas)",
                               Integer{1, kReplicasMax}, Field("topology.num-replicas"))),
          row("placement", "num-instances", "N", "",
              "Number of processes; the replicas are divided evenly among them (default: one process per replica)",
              Integer{1, 4096}, Field("topology.num-instances")),
          row("placement", "ipus-per-replica", "N", "1", "Number of IPUs per replica; also a key of [job]",
              Integer{1, 64}, Field("topology.ipus-per-replica")),
          row("placement", "real", "N", "",
              "Run only N of the replicas: losses, weights, memory and wall time are those of a job of N, and the "
              "device clock is that of all --num-replicas, at most 65,536 (default: all replicas run)",
              Integer{1, 4096}, into(&Options::real)),
          many(Arity::kRepeated,
               row("placement", "what-if", "EVENT", "",
                   "Disturb the Pod on the device clock: slow=37:1.3x@step100 (replica 37 takes 1.3 times as long from "
                   "step 100 on; 0-15:1.3x@step100-199 for a range), jitter=lognormal:2% (every replica and step), "
                   "dead=host5@step200,restart:60s (a host of 16 IPUs, or replica80, is lost, and the job restarts "
                   "from its checkpoint after --heartbeat-timeout and 60 s); can be repeated",
                   Disturbance{},
                   [](Options& o, const proto::WhatIf& v) {
                     proto::WhatIf& all = *o.config.mutable_what_if();
                     const double jitter = std::hypot(all.jitter(), v.jitter());  // Variances of logarithms add up.
                     all.MergeFrom(v);
                     all.set_jitter(jitter);
                   })),
          flag("placement", "print-topology",
               "Show a table of hosts, IPU-Link domains, instances and replicas, then run the job; without a "
               "train.cfg, show only the table",
               into(&Options::print_topology))};
}

Rows hosts() {
  return {with_letter('H', many(Arity::kRepeated,
                                row("hosts", "host", "LIST", "",
                                    "Hosts to run on, such as node0,node1:4 or node[0-2,4]; ':4' limits a host to 4 "
                                    "instances, 'user@node0' logs in as user",
                                    Text{}, [](Options& o, const std::string& v) { o.hosts.lists.push_back(v); }))),
          row("hosts", "hostfile", "FILE", "",
              "File with one host per line, in mpirun's format: 'node0 slots=4'; cannot be used with --host", Text{},
              into(&Options::hosts, &HostOptions::file)),
          row("hosts", "host-subnet", "CIDR", "", "Network over which the hosts communicate, such as 10.1.0.0/16",
              Subnet{}, into(&Options::hosts, &HostOptions::subnet)),
          row("hosts", "cpu-isa", "NAME", "",
              fmt::format("Instruction set that every replica computes with, for hosts with different processors: {} "
                          "(default: the best that each processor supports, which must then be the same on all hosts)",
                          fmt::join(cpu_isas(), ", ")),
              Choice{cpu_isas()}, into(&Options::hosts, &HostOptions::cpu_isa)),
          many(Arity::kArguments, row("hosts", "mpi-global-args", "ARGS", "",
                                      "Extra mpirun arguments for the whole job, such as \"--mca NAME VALUE\"", Words{},
                                      add_words(&MpirunOptions::global_args))),
          many(Arity::kArguments, row("hosts", "mpi-local-args", "ARGS", "",
                                      "Extra mpirun arguments for every instance, such as \"-x NAME=VALUE\"", Words{},
                                      add_words(&MpirunOptions::local_args))),
          many(Arity::kArguments, row("hosts", "instance-mpi-local-args", "I:ARGS", "",
                                      "Extra mpirun arguments for instance I only, added after those for all instances",
                                      InstanceWords{}, [](Options& o, const auto& v) {
                                        auto& words = o.mpirun.instance_local_args[v.first];
                                        words.insert(words.end(), v.second.begin(), v.second.end());
                                      }))};
}

auto into(std::string TlsFiles::*file) {
  return [=](Options& options, const std::string& path) { options.hostio.tls_files.*file = path; };
}

Rows data_server() {
  return {row("data-server", "hostio-address", "HOST:PORT", "",
              "Use the poprun-emu-hostio that listens at this address instead of starting one; its token is read from "
              "the environment variable POPRUN_EMU_TOKEN",
              HostPort{}, into(&Options::hostio, &HostioOptions::address)),
          row("data-server", "hostio-timeout", "SECONDS", "60",
              "How long to wait while the data server neither answers nor makes progress in reading the dataset",
              Integer{1, 86400}, into(&Options::hostio, &HostioOptions::timeout_seconds)),
          row("data-server", "tls-cert", "FILE", "",
              "Your own certificate (PEM) for launcher, replicas and data server, used even on a single host; needs "
              "--tls-key and --tls-ca (default: a certificate derived from the job's token, used only between hosts)",
              Text{}, into(&TlsFiles::certificate)),
          row("data-server", "tls-key", "FILE", "", "Private key (PEM, without a password) for --tls-cert", Text{},
              into(&TlsFiles::key)),
          row("data-server", "tls-ca", "FILE", "",
              "Certificates (PEM) of the authorities that sign the other side's certificate", Text{},
              into(&TlsFiles::authorities))};
}

Rows output() {
  return {
      row("output", "output-dir", "DIR", "poprun-emu-out",
          "Folder for weights.safetensors, metrics.csv, profile.json and logs/", Text{},
          into(&Options::output, &OutputOptions::dir)),
      flag("output", "report", "Also write report.html to --output-dir; profile always does",
           into(&Options::output, &OutputOptions::report)),
      flag("output", "overwrite", "Replace an earlier run's results in --output-dir",
           into(&Options::output, &OutputOptions::overwrite)),
      row("output", "tensorboard", "DIR", "",
          "Also write an event file for TensorBoard to DIR: loss, accuracy, learning rate, speed and evaluations of "
          "a training job",
          Text{}, into(&Options::output, &OutputOptions::tensorboard)),
      row("output", "only-output-from-instance", "I", "",
          "Show only the output of instance I and of any instance that fails", Integer{0, 4095},
          into(&Options::output, &OutputOptions::only_instance))};
}

Rows checkpoints() {
  return {
      row("checkpoints", "checkpoint-every", "INTERVAL", "",
          "Take a checkpoint every INTERVAL: a number of steps, such as 500, or a time, such as 30s, 10min or 2h; a "
          "checkpoint is also taken when a signal ends the job, and whenever poprun-emu receives SIGUSR1",
          Interval{}, into(&Options::checkpoints, &CheckpointOptions::every)),
      row("checkpoints", "checkpoint-keep", "N", "3", "Number of checkpoints to keep", Integer{1, 1'000'000},
          into(&Options::checkpoints, &CheckpointOptions::keep)),
      row("checkpoints", "checkpoint-dir", "DIR", "", "Folder for checkpoints (default: checkpoints in --output-dir)",
          Text{}, into(&Options::checkpoints, &CheckpointOptions::dir)),
      row("checkpoints", "resume", "DIR|auto", "",
          "Continue, bit-identically to an uninterrupted run, from the checkpoint DIR or the latest complete one in "
          "DIR; 'auto' looks in --checkpoint-dir, and starts from the beginning if no checkpoint is there",
          Text{}, into(&Options::checkpoints, &CheckpointOptions::resume)),
      row("checkpoints", "restarts", "N", "0",
          "Maximum number of restarts from the last checkpoint after failures with exit code 75, counted from 0 after "
          "each new checkpoint; lost hosts are left out until they answer again",
          Integer{0, 1'000'000}, into(&Options::restarts, &RestartOptions::count_max)),
      row("checkpoints", "hosts-min", "N", "1", "Minimum number of hosts for a restart", Integer{1, 4096},
          into(&Options::restarts, &RestartOptions::hosts_min)),
      row("checkpoints", "replay-every", "N", "",
          "Every N steps, look for silent data corruption: compare the weights of all hosts, and compute each "
          "replica's "
          "micro-batches again on another replica; a difference ends the job with exit code 75",
          Integer{1, 1'000'000'000}, Field("corruption.replay-every")),
      many(Arity::kRepeated,
           row("checkpoints", "flip-bit", "REPLICA:TENSOR@STEP", "",
               "Invert a bit of a replica's tensor, such as 3:fc1.weight@40, to study silent data corruption: weights "
               "change before the step, other tensors when the step writes them; can be repeated",
               FlippedBit{},
               [](Options& o, const proto::BitFlip& flip) { *o.config.mutable_corruption()->add_flips() = flip; }))};
}

Rows metrics() {
  return {
      row("metrics", "metrics-port", "PORT", "0",
          "Serve a live page of the job at http://ADDRESS:PORT/ and its metrics for Prometheus at /metrics while it "
          "runs (https:// beyond loopback); 0: serve none",
          Integer{0, 65535}, into(&Options::metrics, &MetricsOptions::port)),
      row("metrics", "metrics-address", "ADDRESS", "",
          "Address of this machine on which to serve the metrics; 0.0.0.0 means all (default: 127.0.0.1 or, with "
          "other hosts, the address at which they reach this machine); anyone who reaches it can read them",
          IpAddress{}, into(&Options::metrics, &MetricsOptions::address))};
}

Rows timeouts() {
  return {row("timeouts", "timeout", "SECONDS", "0", "End the job with exit code 75 after this time; 0 means never",
              Real{0, 1e8}, into(&Options::timeouts, &TimeoutOptions::job_seconds)),
          row("timeouts", "drain-timeout", "SECONDS", "0",
              "After Ctrl-C, SIGTERM, SIGHUP or SIGUSR2, end the job without its weights if it has not stopped and "
              "saved them within this time; 0 means to wait until a second signal arrives",
              Real{0, 1e8}, into(&Options::timeouts, &TimeoutOptions::drain_seconds)),
          row("timeouts", "heartbeat-interval", "SECONDS", "0.5", "Time between two heartbeats of an instance",
              Real{0.05, 60}, into(&Options::timeouts, &TimeoutOptions::heartbeat_interval_seconds)),
          row("timeouts", "heartbeat-timeout", "SECONDS", "30",
              "End the job when an instance has sent no heartbeat for this long, or has not joined within this time of "
              "the latest join",
              Real{0.5, 86400}, into(&Options::timeouts, &TimeoutOptions::heartbeat_seconds)),
          row("timeouts", "collective-timeout", "SECONDS", "120", "How long replicas wait for each other",
              Integer{1, 86400}, into(&Options::timeouts, &TimeoutOptions::collective_seconds))};
}

/// Returns a function that stores a subcommand's option, and does nothing if a different subcommand was given.
template <typename Asked, typename Store>
auto in_request(Store store) {
  return [=](Options& options, const auto& value) {
    if (auto* request = std::get_if<Asked>(&options.request)) {
      store(*request, value);
    }
  };
}

template <typename Asked, typename T>
auto into(T Asked::*member) {
  return in_request<Asked>([=](Asked& request, const auto& value) { request.*member = static_cast<T>(value); });
}

Rows check() {
  return {
      row("check", "check-steps", "N", "3", "Training steps in each run", Integer{1, 1000}, into(&CheckRequest::steps)),
      row("check", "check-ipus", "LIST", "",
          "Numbers of IPUs per replica to spread the model over, such as 2,4 (default: --ipus-per-replica, or 2, 3 "
          "and 4 if that is 1, up to the number of layers)",
          Integers{2, 64}, in_request<CheckRequest>([](CheckRequest& check, const std::vector<std::int64_t>& ipus) {
            check.ipus.assign(ipus.begin(), ipus.end());
          })),
      row("check", "certificate", "FILE", "",
          "Also write FILE (JSON) for a referee: what was compared, with hashes of the configuration, of every Program "
          "and of the final state, and everything else that determines the bits",
          Text{}, into(&CheckRequest::certificate))};
}

Rows estimate() {
  return {
      flag("estimate", "by-layer",
           "Also show a row for each layer; with -v also its convolutions, dense layers and so on, with their formulas",
           into(&EstimateRequest::by_layer)),
      flag("estimate", "compile", "Also compile the job, and show the memory that the compiled job needs",
           into(&EstimateRequest::compile)),
      row("estimate", "vary", "KEY=VALUES", "",
          "Show a row for each value of KEY, which is a key of train.cfg, num-replicas or ipus-per-replica, for "
          "example model.layers=2,4,8; can be given only once",
          Variation{}, in_request<EstimateRequest>([](EstimateRequest& estimate, const Variation::Value& v) {
            estimate.varied.key = v.key;
            estimate.varied.values = v.values;
          })),
      row("estimate", "matmul", "MxKxN", "",
          "Instead of a job, estimate one product of matrices [M,K] x [K,N] on one IPU: its plan and its device time; "
          "needs no train.cfg, whose keys for precision, partials, proportion of memory and device apply",
          Matmul{}, in_request<EstimateRequest>([](EstimateRequest& estimate, const proto::MatmulWork& work) {
            *estimate.micro.emplace().mutable_matmul() = work;
          })),
      row("estimate", "convolution", "SIZES", "",
          "Estimate one convolution instead: BATCHxCHANNELSxHEIGHTxWIDTH,OUTPUTSxHEIGHTxWIDTH, followed by any of "
          ",stride=N "
          "(default: 1) ,padding=N (0) and ,groups=N (1)",
          Convolution{}, in_request<EstimateRequest>([](EstimateRequest& estimate, const proto::ConvolutionWork& work) {
            *estimate.micro.emplace().mutable_convolution() = work;
          })),
      row("estimate", "all-reduce", "BYTES", "",
          "Estimate one all-reduce of BYTES of every replica instead; see -n and --ipus-per-replica",
          Integer{1, std::uint64_t{1} << 50},
          in_request<EstimateRequest>([](EstimateRequest& estimate, std::uint64_t bytes) {
            estimate.micro.emplace().set_all_reduce_bytes(bytes);
          }))};
}

Rows profile() {
  return {
      flag("profile", "no-run", "Compile the job, but execute nothing",
           in_request<ProfileRequest>([](ProfileRequest& profile, bool v) { profile.run = !v; })),
      row("profile", "profile-steps", "N", "3", "Training steps to execute or, in inference, batches per replica",
          Integer{1, 1000}, into(&ProfileRequest::steps)),
      many(Arity::kRepeated,
           row("profile", "tile", "[IPU:]TILE", "",
               "Also show the liveness of a tile: 952 for tile 952 of each IPU, or 3:952 for tile 952 of IPU 3",
               TileName{}, in_request<ProfileRequest>([](ProfileRequest& profile, const NamedTile& v) {
                 profile.tiles.push_back(v);
               }))),
      row("profile", "chakra", "DIR", "",
          "Also write one step to DIR as Chakra execution traces, step.NPU.et, for ASTRA-sim and similar simulators",
          Text{}, into(&ProfileRequest::chakra)),
      flag("profile", "compare",
           "Compare two profiles (profile.pb or profile.json), source and target, given instead of a train.cfg",
           into(&ProfileRequest::compare))};
}

Rows validate() {
  return {many(Arity::kRepeated,
               row("validate", "rows", "DIR", "",
                   "Compare with the results in this folder, one file per result: a train.cfg with a section "
                   "[published] (--help published); can be repeated (default: the results that come with poprun-emu)",
                   Text{}, in_request<ValidateRequest>([](ValidateRequest& validate, const std::string& folder) {
                     validate.folders.push_back(folder);
                   })))};
}

Rows scale() {
  return {row("scale", "replicas", "LIST", "16,64,256,1024,4096,16384,65536", "Numbers of replicas, in rising order",
              Integers{1, kReplicasMax},
              in_request<ScaleRequest>([](ScaleRequest& scale, const std::vector<std::int64_t>& replicas) {
                scale.varied = {.key = "num-replicas", .values = {}, .jobs = {}};
                for (const std::int64_t count : replicas) {
                  scale.varied.values.push_back(std::to_string(count));
                }
              }))};
}

}  // namespace

Rows command_rows() {
  return joined({general(), placement(), hosts(), data_server(), output(), checkpoints(), metrics(), timeouts(),
                 check(), estimate(), profile(), validate(), scale()});
}

Rows compatibility_rows() {
  const char* const hardware = "there is no IPU hardware to act on";
  const char* const unbound = "processes are not bound; --mpi-global-args can bind them";
  const char* const copying = "nothing is copied to hosts; copy the programs there yourself";
  struct Ignored {
    const char* name;
    bool is_flag;
    const char* why;
  };
  const Ignored all[] = {{"vipu-server-host", false, hardware},
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
                         {"executable-cache-path", false, "compilation is fast, so nothing is cached"},
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
    rows.push_back(is_flag ? with_value(std::move(row), Boolean{}, note) : with_value(std::move(row), Text{}, note));
  }
  return rows;
}

}  // namespace poprun::launcher
