#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// Einsum: sums of products over named dimensions, as in NumPy. Operands are multiplied from left to right, each pair
/// as one batched matrix product. Sums, transpositions and reshapes prepare the dimensions. A letter that occurs
/// twice in one operand denotes a diagonal.
namespace poprun::onnx_import::nodes::einsum {
namespace {

/// A tensor whose dimensions have these names, one character each.
struct Named {
  TensorId tensor{};
  std::string names;
};

bool has(const std::string& names, char name) {
  return names.find(name) != std::string::npos;
}

template <typename Wanted>
std::string only(const std::string& names, Wanted wanted) {
  std::string kept;
  std::ranges::copy_if(names, std::back_inserter(kept), wanted);
  return kept;
}

/// Replaces "..." by digits that count from the right, so that a digit means the same dimension in every operand.
std::string without_ellipsis(std::string term, std::size_t rank) {
  std::erase(term, ' ');
  const std::size_t at = term.find("...");
  if (at == std::string::npos) {
    return term;
  }
  std::string digits;
  for (std::size_t d = rank + 3 - std::min(rank + 3, term.size()); d-- > 0;) {
    digits += static_cast<char>('0' + d);
  }
  return term.replace(at, 3, digits);
}

/// The names of the dimensions of each operand and of the result.
struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

/// Returns the result that NumPy implies if "->" is missing: the dimensions of "...", then the letters that occur once.
std::string implied_result(const std::vector<std::string>& terms) {
  std::map<char, int> uses;
  std::string digits;
  for (const std::string& term : terms) {
    for (const char name : term) {
      ++uses[name];
    }
    const std::string own = only(term, [](char c) { return c >= '0' && c <= '9'; });
    digits = own.size() > digits.size() ? own : digits;
  }
  for (const auto& [name, count] : uses) {
    if (count == 1 && !has(digits, name)) {
      digits += name;
    }
  }
  return digits;
}

Result<Equation> parse(Node& node) {
  std::string text = node.text("equation", "");
  const std::size_t arrow = text.find("->");
  Equation equation;
  std::size_t begin = 0;
  std::size_t dots = 0;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    const std::size_t end = std::min({text.find(',', begin), arrow, text.size()});
    const std::string term = text.substr(begin, end - begin);
    equation.terms.push_back(without_ellipsis(term, node.shape(i).size()));
    if (equation.terms.back().size() != node.shape(i).size()) {
      return node.wrong(fmt::format("equation '{}': '{}' does not fit an operand of {} dimensions", text, term,
                                    node.shape(i).size()));
    }
    dots = std::max<std::size_t>(
        dots, static_cast<std::size_t>(std::ranges::count_if(equation.terms.back(), [](char c) { return c < 'A'; })));
    begin = std::min(end + 1, text.size());
  }
  equation.result = implied_result(equation.terms);
  if (arrow != std::string::npos) {
    const std::string result = text.substr(arrow + 2);
    const auto letters = std::ranges::count_if(result, [](char c) { return c >= 'A'; });
    equation.result = without_ellipsis(result, static_cast<std::size_t>(letters) + dots);
  }
  return equation;
}

/// Refuses letters that stand for two different sizes, and names in the result that no operand has.
Status check(Node& node, const Equation& equation) {
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < equation.terms.size(); ++i) {
    const std::string& term = equation.terms[i];
    for (std::size_t d = 0; d < term.size(); ++d) {
      const std::int64_t size = node.shape(i)[d];
      if (sizes.emplace(term[d], size).first->second != size) {
        return node.unsupported(
            fmt::format("different sizes, {} and {}, for the letter '{}'", sizes.at(term[d]), size, term[d]));
      }
    }
  }
  if (std::ranges::any_of(equation.result, [&](char name) { return !sizes.contains(name); })) {
    return node.wrong("the result contains a letter that no operand contains");
  }
  return {};
}

/// Takes the diagonal of each pair of dimensions with the same name: every (n + 1)th of their n^2 elements.
Result<Named> diagonal(Node& node, Named x) {
  for (std::size_t d = 0; d < x.names.size(); ++d) {
    const std::size_t twin = x.names.find(x.names[d], d + 1);
    if (twin == std::string::npos) {
      continue;
    }
    std::vector<std::int64_t> perm;
    std::string names;
    Shape shape;
    for (std::size_t k = 0; k < x.names.size(); ++k) {
      if (k != d && k != twin) {
        perm.push_back(static_cast<std::int64_t>(k));
        names += x.names[k];
        shape.push_back(node.type(x.tensor).shape[k]);
      }
    }
    const std::int64_t n = node.type(x.tensor).shape[d];
    perm.insert(perm.end(), {static_cast<std::int64_t>(d), static_cast<std::int64_t>(twin)});
    shape.push_back(n * n);
    POPRUN_ASSIGN(x.tensor, node.transpose(x.tensor, perm));
    POPRUN_ASSIGN(x.tensor, node.reshape(x.tensor, shape));
    POPRUN_ASSIGN(x.tensor, node.slice(x.tensor, static_cast<std::int64_t>(shape.size()) - 1, 0, n, n + 1));
    x.names = names + x.names[d];
    d = static_cast<std::size_t>(-1);  // The dimensions have moved.
  }
  return x;
}

