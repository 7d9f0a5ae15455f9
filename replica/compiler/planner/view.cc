#include "replica/compiler/planner/view.h"

#include <utility>

#include <fmt/format.h>

namespace poprun::planner {
namespace {

/// Returns the dimension with input and kernel swapped. With output y' = output - 1 - y, element u of the former input
/// meets element k of the former kernel if k * kernel_dilation = u * input_dilation - y * stride + padding.
FieldDimension swapped(const FieldDimension& d) {
  return {.input = d.kernel,
          .kernel = d.input,
          .output = d.output,
          .stride = d.stride,
          .input_dilation = d.kernel_dilation,
          .kernel_dilation = d.input_dilation,
          .padding = (d.output - 1) * d.stride - d.padding};
}

ViewedProduct swap_operands(ViewedProduct viewed) {
  Product& p = viewed.product;
  viewed.view.swapped = true;
  std::swap(p.batch, p.output_channels);
  for (FieldDimension& d : p.field) {
    d = swapped(d);
  }
  viewed.copied_input = p.input_elements();
  viewed.copied_weights = p.weight_elements();
  return viewed;
}

ViewedProduct expand(ViewedProduct viewed, const std::array<bool, 2>& dimensions) {
  Product& p = viewed.product;
  viewed.view.expanded = dimensions;
  for (std::size_t k = 0; k < 2; ++k) {
    if (dimensions[k]) {
      FieldDimension& d = p.field[k];
      p.input_channels *= d.kernel;
      d = FieldDimension{.input = d.output, .output = d.output};
    }
  }
  viewed.copied_input = p.input_elements();
  return viewed;
}

ViewedProduct combine(ViewedProduct viewed, std::int64_t groups) {
  Product& p = viewed.product;
  viewed.view.combined_groups = groups;
  p.groups /= groups;
  p.input_channels *= groups;
  p.output_channels *= groups;
  viewed.copied_weights = p.weight_elements();
  return viewed;
}

/// Returns whether each output reads exactly the input element at its own position.
bool is_pointwise(const FieldDimension& d) {
  return d.kernel == 1 && d.stride == 1 && d.input_dilation == 1 && d.padding == 0 && d.input == d.output;
}

/// Returns whether joining batch, rows and columns can allow parts that splitting each of them separately cannot.
bool may_flatten(const Product& p) {
  const int longer = (p.batch > 1 ? 1 : 0) + (p.field[0].output > 1 ? 1 : 0) + (p.field[1].output > 1 ? 1 : 0);
  return is_pointwise(p.field[0]) && is_pointwise(p.field[1]) && longer > 1;
}

ViewedProduct flatten(ViewedProduct viewed) {
  Product& p = viewed.product;
  viewed.view.flattened = true;
  p.batch *= p.field[0].output * p.field[1].output;
  p.field = {};
  return viewed;
}

/// Lists the product as given, and with the dimensions of the kernel expanded.
std::vector<ViewedProduct> expansions_of(const ViewedProduct& viewed) {
  const bool rows = viewed.product.field[0].kernel > 1;
  const bool columns = viewed.product.field[1].kernel > 1;
  std::vector<ViewedProduct> views = {viewed};
  if (columns && rows) {
    views.push_back(expand(viewed, {false, true}));
  }
  if (columns || rows) {
    views.push_back(expand(viewed, {rows, columns}));
  }
  return views;
}

bool may_swap(const Product& product) {
  return product.kind == ProductKind::kMatmul || product.pass == ProductPass::kWeightGradient;
}

}  // namespace

std::string to_text(const Splits& s) {
  std::string text;
  const auto add = [&text](std::int64_t parts, std::string_view what) {
    if (parts > 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " x ", what, parts);
    }
  };
  add(s.groups, "groups");
  add(s.inputs, "inputs");
  add(s.kernel, "kernel");
  add(s.batch, "batch");
  add(s.rows, "rows");
  add(s.columns, "columns");
  add(s.outputs, "outputs");
  if (text.empty()) {
    text = "1 tile";
  }
  if (s.serial_inputs > 1) {
    text += fmt::format(", {} steps of inputs", s.serial_inputs);
  }
  if (s.serial_outputs > 1) {
    text += fmt::format(", {} steps of outputs", s.serial_outputs);
  }
  return text;
}

std::string to_text(const View& view) {
  std::string text;
  const auto add = [&text](bool holds, const std::string& what) {
    text += !holds ? "" : (text.empty() ? "" : ", ") + what;
  };
  add(view.swapped, "swap");
  add(view.expanded[0] && view.expanded[1], "expand kernel");
  add(view.expanded[0] && !view.expanded[1], "expand rows");
  add(!view.expanded[0] && view.expanded[1], "expand columns");
  add(view.flattened, "flatten");
  add(view.combined_groups > 1, fmt::format("combine {} groups", view.combined_groups));
  return text.empty() ? "as given" : text;
}

std::vector<ViewedProduct> views_of(const Product& product, std::int64_t block_inputs) {
  const ViewedProduct plain{.view = {}, .product = product};
  std::vector<ViewedProduct> views = expansions_of(plain);
  if (may_swap(product)) {
    for (const ViewedProduct& viewed : expansions_of(swap_operands(plain))) {
      views.push_back(viewed);
    }
  }
  if (may_flatten(product)) {
    views.push_back(flatten(plain));
  }
  const std::size_t uncombined = views.size();
  for (std::int64_t join = 2;
       product.input_channels <= 2 && product.groups % join == 0 && join * product.input_channels <= block_inputs;
       join *= 2) {
    for (std::size_t k = 0; k < uncombined; ++k) {
      views.push_back(combine(views[k], join));
    }
  }
  return views;
}

}  // namespace poprun::planner
