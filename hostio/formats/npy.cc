#include "hostio/formats/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/formats/printable.h"
#include "replica/base/half.h"

namespace poprun::hostio {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kRankMax = 32;  // NumPy's own limit.

/// Returns the integer in `bytes`, which has at most 8 bytes.
std::uint64_t integer_of(std::span<const std::byte> bytes, bool big_endian) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes[big_endian ? i : bytes.size() - 1 - i]);
  }
  return value;
}

/// Reads the Python literal of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)} with its keys in any
/// order. After a failure, every member function returns a placeholder, and ok() is false.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool ok() const { return ok_; }

  bool skip(char c) {
    skip_space();
    if (!rest_.starts_with(c)) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) { ok_ = skip(c) && ok_; }

  std::string_view string() {
    skip_space();
    const char quote = rest_.empty() ? '\'' : rest_.front();
    if (quote != '\'' && quote != '"') {
      ok_ = false;
      return {};
    }
    const std::size_t end = rest_.find(quote, 1);
    ok_ = ok_ && end != std::string_view::npos;
    if (!ok_) {
      return {};
    }
    const std::string_view value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return value;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    }
    ok_ = false;
    return false;
  }

  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (ok_ && !skip(')')) {
      values.push_back(integer());
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }

  std::uint64_t integer() {
    skip_space();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    ok_ = ok_ && error == std::errc{};
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    skip('L');  // Python 2 wrote long integers with this suffix.
    return value;
  }

  std::string_view rest_;
  bool ok_ = true;
};

tl::unexpected<Error> damaged(std::string_view name) {
  return fail(
      ErrorCode::kData,
      fmt::format("{}: expected a NumPy array file (.npy, versions 1 to 3), found something else or a truncated file",
                  name));
}

/// The text of the header and the offset of its end.
struct HeaderText {
  std::string_view text;
  std::uint64_t end = 0;
};

Result<HeaderText> header_text(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const unsigned version = bytes.size() > 7 ? std::to_integer<unsigned>(bytes[6]) : 0;
  const std::size_t begin = version == 1 ? 10 : 12;
  if (!text.starts_with(kMagic) || version < 1 || version > 3 || bytes.size() < begin) {
    return damaged(name);
  }
  const std::uint64_t size = integer_of(bytes.subspan(8, begin - 8), false);
  if (size > bytes.size() - begin) {
    return damaged(name);
  }
  return HeaderText{.text = text.substr(begin, size), .end = begin + size};
}

/// Parses an element type, such as '<f4'.
Status take_type(std::string_view type, NpyHeader& header, std::string_view name) {
  constexpr std::string_view kTypes = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8";
  const std::string_view rest = type.substr(std::min<std::size_t>(1, type.size()));
  const bool order = type.starts_with('<') || type.starts_with('>') || type.starts_with('|');
  if (!order || rest.size() != 2 || kTypes.find(rest) == std::string_view::npos ||
      rest.find(' ') != std::string_view::npos) {
    return fail(ErrorCode::kData, fmt::format("{}: elements must be bool, integers, float16, float32 or float64, but "
                                              "they are \"{}\"; convert them with astype()",
                                              name, printable(type)));
  }
  header.big_endian = type.front() == '>';
  header.kind = rest[0];
  header.width = static_cast<unsigned>(rest[1] - '0');
  return {};
}

Status count_elements(NpyHeader& header, std::string_view name) {
  std::uint64_t bytes = header.width;
  for (const std::uint64_t dim : header.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return fail(ErrorCode::kData, fmt::format("{}: an array of shape [{}] is too large for any file", name,
                                                fmt::join(header.shape, ", ")));
    }
  }
  header.elements = bytes / header.width;
  return {};
}

/// Returns the element at `at` as a double. Integers beyond 2^53 are rounded, but no target type can represent them
/// anyway.
double number(const NpyHeader& header, const std::byte* at) {
  const std::uint64_t bits = integer_of({at, header.width}, header.big_endian);
  if (header.kind == 'f') {
    return header.width == 2   ? static_cast<double>(to_float(static_cast<Half>(bits)))
           : header.width == 4 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                               : std::bit_cast<double>(bits);
  }
  if (header.kind == 'i') {
    const unsigned unused = 64 - 8 * header.width;
    return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
  }
  return static_cast<double>(bits);
}

/// The sizes of the result's dimensions, and the strides of these dimensions in the file, in elements.
struct Walk {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;

  Walk(const NpyHeader& header, bool channels_last) : sizes(header.shape), strides(header.shape.size()) {
    std::uint64_t stride = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t d = header.fortran_order ? i : sizes.size() - 1 - i;
      strides[d] = stride;
      stride *= sizes[d];
    }
    if (channels_last) {
      POPRUN_CHECK(sizes.size() == 4);
      std::rotate(sizes.begin() + 1, sizes.begin() + 3, sizes.end());
      std::rotate(strides.begin() + 1, strides.begin() + 3, strides.end());
    }
  }

  /// Calls visit(index in the result, index in the file) for each element, in the result's order.
  template <typename Visit>
  void each(std::uint64_t elements, const Visit& visit) const {
    std::vector<std::uint64_t> index(sizes.size(), 0);
    std::uint64_t from = 0;
    for (std::uint64_t to = 0; to < elements; ++to) {
      visit(to, from);
      for (std::size_t d = sizes.size(); d > 0; --d) {
        from += strides[d - 1];
        if (++index[d - 1] < sizes[d - 1]) {
          break;
        }
        from -= strides[d - 1] * sizes[d - 1];
        index[d - 1] = 0;
      }
    }
  }
};

