#include <memory>

#include "cluster/base/sha256.h"
#include "cluster/message/artifact.h"
#include "tests/bench/database/store.h"

namespace onepiece::bench {

Value MakeValue(std::size_t bytes) {
  const std::shared_ptr<std::byte[]> memory = message::AllocateAligned(bytes);
  // The bytes do not compress, like those of a video.
  std::uint64_t state = bytes;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    memory[i] = static_cast<std::byte>(state >> 56);
  }
  const std::span<const std::byte> view(memory.get(), bytes);
  return {memory, view, base::Sha256Digest(view)};
}

}  // namespace onepiece::bench
