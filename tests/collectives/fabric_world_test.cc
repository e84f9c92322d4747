// What a world of the fabric promises beyond the conformance suite: the order of reductions, what
// is left over from earlier groups, and that groups cost no message.
#include "stages/collectives/fabric_world.h"

#include <QtTest>
#include <cmath>
#include <cstring>
#include <latch>

#include "tests/collectives/operations.h"
#include "tests/collectives/tripped_fabric.h"
#include "tests/collectives/worlds.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

Memory Floats(std::uint64_t seed, int rank, std::size_t count) {
  Memory memory(count * sizeof(float));
  base::SplitMix64 random(seed * 64 + static_cast<unsigned>(rank));
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<float>(static_cast<double>(random.Next()) * 0x1p-60 - 3);
    std::memcpy(memory.data() + i * sizeof number, &number, sizeof number);
  }
  return memory;
}

/// ((x0 + x1) + x2) + …, in F32.
Memory SumInOrder(std::uint64_t seed, int ranks, std::size_t count) {
  Memory sum = Floats(seed, 0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const Memory more = Floats(seed, rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      float a = 0;
      float b = 0;
      std::memcpy(&a, sum.data() + i * sizeof a, sizeof a);
      std::memcpy(&b, more.data() + i * sizeof b, sizeof b);
      a += b;
      std::memcpy(sum.data() + i * sizeof a, &a, sizeof a);
    }
  }
  return sum;
}

}  // namespace

class FabricWorldTest : public QObject {
  Q_OBJECT

  std::unique_ptr<FabricWorlds> worlds_;

