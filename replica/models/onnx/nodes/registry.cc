#include <algorithm>

#include "replica/models/onnx/node.h"

namespace poprun::onnx_import {

#define POPRUN_FAMILY(family)            \
  namespace nodes::family {              \
  std::vector<Translator> translators(); \
  }
#include "replica/models/onnx/nodes/families.inc"
#undef POPRUN_FAMILY

namespace {

std::vector<Translator> collect() {
  std::vector<Translator> all;
  const auto take = [&all](std::vector<Translator> family) { std::ranges::move(family, std::back_inserter(all)); };
#define POPRUN_FAMILY(family) take(nodes::family::translators());
#include "replica/models/onnx/nodes/families.inc"
#undef POPRUN_FAMILY
  std::ranges::sort(all, {}, &Translator::op);
  return all;
}

}  // namespace

const std::vector<Translator>& all_translators() {
  static const std::vector<Translator> all = collect();
  return all;
}

const Translator* find_translator(const std::string& op) {
  const auto& all = all_translators();
  const auto found = std::ranges::lower_bound(all, op, {}, &Translator::op);
  return found != all.end() && found->op == op ? &*found : nullptr;
}

}  // namespace poprun::onnx_import