/// Returns whether the elements need no conversion.
bool is_target(const NpyHeader& header, const NpyTarget& target) {
  const bool same_type = target.element == NpyTarget::Element::kU8    ? header.width == 1
                         : target.element == NpyTarget::Element::kI32 ? header.kind == 'i' && header.width == 4
                         : target.element == NpyTarget::Element::kF64 ? header.kind == 'f' && header.width == 8
                                                                      : header.kind == 'f' && header.width == 4;
  return same_type && (!header.big_endian || header.width == 1) && (!header.fortran_order || header.shape.size() < 2) &&
         !target.channels_last;
}

void put(std::vector<std::byte>& elements, std::uint64_t at, auto value) {
  std::memcpy(elements.data() + at * sizeof(value), &value, sizeof(value));
}

/// Returns whether the element type can hold the value. Float types can hold NaN and the infinities.
bool representable(double value, NpyTarget::Element element) {
  if (element == NpyTarget::Element::kI32) {
    return value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
  }
  return element == NpyTarget::Element::kF64 || !std::isfinite(value) ||
         std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::span<const std::byte> bytes, std::string_view name) {
  POPRUN_ASSIGN(const HeaderText header_bytes, header_text(bytes, name));
  NpyHeader header;
  header.data_begin = header_bytes.end;
  std::string_view type;
  unsigned known = 0;
  Literal literal(header_bytes.text);
  literal.expect('{');
  while (literal.ok() && !literal.skip('}')) {
    const std::string_view key = literal.string();
    literal.expect(':');
    if (key == "descr" && literal.skip('[')) {
      return fail(
          ErrorCode::kData,
          fmt::format("{}: expected an array of numbers, found records; save each field as a separate array", name));
    }
    if (key == "descr") {
      type = literal.string();
    } else if (key == "fortran_order") {
      header.fortran_order = literal.boolean();
    } else if (key == "shape") {
      header.shape = literal.tuple();
    } else {
      return damaged(name);
    }
    ++known;
    if (!literal.skip(',')) {
      literal.expect('}');
      break;
    }
  }
  if (!literal.ok() || known != 3 || header.shape.size() > kRankMax) {
    return damaged(name);
  }
  POPRUN_TRY(take_type(type, header, name));
  POPRUN_TRY(count_elements(header, name));
  return header;
}

std::string dtype_of(const NpyHeader& header) {
  if (header.kind == 'b') {
    return "bool";
  }
  return fmt::format("{}{}", header.kind == 'f' ? "float" : header.kind == 'i' ? "int" : "uint", 8 * header.width);
}

Status check_npy_size(const NpyHeader& header, std::uint64_t bytes, std::string_view name) {
  if (bytes == header.bytes()) {
    return {};
  }
  return fail(ErrorCode::kData, fmt::format("{}: expected {} bytes for {} [{}], found {}; write the file again", name,
                                            header.bytes(), dtype_of(header), fmt::join(header.shape, ", "), bytes));
}

Result<std::vector<std::byte>> npy_elements(const NpyHeader& header, std::vector<std::byte> data,
                                            const NpyTarget& target, std::string_view name, const FileScope& scope) {
  using Element = NpyTarget::Element;
  constexpr std::uint64_t kBetweenWords = 1 << 20;  // Converting this many elements takes about 10 ms.
  POPRUN_TRY(check_npy_size(header, data.size(), name));
  POPRUN_CHECK(target.element != Element::kU8 || header.width == 1);
  if (is_target(header, target)) {
    return data;
  }
  const std::uint64_t width = target.element == Element::kU8 ? 1 : target.element == Element::kF64 ? 8 : 4;
  std::vector<std::byte> result;
  POPRUN_TRY(scope.resize(result, header.elements * width, name));
  std::uint64_t bad = header.elements;
  const Walk walk(header, target.channels_last);
  walk.each(header.elements, [&](std::uint64_t to, std::uint64_t from) {
    if (to % kBetweenWords == kBetweenWords - 1) {
      scope.advance(kBetweenWords * width);
    }
    if (target.element == Element::kU8) {
      result[to] = data[from];
      return;
    }
    const double value = number(header, data.data() + from * header.width);
    if (!representable(value, target.element)) {
      bad = std::min(bad, to);
    } else if (target.element == Element::kF64) {
      put(result, to, value);
    } else if (target.element == Element::kF32) {
      put(result, to, static_cast<float>(value));
    } else {
      put(result, to, static_cast<std::int32_t>(value));
    }
  });
  if (bad != header.elements) {
    return fail(ErrorCode::kData,
                fmt::format("{}: item {}: a number does not fit in {}", name,
                            header.first_item + bad / (header.elements / header.shape[0]),
                            target.element == Element::kI32 ? "32 bits" : "float32"));
  }
  return result;
}

}  // namespace poprun::hostio
