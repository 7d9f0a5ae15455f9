#include "launcher/job/join_reply.h"

#include <cstdint>

namespace poprun::launcher {

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
  reply.set_hostio_timeout_seconds(options.hostio_timeout_seconds);
  reply.set_heartbeat_interval_ms(static_cast<std::uint32_t>(options.heartbeat_interval_seconds * 1000));
  reply.set_collective_timeout_seconds(options.collective_timeout_seconds);
  reply.mutable_command()->Assign(options.command.begin(), options.command.end());
  reply.set_takes_checkpoints(!config.inference() && !config.has_check() && !config.has_profile());
  reply.set_checkpoint_every_steps(options.checkpoint_every.steps);
  if (resumed) {
    *reply.mutable_resume() = resumed->manifest.host();
  }
  return reply;
}

}  // namespace poprun::launcher
