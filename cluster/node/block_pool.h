// Heap blocks for received messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::node {

/// Is called once for every fresh block that will be recycled, before its first use. The pool drops
/// the returned object before it frees the block. Thread-safe. It may outlive the pool's maker.
using BlockHook = std::function<std::shared_ptr<const void>(std::span<std::byte>)>;

/// Recycles large blocks, because fresh memory costs a page fault every 4 KiB. For a message of
/// many megabytes that takes longer than copying it.
///
/// Ownership: Blocks keep the pool alive. The pool keeps at most `keep_bytes` of unused blocks.
///
/// Threading: Thread-safe.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  explicit BlockPool(std::uint64_t keep_bytes, BlockHook hook = nullptr)
      : keep_bytes_(keep_bytes), hook_(std::move(hook)) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// `size` bytes of memory with any content, 64-byte aligned. They go back to the pool when the
  /// last owner drops them.
  struct Block {
    std::shared_ptr<const void> owner;
    std::span<std::byte> bytes;
  };
  Block Take(std::size_t size);
  [[nodiscard]] std::uint64_t kept_bytes() const;

 private:
  struct Free {
    std::byte* data;
    std::size_t capacity;
    std::shared_ptr<const void> hooked;  // The object that hook_ returned.
  };
  static void Release(Free block);
  void GiveBack(Free block);

  const std::uint64_t keep_bytes_;
  const BlockHook hook_;
  mutable base::Mutex mutex_;
  std::vector<Free> free_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
  std::uint64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::node
