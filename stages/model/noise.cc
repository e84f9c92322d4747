#include "stages/model/noise.h"

#include <ATen/CPUGeneratorImpl.h>

namespace onepiece::model {

at::Generator MakeGenerator(std::int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
}

at::Tensor InitialLatents(const at::Generator& generator, at::IntArrayRef shape) {
  // The CPU draws the noise for every device. A GPU's generator draws other numbers from the same
  // seed.
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace onepiece::model
