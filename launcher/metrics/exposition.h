#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace poprun::launcher {

/// Prometheus's text format, version 0.0.4:
///
///   # HELP poprun_emu_step Training steps completed.
///   # TYPE poprun_emu_step gauge
///   poprun_emu_step 340
class Exposition {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  struct Label {
    std::string_view name;   ///< A word, as `name` below but without colons.
    std::string_view value;  ///< Any UTF-8.
  };

  /// Begin a metric, whose samples follow. `name`: letters, digits, `_` and `:`, not beginning with
  /// a digit; that of a counter ends in `_total`. `help`: any UTF-8.
  void counter(std::string_view name, std::string_view help) { begin(name, help, "counter"); }
  void gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }

  /// A sample of the metric that was begun last.
  void sample(double value, std::initializer_list<Label> labels = {});

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);

  std::string name_;
  std::string text_;
};

}  // namespace poprun::launcher
