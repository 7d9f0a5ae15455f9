#include "launcher/placement/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/placement/addresses.h"
#include "replica/base/text.h"
#include "replica/device/device.h"

namespace poprun::launcher {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.");
}

Result<std::vector<std::uint32_t>> instances_per_host(std::uint32_t instances, std::span<const Host> hosts) {
  const auto count = static_cast<std::uint32_t>(hosts.size());
  std::vector<std::uint32_t> shares(hosts.size(), instances / count);
  for (std::uint32_t h = 0; h < instances % count; ++h) {
    ++shares[h];
  }
  const bool by_slots = std::ranges::any_of(hosts, [](const Host& host) { return host.slots > 0; });
  if (!by_slots) {
    return shares;
  }
  std::uint32_t left = instances;
  std::uint64_t had = 0;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const std::uint32_t slots = std::max<std::uint32_t>(1, hosts[h].slots);
    had += slots;
    shares[h] = std::min(left, slots);
    left -= shares[h];
  }
  if (left > 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} instances need {} slots, but the total on {} is only {}; list more hosts or slots, "
                            "omit the slots to spread the instances evenly, or lower --num-instances",
                            instances, instances, counted(hosts.size(), "listed host"), had));
  }
  return shares;
}

/// Rejects two names for the same host, because mpirun would treat them as two hosts.
Status check_distinct(std::span<const Host> hosts, std::span<const KnownHost> known) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (std::size_t i = 0; i < h; ++i) {
      const bool both_here = known[h].is_this_machine && known[i].is_this_machine;
      const bool one_address = !known[h].address.empty() && known[h].address == known[i].address;
      if (both_here || one_address) {
        return fail(ErrorCode::kUsage,
                    fmt::format("hosts {} and {} are the same machine{}; name it once, with {}:N for N instances on it",
                                hosts[i].name, hosts[h].name, one_address ? fmt::format(" ({})", known[h].address) : "",
                                hosts[i].name));
      }
    }
  }
  return {};
}

/// Returns the login name for the remote hosts. It must be the same for all of them, since mpirun accepts only one.
Result<std::string> ssh_user_of(std::span<const Host> hosts, std::span<const KnownHost> known) {
  const Host* first = nullptr;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const Host& host = hosts[h];
    if (known[h].is_this_machine) {
      continue;
    }
    if (first != nullptr && host.user != first->user) {
      const auto shown = [](const Host& one) {
        return one.user.empty() ? fmt::format("{} without a user", one.name) : fmt::format("{}@{}", one.user, one.name);
      };
      return fail(ErrorCode::kUsage,
                  fmt::format("{} and {}: mpirun uses one login name for all hosts; give all hosts the "
                              "same user, or give no user and set `User` per host in ~/.ssh/config",
                              shown(*first), shown(host)));
    }
    first = first == nullptr ? &host : first;
  }
  return first == nullptr ? "" : first->user;
}

/// Rejects a login name if arguments for ssh are also given, because mpirun has only one parameter for both.
Status check_ssh_arguments(const std::string& user, const Options& options) {
  const char* const name = "plm_rsh_args";
  const bool given = std::getenv("OMPI_MCA_plm_rsh_args") != nullptr ||
                     std::ranges::find(options.mpirun.global_args, name) != options.mpirun.global_args.end();
  if (user.empty() || !given) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("{}@HOST and Open MPI's {} cannot be combined; give hosts without a user, "
                                             "and add `-l {}` to {}",
                                             user, name, user, name));
}

/// A label and the number of replicas that it covers.
struct Cell {
  std::string label;
  std::size_t replicas;
};

struct Row {
  std::string name;
  std::vector<Cell> cells;
};

std::string centred(const std::string& text, std::size_t width) {
  const std::size_t space = width - text.size();
  return fmt::format("{:{}}{}{:{}}", "", space / 2, text, "", space - space / 2);
}

/// Builds a row in which consecutive replicas with the same label share a cell.
template <typename Label>
Row make_row(std::string name, std::uint32_t replicas, Label label) {
  Row row{std::move(name), {}};
  for (std::uint32_t r = 0; r < replicas; ++r) {
    const std::string text = label(r);
    if (row.cells.empty() || row.cells.back().label != text) {
      row.cells.push_back({text, 0});
    }
    ++row.cells.back().replicas;
  }
  return row;
}

/// Returns the smallest width of a replica's cell at which every label fits with a space on each side. A cell over k
/// replicas is k * width + k - 1 wide, since it also covers the k - 1 bars between them.
std::size_t replica_width(const std::vector<Row>& rows) {
  std::size_t width = 3;
  for (const Row& row : rows) {
    for (const Cell& cell : row.cells) {
      const std::size_t needed = cell.label.size() + 2;
      while (cell.replicas * width + cell.replicas - 1 < needed) {
        ++width;
      }
    }
  }
  return width;
}

}  // namespace

Result<std::string> own_address_in(const std::string& subnet) {
  const std::size_t slash = subnet.find('/');
  const int bits = std::stoi(subnet.substr(slash + 1));
  in_addr network{};
  POPRUN_CHECK(inet_pton(AF_INET, subnet.substr(0, slash).c_str(), &network) == 1);
  const std::uint32_t mask = htonl(bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits));
  std::vector<std::string> had;
  for (const std::string& text : own_addresses()) {
    in_addr address{};
    if (inet_pton(AF_INET, text.c_str(), &address) == 1 && (address.s_addr & mask) == (network.s_addr & mask)) {
      return text;
    }
    had.push_back(text);
  }
  return fail(ErrorCode::kUsage, fmt::format("--host-subnet = {}: {} has no address in this subnet, only {}", subnet,
                                             machine_name(), fmt::join(had, ", ")));
}

