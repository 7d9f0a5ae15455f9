#include "replica/models/onnx/cuts.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "replica/ops/face/operator.h"

namespace poprun::onnx_import {
namespace {

/// An activation does not count if the largest one that crosses the same place is more than this many times as large.
constexpr std::int64_t kSmall = 16;

constexpr std::size_t kFewestPieces = 4;
constexpr std::size_t kWidest = 8;

/// Live range of an activation, which starts after operation `begin` and ends with operation `end`.
struct Life {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t bytes = 0;
};

std::vector<Life> lives_of(const ImportedOperations& imported) {
  constexpr std::size_t kNever = static_cast<std::size_t>(-1);
  std::vector<Life> lives(imported.graph.tensors().size(), Life{kNever});
  for (std::size_t k = 0; k < imported.operations.size(); ++k) {
    for (const TensorId id : imported.operations[k].inputs) {
      lives[index_of(id)].end = k;
    }
    for (const TensorId id : imported.operations[k].outputs) {
      if (imported.graph.tensor(id).role == Role::kActivation) {
        lives[index_of(id)].begin = std::min(lives[index_of(id)].begin, k);
        lives[index_of(id)].bytes = imported.graph.tensor(id).type.bytes().count();
      }
    }
  }
  for (const TensorId id : imported.outputs) {
    lives[index_of(id)].end = imported.operations.size();
  }
  std::erase_if(lives, [](const Life& life) { return life.begin == kNever; });
  return lives;
}

/// For each operation, returns the number of activations that cross the place just before it.
std::vector<std::size_t> widths(const ImportedOperations& imported) {
  std::vector<Life> lives = lives_of(imported);
  std::ranges::sort(lives, {}, &Life::begin);
  std::vector<std::size_t> widths;
  std::vector<Life> alive;
  auto next = lives.begin();
  for (std::size_t k = 0; k < imported.operations.size(); ++k) {
    for (; next != lives.end() && next->begin < k; ++next) {
      alive.push_back(*next);
    }
    std::erase_if(alive, [k](const Life& life) { return life.end < k; });
    std::int64_t largest = 0;
    for (const Life& life : alive) {
      largest = std::max(largest, life.bytes);
    }
    widths.push_back(static_cast<std::size_t>(
        std::ranges::count_if(alive, [largest](const Life& life) { return life.bytes >= largest / kSmall; })));
  }
  return widths;
}

bool is_product(const Graph& graph, const Operation& operation) {
  const Operator* op = find_operator(operation.kind);
  return op != nullptr && op->work(signature_of(graph, operation)).macs > 0;
}

/// Returns the first operation of each piece if at most `width` activations may cross between pieces.
std::vector<std::size_t> begins_of(const ImportedOperations& imported, const std::vector<std::size_t>& widths,
                                   std::size_t width) {
  std::vector<std::size_t> begins = {0};
  std::size_t section = 0;  // Starts at the last place that is narrow enough.
  bool has_product = false;
  for (std::size_t k = 0; k < imported.operations.size(); ++k) {
    if (k > 0 && imported.node[k] != imported.node[k - 1] && widths[k] <= width) {
      section = k;
    }
    if (!is_product(imported.graph, imported.operations[k])) {
      continue;
    }
    if (has_product && section > begins.back()) {
      begins.push_back(section);
    }
    has_product = true;
  }
  return begins;
}

/// Returns the folders of a node's name: "a/b" for "/a/b/Conv".
std::string_view folders(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('/'), name.size()));
  const std::size_t last = name.rfind('/');
  return last == std::string_view::npos ? std::string_view{} : name.substr(0, last);
}

/// Returns the folders that both names share: "a/b" for "a/b/c" and "a/b/d/e".
std::string_view shared(std::string_view a, std::string_view b) {
  std::size_t end = 0;
  for (std::size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '/';
    const bool b_ends = i == b.size() || b[i] == '/';
    if (a_ends && b_ends) {
      end = i;
    }
    if (i == std::min(a.size(), b.size()) || a[i] != b[i]) {
      break;
    }
  }
  return a.substr(0, end);
}

std::string without_blanks(std::string_view text) {
  std::string name(text);
  std::ranges::replace_if(
      name, [](unsigned char c) { return c <= ' ' || c == 0x7F || c == '#'; }, '_');
  return name;
}

/// Returns a name for operations [begin, end) that is not in `taken`, and adds it to `taken`.
std::string name_of(const ImportedOperations& imported, const ::onnx::GraphProto& file, std::size_t begin,
                    std::size_t end, std::set<std::string>& taken) {
  const auto node = [&](std::size_t k) -> const ::onnx::NodeProto& {
    return file.node(static_cast<int>(imported.node[k]));
  };
  std::string_view common = folders(node(begin).name());
  std::size_t product = begin;
  for (std::size_t k = end; k-- > begin;) {
    common = shared(common, folders(node(k).name()));
    product = is_product(imported.graph, imported.operations[k]) ? k : product;
  }
  std::string name = without_blanks(common);
  if (!name.empty() && taken.insert(name).second) {
    return name;
  }
  const std::string written = without_blanks(node(product).output(0));
  name = written;
  for (int copy = 2; !taken.insert(name).second; ++copy) {
    name = fmt::format("{}~{}", written, copy);
  }
  return name;
}

}  // namespace

std::vector<Piece> narrowest_cuts(const ImportedOperations& imported, const ::onnx::GraphProto& file) {
  if (imported.operations.empty()) {
    return {};
  }
  const std::vector<std::size_t> crossing = widths(imported);
  std::vector<std::size_t> begins;
  for (std::size_t width = 1; width <= kWidest && begins.size() < kFewestPieces; ++width) {
    begins = begins_of(imported, crossing, width);
  }
  std::vector<Piece> pieces;
  std::set<std::string> taken;
  for (std::size_t p = 0; p < begins.size(); ++p) {
    const std::size_t end = p + 1 < begins.size() ? begins[p + 1] : imported.operations.size();
    pieces.push_back({p == 0 ? 0 : imported.node[begins[p]], name_of(imported, file, begins[p], end, taken)});
  }
  return pieces;
}

}  // namespace poprun::onnx_import
