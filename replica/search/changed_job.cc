#include "replica/search/changed_job.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/compilation/job_inputs.h"

namespace poprun {
namespace {

/// Erases both "--name=value" and "--name value".
void erase_option(const std::string& name, std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end();) {
    const bool is_alone = *word == name;
    if (is_alone || word->starts_with(name + "=")) {
      word = words.erase(word, is_alone ? std::min(word + 2, words.end()) : word + 1);
    } else {
      ++word;
    }
  }
}

std::uint32_t fullest_ipu(const ChangedJob& job) {
  return static_cast<std::uint32_t>(std::ranges::max_element(job.tiles) - job.tiles.begin());
}

std::uint32_t emptiest_ipu(const ChangedJob& job) {
  return static_cast<std::uint32_t>(std::ranges::min_element(job.tiles) - job.tiles.begin());
}

/// Replaces the job's mapping with the one that puts stage s on IPU s. Phases have no mapping.
void map_in_order(ChangedJob& job) {
  if (job.config.memory().phases() > 1) {
    job.changes.emplace_back(kNoMapping);
    return;
  }
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  for (std::uint32_t ipu = 0; ipu < job.config.topology().ipus_per_replica(); ++ipu) {
    pipeline.add_device_mapping(ipu);
  }
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(pipeline.device_mapping(), " ")));
}

/// Puts embeddings and head on IPU 0, where they share their weights, and the layers on the other IPUs.
void join_head_and_embeddings(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const std::uint32_t others = job.config.topology().ipus_per_replica() - 1;
  pipeline.add_layers_per_ipu(0);
  pipeline.add_device_mapping(0);
  for (std::uint32_t ipu = 0; ipu < others; ++ipu) {
    const bool has_more = ipu < job.encoder_layers % others;
    pipeline.add_layers_per_ipu(job.encoder_layers / others + (has_more ? 1 : 0));
    pipeline.add_device_mapping(ipu + 1);
  }
  pipeline.add_layers_per_ipu(0);
  pipeline.add_device_mapping(0);
  job.changes.push_back(fmt::format("pipeline.layers-per-ipu {}", fmt::join(pipeline.layers_per_ipu(), " ")));
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(pipeline.device_mapping(), " ")));
}

/// Proportions to try, in thousandths. Within this range, a smaller proportion needs less memory (Graphcore, Memory and
/// Performance Optimisation on the IPU, table 2.1).
constexpr std::uint32_t kGrid[] = {100, 150, 200, 300, 400, 600, 900};
constexpr std::uint32_t kDefaultPermille = 600;

/// Returns a setting as text: "0.3", "ipu1=0.15".
std::string text_of(const proto::ProductSetting& setting) {
  const std::size_t equals = setting.text().rfind('=');
  return fmt::format("{}{:g}", equals == std::string::npos ? "" : setting.text().substr(0, equals + 1),
                     setting.permille() / 1000.0);
}

/// Returns the job's proportions, with those of overfull IPUs moved by `steps` positions of the grid, or nothing if no
/// proportion changes. Settings for operators do not change; settings for stages change only if all IPUs are overfull.
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

std::string ChangedJob::options() const {
  if (changes.size() < 2) {
    return fmt::format("{}", fmt::join(changes, ""));
  }
  return fmt::format("{} and {}", fmt::join(changes.begin(), changes.end() - 1, ", "), changes.back());
}

std::optional<std::vector<std::string>> ChangedJob::command(std::vector<std::string> words) const {
  for (const std::string& change : changes) {
    if (change == kNoMapping) {
      return std::nullopt;
    }
    if (change == kNoSplit) {  // On the command line, layers per IPU do not override --pipeline.split.
      erase_option("--pipeline.split", words);
      continue;
    }
    const std::size_t blank = change.find(' ');
    const std::string value = change.substr(blank + 1);
    words.push_back((change.starts_with("--") ? "" : "--") + change.substr(0, blank));
    words.push_back(value.find(' ') == std::string::npos ? value : fmt::format("'{}'", value));
  }
  return words;
}

bool ChangedJob::lacks_much() const {
  return std::ranges::any_of(tiles, [this](std::uint64_t tile) { return tile > 2 * tile_bytes; });
}

bool ChangedJob::is_consistent() const {
  const proto::MemoryConfig& memory = config.memory();
  return memory.phases() <= 1 ||
         (config.pipeline().device_mapping().empty() &&
          std::max(1U, memory.phase_ipus()) == std::max(1U, config.topology().ipus_per_replica()));
}

bool names_stages(const ChangedJob& job) {
  const proto::PipelineConfig& pipeline = job.config.pipeline();
  return !pipeline.layers_per_ipu().empty() || !pipeline.split().empty() || !pipeline.device_mapping().empty();
}

void arrange_stages(ChangedJob& job) {
  std::erase_if(job.changes, [](const std::string& change) {
    return change.starts_with("pipeline.layers-per-ipu ") || change.starts_with("pipeline.device-mapping ") ||
           change == kNoSplit || change == kNoMapping;
  });
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const bool has_split = !pipeline.split().empty();
  const bool has_mapping = !pipeline.device_mapping().empty();
  pipeline.clear_layers_per_ipu();
  pipeline.clear_split();
  pipeline.clear_device_mapping();
  if (job.head_joins_embeddings) {
    join_head_and_embeddings(job);
  } else {
    job.changes.emplace_back("pipeline.layers-per-ipu balanced");
  }
  if (has_split) {
    job.changes.emplace_back(kNoSplit);
  }
  if (has_mapping && !job.head_joins_embeddings) {
    map_in_order(job);
  }
}

bool move_layer(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const auto ipu_of = [&](int stage) {
    return pipeline.device_mapping().empty() ? static_cast<std::uint32_t>(stage) : pipeline.device_mapping(stage);
  };
  auto& layers = *pipeline.mutable_layers_per_ipu();
  int from = -1;
  int to = -1;
  for (int stage = 0; stage < layers.size(); ++stage) {
    const bool has_some = from < 0 || layers[stage] > layers[from];
    if (ipu_of(stage) == fullest_ipu(job) && layers[stage] > 0 && has_some) {
      from = stage;
    }
    if (ipu_of(stage) == emptiest_ipu(job) && layers[stage] > 0) {
      to = stage;
    }
  }
  if (from < 0 || to < 0 || from == to) {
    return false;
  }
  layers[from] -= 1;
  layers[to] += 1;
  job.changes.push_back(fmt::format("pipeline.layers-per-ipu {}", fmt::join(layers, " ")));
  return true;
}

bool move_head(ChangedJob& job) {
  proto::PipelineConfig& pipeline = *job.config.mutable_pipeline();
  const auto& layers = pipeline.layers_per_ipu();
  auto& mapping = *pipeline.mutable_device_mapping();
  const int last = layers.size() - 1;
  if (layers.empty() || mapping.empty() || layers[last] != 0 || mapping[last] != fullest_ipu(job) ||
      fullest_ipu(job) == emptiest_ipu(job)) {
    return false;
  }
  mapping[last] = emptiest_ipu(job);
  job.changes.push_back(fmt::format("pipeline.device-mapping {}", fmt::join(mapping, " ")));
  return true;
}

Remedy other_proportions(const ChangedJob& job) {
  Remedy remedy{.settings = {}, .relieves = {"temporaries", "control code", "exchange code"}};
  for (const int steps : {-1, -2, -3, 1}) {
    add_proportions(job, steps, remedy);
  }
  return remedy;
}

}  // namespace poprun
