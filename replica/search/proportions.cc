#include "replica/search/proportions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "replica/compilation/job_inputs.h"

namespace poprun {
namespace {

/// Proportions to try, in thousandths. Down to the least of them, less means less memory (Graphcore, Memory and
/// Performance Optimisation on the IPU, table 2.1).
constexpr std::uint32_t kGrid[] = {100, 150, 200, 300, 400, 600, 900};
constexpr std::uint32_t kDefaultPermille = 600;

/// Returns a setting as text: "0.3", "ipu1=0.15".
std::string text_of(const proto::ProductSetting& setting) {
  const std::size_t equals = setting.text().rfind('=');
  return fmt::format("{}{:g}", equals == std::string::npos ? "" : setting.text().substr(0, equals + 1),
                     setting.permille() / 1000.0);
}

/// Returns the job's proportions, moved by `steps` places of the grid for overfull IPUs. Settings for operators stay,
/// as do those for stages unless all IPUs are overfull. Nothing if no proportion changes.
std::optional<ProductSettingRows> moved_proportions(const ChangedJob& job, int steps) {
  ProductSettingRows settings = job.config.memory().available_memory_proportion();
  const std::size_t ipus = job.tiles.size();
  const auto is_over = [&](std::size_t ipu) { return job.tiles[ipu] > job.tile_bytes; };
  const auto is_plain = [](const proto::ProductSetting& s) {
    return s.operators().empty() && s.products().empty() && !s.has_stage() && !s.has_ipu();
  };
  const auto plain = std::ranges::find_if(settings, is_plain);
  const std::uint32_t everywhere = plain == settings.end() ? kDefaultPermille : plain->permille();
  bool is_changed = false;
  const auto move = [&](proto::ProductSetting& setting) {
    const std::uint32_t now = setting.permille();
    const std::ptrdiff_t next = steps < 0 ? std::ranges::lower_bound(kGrid, now) - std::begin(kGrid) + steps
                                          : std::ranges::upper_bound(kGrid, now) - std::begin(kGrid) + steps - 1;
    const std::uint32_t then = kGrid[std::clamp<std::ptrdiff_t>(next, 0, std::ssize(kGrid) - 1)];
    if (steps < 0 ? then < now : then > now) {
      setting.set_permille(then);
      setting.set_text(text_of(setting));
      is_changed = true;
    }
  };
  if (ipus == 1 || std::ranges::all_of(job.tiles, [&](auto t) { return t > job.tile_bytes; })) {
    if (plain == settings.end() && std::ranges::none_of(settings, &proto::ProductSetting::has_ipu)) {
      settings.Add()->set_permille(kDefaultPermille);
    }
    for (proto::ProductSetting& setting : settings) {
      if (setting.operators().empty()) {
        move(setting);
      }
    }
    return is_changed ? std::optional(settings) : std::nullopt;
  }
  for (std::uint32_t ipu = 0; ipu < ipus; ++ipu) {
    bool is_named = false;
    for (proto::ProductSetting& setting : settings) {
      if (is_over(ipu) && setting.has_ipu() && setting.ipu() == ipu) {
        is_named = is_named || setting.products().empty();
        move(setting);
      }
    }
    if (is_over(ipu) && !is_named) {
      proto::ProductSetting own;
      own.set_ipu(ipu);
      own.set_permille(everywhere);
      own.set_text(fmt::format("ipu{}=", ipu));
      move(own);
      if (own.permille() != everywhere) {
        *settings.Add() = own;
      }
    }
  }
  return is_changed ? std::optional(settings) : std::nullopt;
}

void add_proportions(const ChangedJob& job, int steps, Remedy& remedy) {
  const std::optional<ProductSettingRows> moved = moved_proportions(job, steps);
  if (!moved) {
    return;
  }
  remedy.settings.emplace_back([settings = *moved](ChangedJob& changed) {
    *changed.config.mutable_memory()->mutable_available_memory_proportion() = settings;
    std::vector<std::string> words;
    for (const proto::ProductSetting& setting : settings) {
      if (setting.operators().empty()) {
        words.push_back(setting.text());
      }
    }
    changed.changes.push_back(fmt::format("memory.available-memory-proportion {}", fmt::join(words, " ")));
  });
}

}  // namespace

Remedy other_proportions(const ChangedJob& job) {
  Remedy remedy{.settings = {}, .relieves = {"temporaries", "control code", "exchange code"}};
  for (const int steps : {-1, -2, -3, 1}) {
    add_proportions(job, steps, remedy);
  }
  return remedy;
}

}  // namespace poprun
