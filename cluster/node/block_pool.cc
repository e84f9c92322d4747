#include "cluster/node/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "cluster/base/mutex.h"

namespace onepiece::node {
namespace {

// The allocator recycles smaller blocks well enough by itself.
constexpr std::size_t kPooledBytes = 64 << 10;
constexpr std::size_t kHugePageBytes = 2 << 20;
constexpr std::align_val_t kSmallAlign{64};

// Rounds up, so that a block also fits messages of nearly the same size. Wastes a quarter at most.
std::size_t Capacity(std::size_t size) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(size) / 4, 4096);
  return (size + step - 1) / step * step;
}

std::align_val_t AlignFor(std::size_t capacity) {
  return capacity >= kHugePageBytes ? std::align_val_t{kHugePageBytes} : std::align_val_t{4096};
}

std::byte* Allocate(std::size_t capacity) {
  auto* data = static_cast<std::byte*>(::operator new(capacity, AlignFor(capacity)));
  // One page fault for 2 MiB instead of 512. This is only a hint: a failure costs only speed.
  if (capacity >= kHugePageBytes) (void)madvise(data, capacity, MADV_HUGEPAGE);
  return data;
}

}  // namespace

void BlockPool::Release(Free block) {
  block.hooked.reset();
  ::operator delete(block.data, AlignFor(block.capacity));
}

BlockPool::~BlockPool() {
  for (Free& block : free_) Release(std::move(block));
}

BlockPool::Block BlockPool::Take(std::size_t size) {
  if (size < kPooledBytes) {
    auto* data =
        static_cast<std::byte*>(::operator new(std::max<std::size_t>(size, 1), kSmallAlign));
    return {
        std::shared_ptr<const void>(data, [](std::byte* p) { ::operator delete(p, kSmallAlign); }),
        {data, size}};
  }
  Free block{nullptr, Capacity(size), nullptr};
  {
    const base::MutexLock lock(mutex_);
    // Takes the newest block that fits, because its pages are the likeliest to be in a cache.
    const auto found = std::find_if(free_.rbegin(), free_.rend(), [&](const Free& free) {
      return free.capacity == block.capacity;
    });
    if (found != free_.rend()) {
      block = std::move(*found);
      kept_bytes_ -= block.capacity;
      free_.erase(std::next(found).base());
    }
  }
  if (block.data == nullptr) {
    block.data = Allocate(block.capacity);
    if (hook_) block.hooked = hook_({block.data, block.capacity});
  }
  std::byte* data = block.data;
  // The deleter must not hold on to `hooked` once the pool has the block back.
  auto give_back = [pool = shared_from_this(), block = std::move(block)](std::byte*) mutable {
    pool->GiveBack(std::move(block));
  };
  return {std::shared_ptr<const void>(data, std::move(give_back)), {data, size}};
}

void BlockPool::GiveBack(Free block) {
  std::vector<Free> surplus;
  {
    const base::MutexLock lock(mutex_);
    kept_bytes_ += block.capacity;
    free_.push_back(std::move(block));
    while (kept_bytes_ > keep_bytes_) {
      kept_bytes_ -= free_.front().capacity;
      surplus.push_back(std::move(free_.front()));
      free_.erase(free_.begin());
    }
  }
  for (Free& old : surplus) Release(std::move(old));
}

std::uint64_t BlockPool::kept_bytes() const {
  const base::MutexLock lock(mutex_);
  return kept_bytes_;
}

}  // namespace onepiece::node
