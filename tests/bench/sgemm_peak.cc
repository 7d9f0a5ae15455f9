/// usage: sgemm_peak SECONDS
///
/// Prints the GFLOP/s of oneDNN's sgemm on one thread: products of 1024 x 1024 matrices, the best round of a tenth of a
/// second. Checks the result first.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <dnnl.h>

namespace {

constexpr dnnl_dim_t kSize = 1024;

class Product {
 public:
  Product() : a_(kSize * kSize, 0.5F), b_(kSize * kSize, 0.25F), c_(kSize * kSize) {}

  void run() {
    dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0F, a_.data(), kSize, b_.data(), kSize, 0.0F, c_.data(), kSize);
  }
  [[nodiscard]] bool is_right() const {
    return std::ranges::all_of(c_, [](float c) { return c == kSize * 0.125F; });
  }

 private:
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
};

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const double seconds = argc == 2 ? std::strtod(argv[1], nullptr) : 0;
  if (!(seconds > 0)) {
    std::fputs("usage: sgemm_peak SECONDS\n", stderr);
    return 64;
  }
  Product product;
  product.run();
  if (!product.is_right()) {
    std::fputs("sgemm_peak: a wrong product\n", stderr);
    return 70;
  }
  double best = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    int runs = 0;
    double taken = 0;
    for (; taken < 0.1; ++runs) {
      product.run();
      taken = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    best = std::max(best, 2e-9 * runs * kSize * kSize * kSize / taken);
  }
  std::printf("%.1f\n", best);
  return 0;
}
