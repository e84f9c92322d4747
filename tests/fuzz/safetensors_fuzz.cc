// Gives any bytes to ParseSafetensors. In a file that it accepts, the tensors must lie inside the
// file and fill the data without gap or overlap.
#include <cstdint>

#include "cluster/base/check.h"
#include "stages/tensor/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::tensor;
  const auto index = ParseSafetensors(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!index.ok()) return 0;
  ONEPIECE_CHECK(index->data_offset <= size);
  std::uint64_t end = 0;
  for (const TensorEntry& entry : index->tensors) {
    std::uint64_t bytes = static_cast<std::uint64_t>(ElementTypeBytes(entry.type));
    for (const std::int64_t extent : entry.shape) bytes *= static_cast<std::uint64_t>(extent);
    ONEPIECE_CHECK(entry.bytes == bytes && entry.offset == end);
    ONEPIECE_CHECK(index->Find(entry.name) == &entry);
    end += entry.bytes;
  }
  ONEPIECE_CHECK(end == size - index->data_offset);
  return 0;
}
