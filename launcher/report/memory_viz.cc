#include "launcher/report/memory_viz.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/report/device_trace.h"

namespace poprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

/// Appends `value` as pickle's opcodes.
void pickle(const Json& value, std::string& out) {
  const auto little_endian = [&out](std::uint64_t number, int bytes) {
    for (int k = 0; k < bytes; ++k) {
      out.push_back(static_cast<char>(number >> (8 * k) & 0xFF));
    }
  };
  const auto text = [&](const std::string& string) {
    out.push_back('X');
    little_endian(string.size(), 4);
    out += string;
  };
  if (value.is_object()) {
    out += "}(";
    for (const auto& [key, element] : value.items()) {
      text(key);
      pickle(element, out);
    }
    out.push_back('u');
  } else if (value.is_array()) {
    out += "](";
    for (const Json& element : value) {
      pickle(element, out);
    }
    out.push_back('e');
  } else if (value.is_string()) {
    text(value.get_ref<const std::string&>());
  } else {
    const auto number = value.get<std::uint64_t>();
    const bool is_short = number < std::uint64_t{1} << 31;
    out += is_short ? "J" : "\x8A\x08";  // A signed number of 4 or of 8 bytes.
    little_endian(number, is_short ? 4 : 8);
  }
}

/// A variable on a device, during one of its lives.
struct Allocation {
  const proto::Variable* variable = nullptr;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  proto::Span life;
};

class Snapshot {
 public:
  explicit Snapshot(const proto::Report& report) : report_(report), steps_(step_names(report)) {}

  void add_device(int ipu, SnapshotOf what) {
    const std::vector<Allocation> all = what == SnapshotOf::kIpus ? of_ipu(ipu) : of_tile(ipu);
    const proto::IpuReport& report = report_.ipus(ipu);
    const std::uint32_t worst =
        what == SnapshotOf::kIpus ? report.liveness().worst_step() : report.fullest_tile().liveness().worst_step();
    traces_.push_back(events(all));
    segments_.push_back(
        segment(ipu, all, worst, what == SnapshotOf::kIpus ? report.capacity() : report.bytes_per_tile()));
  }

  [[nodiscard]] std::string text() const {
    std::string out = "\x80\x02";
    pickle(Json{{"segments", segments_}, {"device_traces", traces_}}, out);
    return out + ".";
  }

 private:
  [[nodiscard]] std::vector<Allocation> of_ipu(int ipu) const {
    std::vector<Allocation> all;
    std::uint64_t address = 0;
    for (const proto::Variable& variable : report_.variables()) {
      if (variable.ipu() == static_cast<std::uint32_t>(ipu)) {
        add(variable, address, variable.bytes(), all);
        address += variable.bytes();
      }
    }
    return all;
  }

  [[nodiscard]] std::vector<Allocation> of_tile(int ipu) const {
    std::vector<Allocation> all;
    const std::uint32_t tile = report_.ipus(ipu).fullest_tile().tile();
    for (const proto::TileClassReport& one : report_.ipus(ipu).classes()) {
      if (std::ranges::any_of(one.tiles(),
                              [tile](const auto& span) { return span.first() <= tile && tile <= span.last(); })) {
        for (int k = 0; k < one.variables_size(); ++k) {
          add(report_.variables(static_cast<int>(one.variables(k))), one.offsets(k), one.bytes(k), all);
        }
      }
    }
    return all;
  }

  static void add(const proto::Variable& variable, std::uint64_t address, std::uint64_t bytes,
                  std::vector<Allocation>& all) {
    for (const proto::Span& life : variable.lives()) {
      all.push_back({&variable, address, bytes, life});
    }
  }

  [[nodiscard]] Json frames(const Allocation& one) const {
    Json frames = Json::array({{{"name", one.variable->name()}, {"filename", one.variable->category()}, {"line", 0}}});
    if (const auto step = steps_.find(one.life.first()); step != steps_.end()) {
      frames.push_back({{"name", step->second.text}, {"filename", step->second.function}, {"line", step->first}});
    }
    return frames;
  }

  /// Returns the events of a device in order; at a step, what dies before it is freed first.
  [[nodiscard]] Json events(const std::vector<Allocation>& all) const {
    std::vector<std::tuple<std::uint32_t, bool, std::size_t>> order;  // Step, whether it allocates, index.
    for (std::size_t k = 0; k < all.size(); ++k) {
      order.emplace_back(all[k].life.first(), true, k);
      if (all[k].life.last() + 1 < report_.steps()) {
        order.emplace_back(all[k].life.last() + 1, false, k);
      }
    }
    std::ranges::sort(order);
    Json events = Json::array();
    for (const auto& [step, allocates, k] : order) {
      events.push_back({{"action", allocates ? "alloc" : "free_completed"},
                        {"addr", all[k].address},
                        {"size", all[k].bytes},
                        {"stream", 0},
                        {"time_us", step},
                        {"frames", allocates ? frames(all[k]) : Json::array()}});
    }
    return events;
  }

  /// Returns a device's memory at a step as one segment, whose blocks cover it without overlap.
  [[nodiscard]] Json segment(int ipu, const std::vector<Allocation>& all, std::uint32_t step,
                             std::uint64_t size) const {
    std::vector<const Allocation*> live;
    for (const Allocation& one : all) {
      if (one.life.first() <= step && step <= one.life.last()) {
        live.push_back(&one);
      }
    }
    std::ranges::stable_sort(live, {}, [](const Allocation* one) { return one->address; });
    Json blocks = Json::array();
    std::uint64_t end = 0;
    std::uint64_t used = 0;
    const auto gap_to = [&](std::uint64_t address) {
      if (address > end) {
        blocks.push_back({{"size", address - end},
                          {"requested_size", 0},
                          {"address", end},
                          {"state", "inactive"},
                          {"frames", Json::array()}});
      }
    };
    for (const Allocation* one : live) {
      gap_to(one->address);
      const Json where = frames(*one);
      blocks.push_back(
          {{"size", one->bytes},
           {"requested_size", one->bytes},
           {"address", one->address},
           {"state", "active_allocated"},
           {"frames", where},
           {"history", Json::array({{{"addr", one->address}, {"real_size", one->bytes}, {"frames", where}}})}});
      end = one->address + one->bytes;
      used += one->bytes;
    }
    gap_to(std::max(size, end));
    return {{"device", ipu},
            {"address", 0},
            {"total_size", std::max(size, end)},
            {"stream", 0},
            {"segment_type", "large"},
            {"allocated_size", used},
            {"active_size", used},
            {"blocks", blocks}};
  }

  const proto::Report& report_;
  std::map<std::uint32_t, StepName> steps_;
  Json segments_ = Json::array();
  Json traces_ = Json::array();
};

}  // namespace

std::string memory_snapshot(const proto::Report& report, SnapshotOf what) {
  Snapshot snapshot(report);
  for (int ipu = 0; ipu < report.ipus_size(); ++ipu) {
    snapshot.add_device(ipu, what);
  }
  return snapshot.text();
}

}  // namespace poprun::launcher
