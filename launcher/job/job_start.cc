// The start of a job, and the reply to instances that join. Class Job begins in job.cc.
#include <cstdint>

#include <fmt/format.h>

#include "launcher/job/inquiry.h"
#include "launcher/job/job.h"
#include "proto/inquiry.pb.h"
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

/// Rejects a model that no replica could read, before the job starts anything else. This costs the start of one
/// process. Returns 0 or, after printing the reason, the exit code.
int check_model(const Options& options, const OnnxFile& onnx, Console& console) {
  if (onnx.bytes.empty()) {
    return 0;
  }
  proto::ModelQuestion question;
  *question.mutable_model() = options.config.model();
  question.set_onnx_model(onnx.bytes);
  return ask({"poprun-emu-replica", "--check-model"}, question.SerializeAsString(), console);
}

}  // namespace

proto::JoinReply join_reply(const Options& options, const Placement& placement, const ServedDataset& served,
                            const std::optional<Checkpoint>& resumed) {
  proto::JoinReply reply;
  proto::RunConfig& config = *reply.mutable_config();
  config = options.config;
  if (served.dataset.test_items() == 0 && !config.inference()) {
    config.mutable_training()->set_evaluate(false);
  }
  for (std::uint32_t i = 0; i < placement.num_instances; ++i) {
    config.mutable_topology()->add_instance_host(placement.host_of(i));
  }
  *reply.mutable_dataset() = served.dataset;
  reply.set_hostio_address(served.address);
  reply.set_hostio_tls(served.tls);
  reply.set_hostio_timeout_seconds(options.hostio.timeout_seconds);
  reply.set_heartbeat_interval_ms(static_cast<std::uint32_t>(options.timeouts.heartbeat_interval_seconds * 1000));
  reply.set_collective_timeout_seconds(options.timeouts.collective_seconds);
  reply.mutable_command()->Assign(options.command.begin(), options.command.end());
  reply.set_takes_checkpoints(!config.inference() && !config.has_check() && !config.has_profile());
  reply.set_checkpoint_every_steps(options.checkpoints.every.steps);
  if (resumed) {
    *reply.mutable_resume() = resumed->manifest.host();
  }
  return reply;
}

Status Job::prepare() {
  if (const auto warning = warning_about_key(options_.hostio.tls_files.key)) {
    console_.say(fmt::format("warning: {}", *warning));
  }
  const bool leave_loopback = services_leave_loopback();
  POPRUN_ASSIGN(security_, job_security(options_.hostio.tls_files, leave_loopback || metrics_leave_loopback()));
  POPRUN_ASSIGN(inputs_, read_inputs(options_.config.model()));
  if (const int refused = check_model(options_, inputs_.onnx, console_); refused != 0) {
    stop(refused);
    return {};
  }
  POPRUN_TRY(start_metrics());
  const std::string& onnx = inputs_.onnx.bytes;
  POPRUN_TRY(checkpoints_.find(onnx.empty() ? "" : sha256_of(onnx)));
  POPRUN_TRY(record_.take_folder(checkpoints_.resumed(), checkpoints_.goes_on(), history_.restarts > 0));
  record_.prepare_trace(checkpoints_.resumed(), history_.traced);
  POPRUN_TRY(record_.prepare_tensorboard(checkpoints_.resumed()));
  POPRUN_TRY(checkpoints_.take_folder());
  POPRUN_TRY(processes_->check());
  POPRUN_ASSIGN(coordinator_, world_.serve(loop_, *this,
                                           {.bind_host = listens_at(),
                                            .token = security_.token,
                                            .epoch = record_.epoch(),
                                            .identity = security_.identity(leave_loopback),
                                            .job = {placement_.num_instances, placement_.replicas_per_instance()},
                                            .launched_at = launched_at_,
                                            .initial_weights = inputs_.initial_weights,
                                            .onnx_model = inputs_.onnx,
                                            .checkpoints = checkpoints_.writer(),
                                            .resumed_state = checkpoints_.resumed_state()}));
  return processes_->start(coordinator_->port(), record_.epoch());
}

void Job::on_dataset(const Result<ServedDataset>& served) {
  if (!served) {
    give_error(served.error());
    return;
  }
  if (react(JobEvent::kDataset) == Reaction::kIgnore) {
    return;
  }
  if (const Status same = checkpoints_.take_data(served->dataset); !same) {
    give_error(same.error());
    return;
  }
  data_waits_.emplace(served->address, options_.hostio.timeout_seconds);
  const bool no_test = served->dataset.test_items() == 0;
  if (no_test && options_.config.inference()) {
    console_.say("note: the data has no test part, so inference runs on all items");
  } else if (no_test && options_.config.training().evaluate()) {
    console_.say("note: the data has no test part, so nothing is evaluated");
  }
  coordinator_->open(join_reply(options_, placement_, *served, checkpoints_.resumed()));
}

}  // namespace poprun::launcher