  void OpenAll(std::uint32_t count, std::uint64_t slot_bytes = 64, std::uint64_t slots = 2) {
    worlds_.reset();
    worlds_ = std::make_unique<FabricWorlds>(FabricWorlds::ShmUri(), count, slot_bytes, slots);
    QVERIFY2(worlds_->trouble().empty(), worlds_->trouble().c_str());
  }
  std::unique_ptr<sdk::Group> Make(std::uint32_t worker, std::uint64_t epoch,
                                   std::vector<std::uint32_t> members) {
    auto group = worlds_->at(worker).MakeGroup({"job", epoch, std::move(members), {}});
    return group.ok() ? *std::move(group) : nullptr;
  }
  void EveryoneGoesOn(std::uint64_t epoch, std::vector<std::uint32_t> members) {
    Complaints complaints;
    InThreads(static_cast<std::uint32_t>(members.size()), [&](std::uint32_t i) {
      const auto group = Make(members[i], epoch, members);
      if (group == nullptr) return complaints.Add("no group");
      for (const Operation operation : kOperations) {
        const auto status = Try(*group, operation, epoch, 3000, Soon());
        if (!status.ok()) complaints.Add(status.ToString());
      }
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

 private Q_SLOTS:
  void cleanup() { worlds_.reset(); }

  // F32 additions in another order give other bits. One size is reduced directly, one in two
  // phases.
  void Reductions_TakeTheRanksInOrder_data() {
    QTest::addColumn<int>("count");
    QTest::newRow("small") << 301;
    QTest::newRow("large") << 100'003;
  }
  void Reductions_TakeTheRanksInOrder() {
    QFETCH(int, count);
    const auto floats = static_cast<std::size_t>(count);
    OpenAll(5, 4096, 2);
    const Memory wanted = SumInOrder(11, 5, floats);
    Complaints complaints;
    InThreads(5, [&](std::uint32_t i) {
      const auto group = Make(i, 1, {4, 2, 0, 1, 3});
      Memory data = Floats(11, group->rank(), floats);
      const auto status =
          group->AllReduce(data, sdk::ElementType::kF32, sdk::Reduction::kSum, Soon());
      if (!status.ok()) return complaints.Add(status.ToString());
      if (data != wanted) complaints.Add("other bits");
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  // The chunks that a rank sent before its group ended stay in the slots of the others.
  void WhatIsLeftOver_IsSkippedInALaterEpoch() {
    OpenAll(3);
    for (std::uint64_t epoch = 1; epoch <= 5; epoch += 2) {
      Complaints complaints;
      InThreads(2, [&](std::uint32_t i) {
        const auto group = Make(i, epoch, {0, 1, 2});
        const auto status =
            Try(*group, Operation::kAllGather, epoch, 3000, After(std::chrono::milliseconds(100)));
        if (Reason(status) != "RANK_SILENT") complaints.Add(status.ToString());
        if (sdk::FailedRank(status) != 2) complaints.Add(status.ToString());
      });
      QVERIFY2(complaints.text().empty(), complaints.text().c_str());
      EveryoneGoesOn(epoch + 1, {2, 0, 1});
    }
  }

  void RankInALaterEpoch_EndsTheGroup() {
    OpenAll(3);
    const auto earlier = Make(0, 1, {0, 1, 2});
    Complaints complaints;
    InThreads(3, [&](std::uint32_t i) {
      if (i == 0) {
        const auto status = earlier->Barrier(Soon());
        if (Reason(status) != "GROUP_ENDED" || sdk::FailedRank(status) < 1) {
          complaints.Add(status.ToString());
        }
      }
      const auto status = Make(i, 2, {0, 1, 2})->Barrier(Soon());
      if (!status.ok()) complaints.Add(status.ToString());
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void GroupOfAnEarlierEpoch_HasEnded() {
    OpenAll(2);
    const auto group = Make(0, 1, {0, 1});
    QVERIFY(Make(0, 2, {0}) != nullptr);
    QCOMPARE(Reason(group->Barrier(Soon())), std::string("GROUP_ENDED"));
    QCOMPARE(sdk::FailedRank(group->Barrier(Soon())), 0);
  }

  // What one rank finds out, the others hear, long before their deadlines.
  void EndOfAGroup_IsToldToAll() {
    OpenAll(4);
    Complaints complaints;
    QElapsedTimer timer;
    timer.start();
    InThreads(3, [&](std::uint32_t i) {
      const auto group = Make(i, 1, {0, 1, 2, 3});
      const auto deadline = i == 1 ? After(std::chrono::milliseconds(100)) : Soon();
      const auto status = Try(*group, Operation::kAllGather, 1, 3000, deadline);
      if (Reason(status) != "RANK_SILENT" || sdk::FailedRank(status) != 3) {
        complaints.Add(status.ToString());
      }
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
    QVERIFY(timer.elapsed() < 15'000 * base::TimeScale());
    EveryoneGoesOn(2, {0, 1, 2});
  }

  // Rank 0 waits for both others: for rank 1, which itself waits for rank 2, and for rank 2, which
  // has stopped between its message to rank 0 and that to rank 1.
  void OneThatWaitsItself_IsNotBlamed() {
    auto inner = *fabric::Fabric::Open(FabricWorlds::ShmUri());
    std::latch answered(2);
    int payloads = -1;
    TrippedFabric stops(*inner, [&](const fabric::Op& op) {
      const bool payload = payloads >= 0 && op.kind == fabric::Op::Kind::kWrite;
      if (payload && payloads++ == 1) answered.wait();
    });
    LocalMeeting meeting(3);
    Complaints complaints;
    InThreads(3, [&](std::uint32_t i) {
      fabric::Fabric& fabric = i == 2 ? static_cast<fabric::Fabric&>(stops) : *inner;
      const auto world =
          *FabricWorld::Open(fabric, *meeting.Join(i),
                             {.index = i, .workers = 3, .slot_bytes = 64, .slots = 2}, Soon());
      const auto group = *world->MakeGroup(GroupOfAll(3, 1));
      (void)group->Barrier(Soon());
      if (i == 2) payloads = 0;
      Memory data(192);  // A part is a chunk, and this is too much for the direct way.
      const auto deadline = i == 0 ? After(std::chrono::milliseconds(200)) : Soon();
      const auto status =
          group->AllReduce(data, sdk::ElementType::kF32, sdk::Reduction::kSum, deadline);
      if (i == 2) return;
      if (Reason(status) != "RANK_SILENT" || sdk::FailedRank(status) != 2) {
        complaints.Add(status.ToString());
      }
      answered.count_down();
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void RankThatComesTooLate_HearsThatItsGroupHasEnded() {
    OpenAll(2);
    const auto late = Make(1, 1, {0, 1});
    const auto early = Make(0, 1, {0, 1});
    const auto status = early->Barrier(After(std::chrono::milliseconds(50)));
    QCOMPARE(Reason(status), std::string("RANK_SILENT"));
    const auto told = late->Barrier(Soon());
    QCOMPARE(Reason(told), std::string("GROUP_ENDED"));
    QCOMPARE(sdk::FailedRank(told), 0);
  }

  void MembersWithOtherDescriptors_Differ() {
    OpenAll(2);
    Complaints complaints;
    InThreads(2, [&](std::uint32_t i) {
      auto group = worlds_->at(i).MakeGroup({"job", 1, {0, 1}, {0, 4 + i, 9}});
      const auto status = (*group)->Barrier(Soon());
      if (Reason(status) != "RANK_DIFFERS") complaints.Add(status.ToString());
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  // Both send more than the slots hold before either receives.
  void Exchange_OfLargeParts_BlocksNobody() {
    OpenAll(2);
    Complaints complaints;
    InThreads(2, [&](std::uint32_t i) {
      const auto group = Make(i, 1, {0, 1});
      const Memory sent = BytesOf(1, static_cast<int>(i), 100'000);
      Memory received(sent.size());
      const int other = 1 - static_cast<int>(i);
      auto status = group->StartExchange(sent, other, received, other, Soon());
      if (status.ok()) status = group->FinishExchange(Soon());
      if (!status.ok()) complaints.Add(status.ToString());
      if (received != BytesOf(1, other, sent.size())) complaints.Add("wrong bytes");
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void WorkerThatLeft_IsLost() {
    OpenAll(3);
    worlds_->Leave(1);
    Complaints complaints;
    for (const std::uint32_t i : {0U, 2U}) {
      const auto group = Make(i, 1, {0, 1, 2});
      const auto status = group->Barrier(Soon());
      if (Reason(status) != "RANK_LOST" || sdk::FailedRank(status) != 1) {
        complaints.Add(status.ToString());
      }
    }
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
    QCOMPARE(Reason(worlds_->at(0).MakeGroup(GroupOfAll(3, 2)).status()), std::string("RANK_LOST"));
    EveryoneGoesOn(2, {2, 0});
  }

  void BadOptions_AreRefused_data() {
    QTest::addColumn<FabricWorldOptions>("options");
    QTest::newRow("nobody") << FabricWorldOptions{.index = 0, .workers = 0};
    QTest::newRow("crowd") << FabricWorldOptions{.index = 0, .workers = kMaxWorkers + 1};
    QTest::newRow("index") << FabricWorldOptions{.index = 1, .workers = 1};
    QTest::newRow("one slot") << FabricWorldOptions{.index = 0, .workers = 1, .slots = 1};
    QTest::newRow("slots") << FabricWorldOptions{.index = 0, .workers = 1, .slots = 65};
    QTest::newRow("no bytes") << FabricWorldOptions{.index = 0, .workers = 1, .slot_bytes = 0};
    QTest::newRow("odd bytes") << FabricWorldOptions{.index = 0, .workers = 1, .slot_bytes = 100};
  }
  void BadOptions_AreRefused() {
    QFETCH(FabricWorldOptions, options);
    auto fabric = *fabric::Fabric::Open(FabricWorlds::ShmUri());
    LocalMeeting meeting(1);
    const auto world = FabricWorld::Open(*fabric, *meeting.Join(0), options, Soon());
    QCOMPARE(Reason(world.status()), std::string("BAD_WORLD"));
  }

  void WorkersWithOtherSlots_MakeNoWorld() {
    auto fabric = *fabric::Fabric::Open(FabricWorlds::ShmUri());
    LocalMeeting meeting(2);
    Complaints complaints;
    InThreads(2, [&](std::uint32_t i) {
      const auto world = FabricWorld::Open(*fabric, *meeting.Join(i),
                                           {.index = i, .workers = 2, .slots = 2 + i}, Soon());
      if (Reason(world.status()) != "WORLD_DIFFERS") complaints.Add(world.status().ToString());
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::FabricWorldTest)
#include "fabric_world_test.moc"
