#include "replica/ops/face/random_name.h"

#include "replica/base/random.h"

namespace poprun {

RandomName::RandomName(const Attribute& attribute) {
  if (const auto* salt = std::get_if<std::int64_t>(&attribute)) {
    salt_ = static_cast<std::size_t>(*salt);
  } else {
    name_ = std::get<std::string>(attribute);
  }
}

const std::string& RandomName::at(const Moment& now) const {
  POPRUN_CHECK(!salt_ || *salt_ < now.salts.size());
  return salt_ ? now.salts[*salt_] : name_;
}

std::uint64_t key_of(const Moment& now, const std::string& name) {
  const auto words = philox(random_key(now.seed, name), now.step,
                            (std::uint64_t{now.replica} << 32U) | std::uint64_t{now.micro_batch});
  return (std::uint64_t{words[1]} << 32U) | words[0];
}

bool keys_random_numbers(const std::string& attribute) {
  return attribute == "key" || attribute == "stochastic";
}

}  // namespace poprun
