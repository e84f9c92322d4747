#include "cluster/node/shared_routings.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::node {
namespace {

std::shared_ptr<const Routing> SharedTable(std::uint64_t epoch,
                                           const std::string& set = "default") {
  v1::RoutingTable table;
  table.set_epoch(epoch);
  table.set_workflow_set(set);
  return std::make_shared<const Routing>(std::move(table));
}

}  // namespace

class SharedRoutingsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void OneTable_IsMadeOnce() {
    SharedRoutings shared;
    int made = 0;
    const auto make = [&] {
      ++made;
      return SharedTable(7);
    };
    const auto first = shared.Get("default", 7, make);
    QCOMPARE(shared.Get("default", 7, make), first);
    QCOMPARE(made, 1);
  }

  void OtherEpochOrOtherSet_IsAnotherTable() {
    SharedRoutings shared;
    const auto first = shared.Get("default", 7, [] { return SharedTable(7); });
    const auto later = shared.Get("default", 8, [] { return SharedTable(8); });
    const auto other = shared.Get("night", 7, [] { return SharedTable(7, "night"); });
    QVERIFY(later != first && other != first);
    QCOMPARE(later->epoch(), std::uint64_t{8});
    QCOMPARE(other->table().workflow_set(), std::string("night"));
  }

  void WhatCannotBeMade_IsTriedByTheNextNode() {
    SharedRoutings shared;
    QVERIFY(shared.Get("default", 7, []() -> std::shared_ptr<const Routing> { return nullptr; }) ==
            nullptr);
    QVERIFY(shared.Get("default", 7, [] { return SharedTable(7); }) != nullptr);
  }

  void OldTables_AreLetGo() {
    SharedRoutings shared;
    const std::weak_ptr<const Routing> first =
        shared.Get("default", 1, [] { return SharedTable(1); });
    for (std::uint64_t i = 0; i < SharedRoutings::kKept; ++i)
      (void)shared.Get("default", 2 + i, [&] { return SharedTable(2 + i); });
    QVERIFY(first.expired());
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::SharedRoutingsTest)
#include "shared_routings_test.moc"
