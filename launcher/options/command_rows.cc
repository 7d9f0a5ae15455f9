#include <cstdint>
#include <string>
#include <vector>

#include "launcher/options/option_values.h"
#include "launcher/options/rows.h"

namespace poprun::launcher {
namespace {

Rows general() {
  // Questions are answered before any row is set.
  const auto nothing = [](Options&, const auto&) {};
  return {{"help", 'h', Group::kGeneral, Arity::kFlag, "", "", "This text",
           set(Boolean{}, into(&Options::help))},
          {"version", 0, Group::kGeneral, Arity::kFlag, "", "", "The version",
           set(Boolean{}, into(&Options::version))},
          {"dry-run", 0, Group::kGeneral, Arity::kFlag, "", "",
           "Show topology, resolved configuration, mpirun line and environment, compile the job "
           "and show its figures; start no replica",
           set(Boolean{}, into(&Options::dry_run))},
          {"list-models", 0, Group::kGeneral, Arity::kFlag, "", "",
           "Every built-in model with its parameters, work and sizes", set(Boolean{}, nothing)},
          {"check-onnx", 0, Group::kGeneral, Arity::kValue, "DIR", "",
           "Run every ONNX test case in or below DIR and compare with its outputs",
           set(Text{}, nothing)},
          {"verbose", 'v', Group::kGeneral, Arity::kFlag, "", "0",
           "-v: what is started and mpirun's own lines; -vv: replicas' debug lines too, and with "
           "--dry-run the job's graph after each pass of the compiler",
           set(Verbosity{}, into(&Options::verbosity))},
          {"debug", 0, Group::kGeneral, Arity::kFlag, "", "", "The same as -vv",
           set(Boolean{}, [](Options& o, bool v) { o.verbosity = v ? 2 : o.verbosity; })}};
}

Rows placement() {
  return {{"num-replicas", 'n', Group::kPlacement, Arity::kValue, "N", "1",
           "Replicas of the whole job", set(Integer{1, 4096}, Field("topology.num-replicas"))},
          {"num-instances", 0, Group::kPlacement, Arity::kValue, "N", "",
           "Processes; replicas are divided evenly among them (default: one per replica)",
           set(Integer{1, 4096}, Field("topology.num-instances"))},
          {"ipus-per-replica", 0, Group::kPlacement, Arity::kValue, "N", "1", "IPUs of one replica",
           set(Integer{1, 64}, Field("topology.ipus-per-replica"))},
          {"print-topology", 0, Group::kPlacement, Arity::kFlag, "", "",
           "Print which host, instance and replica is where",
           set(Boolean{}, into(&Options::print_topology))}};
}

Rows hosts() {
  return {{"host", 'H', Group::kHosts, Arity::kRepeated, "LIST", "",
           "Hosts, as in node0,node1:4 or node[0-2,4]; `:4` is a number of slots",
           set(Text{}, [](Options& o, const std::string& v) { o.host_lists.push_back(v); })},
          {"hostfile", 0, Group::kHosts, Arity::kValue, "FILE", "",
           "One host a line, optionally with slots=N; not together with --host",
           set(Text{}, into(&Options::hostfile))},
          {"host-subnet", 0, Group::kHosts, Arity::kValue, "CIDR", "",
           "Network between the hosts, for example 10.1.0.0/16",
           set(Text{}, into(&Options::host_subnet))},
          {"mpi-global-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
           "Added to mpirun's options once", set(Words{}, add_words(&Options::mpi_global_args))},
          {"mpi-local-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
           "Added to mpirun's options of every instance, for example \"-x NAME=VALUE\"",
           set(Words{}, add_words(&Options::mpi_local_args))},
          {"instance-mpi-local-args", 0, Group::kHosts, Arity::kArguments, "I:ARGS", "",
           "Likewise, of instance I alone, behind those of every instance",
           set(InstanceWords{}, [](Options& o, const auto& v) {
             auto& words = o.instance_mpi_local_args[v.first];
             words.insert(words.end(), v.second.begin(), v.second.end());
           })}};
}

Rows data_server() {
  return {{"hostio-address", 0, Group::kDataServer, Arity::kValue, "HOST:PORT", "",
           "A running poprun-emu-hostio (default: start one); its token is taken from the "
           "environment variable POPRUN_EMU_TOKEN",
           set(HostPort{}, into(&Options::hostio_address))},
          {"hostio-timeout", 0, Group::kDataServer, Arity::kValue, "SECONDS", "60",
           "How long to try to reach the data server",
           set(Integer{1, 86400}, into(&Options::hostio_timeout_seconds))}};
}

Rows output() {
  return {{"output-dir", 0, Group::kOutput, Arity::kValue, "DIR", "poprun-emu-out",
           "For weights.safetensors, metrics.csv, profile.json, logs/",
           set(Text{}, into(&Options::output_dir))},
          {"overwrite", 0, Group::kOutput, Arity::kFlag, "", "",
           "Replace the results of an earlier run in --output-dir",
           set(Boolean{}, into(&Options::overwrite))},
          {"only-output-from-instance", 0, Group::kOutput, Arity::kValue, "I", "",
           "Show the lines of this instance only, and of one that fails",
           set(Integer{0, 4095}, into(&Options::only_output_from_instance))}};
}

Rows timeouts() {
  return {{"timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0",
           "End the job with code 75 after this time; 0: never",
           set(Real{0, 1e8}, into(&Options::timeout_seconds))},
          {"drain-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0",
           "After Ctrl-C or SIGTERM: end the job without its weights if it has not stopped and "
           "saved them in this time; 0: wait until a second signal",
           set(Real{0, 1e8}, into(&Options::drain_timeout_seconds))},
          {"heartbeat-interval", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0.5",
           "Between two heartbeats of an instance",
           set(Real{0.05, 60}, into(&Options::heartbeat_interval_seconds))},
          {"heartbeat-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "30",
           "An instance silent for this long is named and the job ended",
           set(Real{0.5, 86400}, into(&Options::heartbeat_timeout_seconds))},
          {"collective-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "120",
           "How long replicas wait for one another",
           set(Integer{1, 86400}, into(&Options::collective_timeout_seconds))}};
}

}  // namespace

Rows command_rows() {
  return joined({general(), placement(), hosts(), data_server(), output(), timeouts()});
}

}  // namespace poprun::launcher
