#include "stages/model/noise.h"

#include <ATen/CPUGeneratorImpl.h>

namespace onepiece::model {

at::Generator MakeGenerator(std::int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
}

at::Tensor InitialLatents(const at::Generator& generator, at::IntArrayRef shape) {
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace onepiece::model
