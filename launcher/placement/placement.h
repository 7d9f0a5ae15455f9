#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/placement/hosts.h"
#include "replica/base/error.h"

/// Locations of replicas and instances:
///
///   replicas   0 1 | 2 3 | 4 5 | 6 7      contiguous in instances, all of the same size;
///   instances   0  |  1  |  2  |  3       contiguous over hosts: evenly, or by slots if given.
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
  std::string source;                        ///< Origin of hosts that the command does not name.
  std::string slurm_job;                     ///< Its srun reaches the hosts; empty: ssh does.
  std::string ssh_user;                      ///< Login on other hosts; empty: as ssh decides.
  std::int64_t ipus_per_link_domain = 64;    ///< Largest IPU-Link domain of the device.
  std::string address_in_subnet;             ///< This machine's address, with --host-subnet.
  bool hosts_given = false;                  ///< False: no hosts were named; all run here.
  bool all_local = false;                    ///< Every host is this machine.

  [[nodiscard]] std::uint32_t replicas_per_instance() const { return num_replicas / num_instances; }
  [[nodiscard]] std::uint32_t instance_of(std::uint32_t replica) const { return replica / replicas_per_instance(); }
  [[nodiscard]] const std::string& host_of(std::uint32_t instance) const { return hosts[instance_host[instance]]; }
  [[nodiscard]] bool runs_here(std::uint32_t instance) const { return is_local[instance_host[instance]]; }
};

/// Distributes instances over hosts. If any host states slots, hosts are filled in order up to their slots (one if not
/// stated); otherwise instances are spread evenly, and the first hosts take any left over. If `hosts` is empty, all run
/// here. `known` is the result of `look_up`; without `known`, only names decide which host is this machine. Errors:
/// kUsage if there are too few slots (the message gives a remedy), or hosts have different users.
Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts, std::span<const KnownHost> known);
Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts);

/// Calls `place` for the device and the hosts that `options` names (hosts.h), except the hosts `lost`. Errors: those of
/// job_hosts; also kUsage if this machine has no address in --host-subnet, a host has two names, or no host is left.
Result<Placement> place(const Options& options, std::span<const std::string> lost = {});

/// Formats poprun's table of hosts, IPU-Link domains, instances and replicas.
std::string topology_table(const Placement& placement);

/// Returns the address at which the hosts of `placement` reach this machine: 127.0.0.1 if all are local. Otherwise the
/// first that exists of: the address in --host-subnet; the address of the interface towards the first remote host with
/// an address; the only address that is not loopback; this machine's name. Never loopback if any host is remote.
std::string own_address(const Placement& placement);

/// Returns the address to listen at in order to be reachable at `own_address`: only at that address or, if it is a
/// name, at all addresses, since other hosts may resolve the name differently.
std::string listening_address(const std::string& own_address);

/// Returns this machine's address in the network `subnet` (ADDRESS/BITS) of --host-subnet. Errors: kUsage if no
/// interface has such an address; names the available addresses.
Result<std::string> own_address_in(const std::string& subnet);

}  // namespace poprun::launcher