std::string own_address(const Placement& placement) {
  if (placement.all_local) {
    return "127.0.0.1";
  }
  if (!placement.address_in_subnet.empty()) {
    return placement.address_in_subnet;
  }
  for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
    const auto source = source_towards(placement.addresses[h]);
    if (!placement.is_local[h] && source && !is_loopback(*source)) {
      return *source;
    }
  }
  // No remote host's name resolves here, so only ssh can resolve these names, through its own configuration.
  std::vector<std::string> own = own_addresses();
  std::erase_if(own, is_loopback);
  return own.size() == 1 ? own.front() : machine_name();
}

std::string listening_address(const std::string& own_address) {
  in_addr address{};
  return inet_pton(AF_INET, own_address.c_str(), &address) == 1 ? own_address : "0.0.0.0";
}

Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts) {
  return place(topology, hosts, known_by_name(hosts));
}

Result<Placement> place(const proto::Topology& topology, std::span<const Host> hosts,
                        std::span<const KnownHost> known) {
  Placement placement;
  placement.num_replicas = topology.num_replicas();
  placement.num_instances = topology.num_instances();
  placement.ipus_per_replica = topology.ipus_per_replica();
  const std::vector<Host> this_machine = {{machine_name()}};
  const std::vector<KnownHost> this_machine_known = {{.is_this_machine = true}};
  placement.hosts_given = !hosts.empty();
  if (hosts.empty()) {
    hosts = this_machine;
    known = this_machine_known;
  }
  POPRUN_ASSIGN(placement.ssh_user, ssh_user_of(hosts, known));
  POPRUN_ASSIGN(const std::vector<std::uint32_t> shares, instances_per_host(placement.num_instances, hosts));
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    if (shares[h] > 0) {
      const auto used = static_cast<std::uint32_t>(placement.hosts.size());
      placement.instance_host.insert(placement.instance_host.end(), shares[h], used);
      placement.hosts.push_back(hosts[h].name);
      placement.is_local.push_back(known[h].is_this_machine);
      placement.addresses.push_back(known[h].address);
    }
  }
  placement.all_local = std::ranges::all_of(placement.is_local, std::identity{});
  return placement;
}

Result<Placement> place(const Options& options, std::span<const std::string> lost) {
  POPRUN_ASSIGN(JobHosts given, job_hosts(options, options.config.topology().num_instances()));
  std::vector<Host>& hosts = given.hosts;
  const bool had_hosts = !hosts.empty();
  std::erase_if(hosts, [lost](const Host& host) { return std::ranges::count(lost, host.name) > 0; });
  if (had_hosts && hosts.empty()) {
    return fail(ErrorCode::kUsage, "all hosts of the job are lost");
  }
  POPRUN_ASSIGN(const Device device, find_device(options.config.device().ipu()));
  const std::vector<KnownHost> known = look_up(hosts);
  if (given.source.empty()) {
    POPRUN_TRY(check_distinct(hosts, known));
  }
  POPRUN_ASSIGN(Placement placement, place(options.config.topology(), hosts, known));
  POPRUN_TRY(check_ssh_arguments(placement.ssh_user, options));
  placement.source = given.source;
  placement.slurm_job = given.slurm_job;
  placement.ipus_per_link_domain = device.ipus_per_link_domain;
  if (!options.hosts.subnet.empty()) {
    POPRUN_ASSIGN(placement.address_in_subnet, own_address_in(options.hosts.subnet));
  }
  return placement;
}

std::string topology_table(const Placement& placement) {
  const std::uint32_t replicas = placement.num_replicas;
  const std::vector<Row> rows = {
      make_row("hosts", replicas,
               [&](std::uint32_t r) {
                 return placement.hosts_given ? placement.host_of(placement.instance_of(r)) : "localhost";
               }),
      make_row("ILDs", replicas,
               [&](std::uint32_t r) {
                 return std::to_string(std::int64_t{r} * placement.ipus_per_replica / placement.ipus_per_link_domain);
               }),
      make_row("instances", replicas, [&](std::uint32_t r) { return std::to_string(placement.instance_of(r)); }),
      make_row("replicas", replicas, [](std::uint32_t r) { return std::to_string(r); })};
  const std::string title = "poprun topology";
  std::size_t width = replica_width(rows);
  while (11 + 1 + replicas * (width + 1) - 1 < title.size() + 2) {
    ++width;
  }
  const std::size_t body = replicas * (width + 1) - 1;
  const std::size_t inside = 11 + 1 + body;

  std::string table = fmt::format(" {:=<{}}\n|{}|\n|{:=<{}}|\n", "", inside, centred(title, inside), "", inside);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) {
      table += fmt::format("|{:-<11}|{:-<{}}|\n", "", "", body);
    }
    table += fmt::format("| {:<9} |", rows[i].name);
    for (const Cell& cell : rows[i].cells) {
      table += fmt::format("{}|", centred(cell.label, cell.replicas * (width + 1) - 1));
    }
    table += "\n";
  }
  return table + fmt::format(" {:-<{}}\n", "", inside);
}

}  // namespace poprun::launcher
