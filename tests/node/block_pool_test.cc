#include "cluster/node/block_pool.h"

#include <QtTest>
#include <cstdint>
#include <set>

#include "tests/test_main.h"

namespace onepiece::node {

class BlockPoolTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Take_AlignsBlocksOfEverySize() {
    const auto pool = std::make_shared<BlockPool>(1 << 20);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, std::size_t{5'000'001}}) {
      const BlockPool::Block block = pool->Take(size);
      QCOMPARE(block.bytes.size(), size);
      QCOMPARE(reinterpret_cast<std::uintptr_t>(block.bytes.data()) % 64, std::uintptr_t{0});
    }
  }

  void Take_ReusesALargeBlockOfNearlyTheSameSize() {
    const auto pool = std::make_shared<BlockPool>(64 << 20);
    const std::byte* first = pool->Take(4'200'000).bytes.data();
    QVERIFY(pool->kept_bytes() >= 4'200'000);
    QVERIFY(pool->Take(4'200'100).bytes.data() == first);
  }

  void Take_NeverGivesABlockTwice() {
    const auto pool = std::make_shared<BlockPool>(64 << 20);
    const BlockPool::Block a = pool->Take(1 << 20);
    const BlockPool::Block b = pool->Take(1 << 20);
    QVERIFY(a.bytes.data() != b.bytes.data());
    QCOMPARE(pool->kept_bytes(), std::uint64_t{0});
  }

  void GiveBack_KeepsNoMoreThanItsBound() {
    const auto pool = std::make_shared<BlockPool>(3 << 20);
    {
      std::vector<BlockPool::Block> blocks;
      for (int i = 0; i < 8; ++i) blocks.push_back(pool->Take(1 << 20));
    }
    QCOMPARE(pool->kept_bytes(), std::uint64_t{3 << 20});
  }

  void Hook_IsCalledOnceForABlockAndUndoneBeforeItGoes() {
    int calls = 0;
    std::set<const std::byte*> held;
    const BlockHook hook = [&](std::span<std::byte> block) {
      ++calls;
      block.back() = std::byte{7};
      held.insert(block.data());
      return std::shared_ptr<const void>(block.data(), [&held, block](const void*) {
        // Still there: the address sanitizer would object.
        if (block.back() == std::byte{7}) held.erase(block.data());
      });
    };
    auto pool = std::make_shared<BlockPool>(1 << 20, hook);
    pool->Take(1 << 20);
    pool->Take(1 << 20);
    QCOMPARE(calls, 1);
    QCOMPARE(held.size(), std::size_t{1});
    {
      const BlockPool::Block a = pool->Take(1 << 20);
      const BlockPool::Block b = pool->Take(1 << 20);
      QCOMPARE(held.size(), std::size_t{2});
    }
    QCOMPARE(calls, 2);
    QCOMPARE(held.size(), std::size_t{1});  // More than it keeps.
    pool.reset();
    QVERIFY(held.empty());
  }

  void Hook_KnowsNothingOfSmallBlocks() {
    int calls = 0;
    const auto pool = std::make_shared<BlockPool>(1 << 20, [&](std::span<std::byte>) {
      ++calls;
      return nullptr;
    });
    pool->Take(1000);
    QCOMPARE(calls, 0);
    QCOMPARE(pool->Take(1 << 20).bytes.size(), std::size_t{1 << 20});
    QCOMPARE(calls, 1);
  }

  void Block_OutlivesItsPool() {
    auto pool = std::make_shared<BlockPool>(64 << 20);
    BlockPool::Block block = pool->Take(1 << 20);
    pool.reset();
    block.bytes.back() = std::byte{42};
    QCOMPARE(block.bytes.back(), std::byte{42});
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::BlockPoolTest)
#include "block_pool_test.moc"
