#include "cluster/node/routing_delta.h"

#include <QtTest>
#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/ids.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using Endpoints = google::protobuf::RepeatedPtrField<v1::Endpoint>;

// A table as StateMachine::Routing() makes them, of few names, so that two of them have much in
// common.
class RandomTables {
 public:
  explicit RandomTables(std::uint64_t seed) : random_(seed) {}

  v1::RoutingTable Next() {
    v1::RoutingTable table;
    table.set_epoch(++epoch_);
    table.set_workflow_set("default");
    for (int app = 0; app < 4; ++app) {
      if (OneIn(3)) continue;
      v1::Workflow& workflow = *table.add_workflows();
      workflow.set_app_id(absl::StrCat("app-", app));
      workflow.set_display_name(OneIn(2) ? "one" : "two");
      for (int stage = 0; stage < 3; ++stage) {
        if (!OneIn(4)) workflow.add_stages()->set_stage(absl::StrCat("stage-", stage));
      }
    }
    for (const v1::Workflow& workflow : table.workflows()) {
      for (const v1::StageSpec& stage : workflow.stages()) {
        v1::Route& route = *table.add_routes();
        route.set_app_id(workflow.app_id());
        route.set_stage(stage.stage());
        Fill("i", *route.mutable_instances());
      }
    }
    Fill("p", *table.mutable_proxies());
    Fill("d", *table.mutable_databases());
    Fill("n", *table.mutable_alive());
    return table;
  }

 private:
  bool OneIn(unsigned n) { return random_() % n == 0; }
  void Fill(const std::string& prefix, Endpoints& list) {
    for (int i = 0; i < 6; ++i) {
      if (OneIn(3)) continue;
      v1::Endpoint& endpoint = *list.Add();
      endpoint.set_node_id(absl::StrCat(prefix, i));
      endpoint.set_incarnation(1 + random_() % 2);
      endpoint.set_address(OneIn(4) ? "b:1" : "a:1");
    }
  }

  std::mt19937_64 random_;
  std::uint64_t epoch_ = 0;
};

}  // namespace

class RoutingDeltaTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Apply_OfADeltaGivesTheOtherTable() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    RandomTables tables(seed);
    v1::RoutingTable followed = tables.Next(), from = followed;
    for (int i = 0; i < 3000; ++i) {
      const v1::RoutingTable to = tables.Next();
      const v1::RoutingTable delta = MakeRoutingDelta(from, to);
      QCOMPARE(delta.base_epoch(), from.epoch());
      const absl::Status status = ApplyRoutingDelta(delta, followed);
      QVERIFY2(status.ok(), status.ToString().c_str());
      QCOMPARE(base::CanonicalBytes(followed), base::CanonicalBytes(to));
      from = to;
    }
  }

  void Make_NamesOnlyWhatDiffers() {
    RandomTables tables(1);
    v1::RoutingTable from = tables.Next();
    while (from.alive().empty() || from.workflows().empty()) from = tables.Next();
    v1::RoutingTable to = from;
    to.set_epoch(from.epoch() + 1);
    const std::string gone = to.alive(0).node_id();
    to.mutable_alive()->DeleteSubrange(0, 1);
    v1::RoutingTable expected;
    expected.set_epoch(to.epoch());
    expected.set_base_epoch(from.epoch());
    expected.set_workflow_set("default");
    expected.add_removed_alive(gone);
    QCOMPARE(base::CanonicalBytes(MakeRoutingDelta(from, to)), base::CanonicalBytes(expected));
  }

  void Apply_ToAnotherTableIsRefused() {
    RandomTables tables(2);
    const v1::RoutingTable first = tables.Next(), second = tables.Next(), third = tables.Next();
    v1::RoutingTable table = first;
    const v1::RoutingTable delta = MakeRoutingDelta(second, third);
    QCOMPARE(Reason(ApplyRoutingDelta(delta, table)), std::string("OTHER_BASE"));
    v1::RoutingTable other = second;
    other.set_workflow_set("other");
    QCOMPARE(Reason(ApplyRoutingDelta(delta, other)), std::string("OTHER_BASE"));
    QCOMPARE(base::CanonicalBytes(table), base::CanonicalBytes(first));
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::RoutingDeltaTest)
#include "routing_delta_test.moc"
