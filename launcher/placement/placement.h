#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/placement/hosts.h"
#include "replica/base/error.h"

/// Decides where replicas and instances run:
///
///   replicas   0 1 | 2 3 | 4 5 | 6 7      contiguous in instances, all of the same size;
///   instances   0  |  1  |  2  |  3       contiguous over hosts: spread evenly, or up to the slots if given.
///   hosts       node0    |   node1
namespace poprun::launcher {

struct Placement {
  std::uint32_t num_replicas = 0;
  std::uint32_t num_instances = 0;  ///< Divides num_replicas.
  std::uint32_t ipus_per_replica = 0;
  std::vector<std::string> hosts;            ///< The hosts in use, in order.
  std::vector<std::uint32_t> instance_host;  ///< [num_instances] index into hosts; never decreases.
  std::vector<bool> is_local;                ///< [hosts] whether the host is this machine.
  std::vector<std::string> addresses;        ///< [hosts] IPv4; empty: the name does not resolve here.
  std::string source;                        ///< Origin of the hosts if the command does not name them.
  std::string slurm_job;                     ///< Slurm job whose srun reaches the hosts; empty: ssh reaches them.
  std::string ssh_user;                      ///< Login name on other hosts; empty: ssh decides.
  std::int64_t ipus_per_link_domain = 64;    ///< IPUs in the largest IPU-Link domain of the device.
  std::string address_in_subnet;             ///< This machine's address in --host-subnet, if given.
  bool hosts_given = false;                  ///< Whether hosts were named. If not, all instances run here.
  bool all_local = false;                    ///< Whether every host is this machine.

  [[nodiscard]] std::uint32_t replicas_per_instance() const { return num_replicas / num_instances; }
  [[nodiscard]] std::uint32_t instance_of(std::uint32_t replica) const { return replica / replicas_per_instance(); }
  [[nodiscard]] const std::string& host_of(std::uint32_t instance) const { return hosts[instance_host[instance]]; }
  [[nodiscard]] bool runs_here(std::uint32_t instance) const { return is_local[instance_host[instance]]; }
  [[nodiscard]] std::uint32_t instances_here() const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(instance_host, [this](std::uint32_t host) { return is_local[host]; }));
  }
};

/// Distributes instances over hosts. If the slots of any host are stated, hosts are filled in order up to their slots;
/// a host without stated slots has one. Otherwise, instances are spread evenly, and the first hosts get any remainder.
/// If `hosts` is empty, all instances run here. `known` is the result of `look_up`. Without it, this machine is
/// recognised only by name. Errors: kUsage if there are too few slots (the message gives a remedy), or if hosts have
/// different users.
Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts, std::span<const KnownHost> known);
Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts);

/// Places the job on the hosts of `options` (see job_hosts) but not on `lost`. Errors: those of job_hosts and of the
/// functions above; kUsage if this machine has no address in --host-subnet, a host has two names, or no host is left.
Result<Placement> place(const Options& options, std::span<const std::string> lost = {});

/// Formats poprun's table of hosts, IPU-Link domains, instances and replicas.
std::string topology_table(const Placement& placement);

/// Returns the address at which the hosts of `placement` reach this machine. If all are local, this is 127.0.0.1.
/// Otherwise, it is the first of the following that exists: the address in --host-subnet; the address of the interface
/// towards the first remote host with an address; the only address that is not loopback; this machine's name. If any
/// host is remote, the address is not loopback.
std::string own_address(const Placement& placement);

/// Returns the address to listen on in order to be reachable at `own_address`. This is `own_address` itself or, if that
/// is a name, the wildcard address, since other hosts may resolve the name differently.
std::string listening_address(const std::string& own_address);

/// Returns this machine's address in the network `subnet` (ADDRESS/BITS) of --host-subnet. Errors: kUsage if no
/// interface has such an address. The message names the available addresses.
Result<std::string> own_address_in(const std::string& subnet);

}  // namespace poprun::launcher