/// Sums x over the names that are not in `kept`.
Result<Named> summed(Node& node, Named x, const std::string& kept) {
  Shape axes;
  for (std::size_t d = 0; d < x.names.size(); ++d) {
    if (!has(kept, x.names[d])) {
      axes.push_back(static_cast<std::int64_t>(d));
    }
  }
  if (!axes.empty()) {
    x.tensor = layers::reduce(node.builder(), node.free_name(), layers::Reduction::kSum, x.tensor, axes, false);
    POPRUN_TRY(node.builder().status());
    std::erase_if(x.names, [&](char name) { return !has(kept, name); });
  }
  return x;
}

Result<TensorId> arranged(Node& node, const Named& x, const std::string& names) {
  std::vector<std::int64_t> perm;
  for (const char name : names) {
    perm.push_back(static_cast<std::int64_t>(x.names.find(name)));
  }
  return node.transpose(x.tensor, perm);
}

/// Reshapes x to [batch,rows,columns]. Each of the three is the product of the dimensions that its argument names.
Result<TensorId> matrices(Node& node, const Named& x, const std::string& batch, const std::string& rows,
                          const std::string& columns) {
  const Shape shape = node.type(x.tensor).shape;
  const auto size_of = [&](const std::string& names) {
    std::int64_t size = 1;
    for (const char name : names) {
      size *= shape[x.names.find(name)];
    }
    return size;
  };
  POPRUN_ASSIGN(const TensorId y, arranged(node, x, batch + rows + columns));
  return node.reshape(y, {size_of(batch), size_of(rows), size_of(columns)});
}

/// Multiplies a and b and sums over their common names that are not in `kept`.
Result<Named> product(Node& node, const Named& a, const Named& b, const std::string& kept) {
  const auto shared = [&](char name) { return has(a.names, name) && has(b.names, name); };
  const auto stays = [&](char name) { return has(kept, name); };
  const std::string batch = only(a.names, [&](char n) { return shared(n) && stays(n); });
  const std::string sum = only(a.names, [&](char n) { return shared(n) && !stays(n); });
  const std::string rows = only(a.names, [&](char n) { return !shared(n); });
  const std::string columns = only(b.names, [&](char n) { return !shared(n); });
  Named y{.tensor = {}, .names = batch + rows + columns};
  Shape shape;
  for (const char name : y.names) {
    const Named& owner = has(a.names, name) ? a : b;
    shape.push_back(node.type(owner.tensor).shape[owner.names.find(name)]);
  }
  POPRUN_ASSIGN(const TensorId left, matrices(node, a, batch, rows, sum));
  POPRUN_ASSIGN(const TensorId right, matrices(node, b, batch, columns, sum));
  POPRUN_ASSIGN(y.tensor, node.add("matmul", {left, right}, {{"transpose_b", std::int64_t{1}}}));
  POPRUN_ASSIGN(y.tensor, node.reshape(y.tensor, shape));
  return y;
}

Status einsum(Node& node) {
  POPRUN_ASSIGN(const Equation equation, parse(node));
  POPRUN_TRY(check(node, equation));
  POPRUN_ASSIGN(const TensorId first, node.row_major(0));
  POPRUN_ASSIGN(Named y, diagonal(node, {first, equation.terms[0]}));
  for (std::size_t i = 1; i < node.inputs(); ++i) {
    std::string kept = equation.result;
    for (std::size_t later = i + 1; later < node.inputs(); ++later) {
      kept += equation.terms[later];
    }
    POPRUN_ASSIGN(const TensorId next, node.row_major(i));
    POPRUN_ASSIGN(Named x, diagonal(node, {next, equation.terms[i]}));
    POPRUN_ASSIGN(x, summed(node, x, kept + y.names));
    POPRUN_ASSIGN(y, summed(node, y, kept + x.names));
    POPRUN_ASSIGN(y, product(node, y, x, kept));
  }
  POPRUN_ASSIGN(y, summed(node, y, equation.result));
  return node.set_result(arranged(node, y, equation.result));
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Einsum", 1, einsum}};
}

}  // namespace poprun::onnx_import::nodes::einsum
