#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// A SHA-256 digest of bytes as they come.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void add(std::string_view bytes);
  /// 64 hexadecimal digits. Once.
  std::string digest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_of(std::string_view bytes);

/// Errors: kData, the file at `path` cannot be read; says why.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace poprun
