// Tests of the models of the page "Pipelines": its numbers, words and places.
#include <QtTest>
#include <algorithm>
#include <map>
#include <set>

#include "gui/models/pipeline_layout.h"
#include "gui/models/pipeline_text.h"
#include "tests/gui/models/pipeline_scenes.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

/// The place of each card of a graph, by key.
std::map<std::string, QRectF> Boxes(const PipelineGraph& graph) {
  const PipelineLayout layout = LayOut(graph);
  std::map<std::string, QRectF> boxes;
  for (std::size_t i = 0; i < graph.cards.size(); ++i) {
    boxes[graph.cards[i].key] = layout.cards[i];
  }
  return boxes;
}

}  // namespace

class GuiModelsPipelinesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Columns_FollowTheWorkflow_SharedPoolsAreOne() {
    PipelineScene scene(3, 2);
    // A second application has the same first and last pool, and a model of its own between them.
    v1::Workflow other = SceneWorkflow("wan-i2v", 1);
    v1::StageSpec own = SceneSpec(1);
    own.set_model("i2v");
    *other.add_stages() = own;
    *other.add_stages() = SceneSpec(2);
    *scene.cluster.add_workflows() = other;
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    QStringList names;
    for (const PipelineStage& stage : graph.stages) names << stage.name;
    QCOMPARE(names, (QStringList{"proxies", "text_encoder", "diffusion · i2v", "diffusion · tiny",
                                 "upscale", "databases"}));
    QCOMPARE(graph.stages[1].apps, (QStringList{"wan-i2v", "wan-t2v"}));
    QCOMPARE(graph.stages[2].apps, (QStringList{"wan-i2v"}));
    QCOMPARE(graph.stages[2].rank, graph.stages[3].rank);
    QVERIFY(graph.stages[2].row != graph.stages[3].row);
    QCOMPARE(graph.edges.size(), std::size_t{6});
    // The pool of its model has no instance, so its jobs cannot pass.
    QCOMPARE(graph.bottleneck, 2);
    QCOMPARE(graph.verdict,
             QStringLiteral("No instance serves diffusion · i2v: jobs of wan-i2v cannot pass."));
  }

  void Columns_OppositeOrders_EndAndAreDrawn() {
    PipelineScene scene(2, 1);
    v1::Workflow back;
    back.set_app_id("zz-back");
    *back.add_stages() = SceneSpec(1);
    *back.add_stages() = SceneSpec(0);
    *scene.cluster.add_workflows() = back;
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    const PipelineStage* encoder = StageNamed(graph, QStringLiteral("text_encoder"));
    QVERIFY(encoder->rank < StageNamed(graph, QStringLiteral("diffusion"))->rank);
    const PipelineLayout layout = LayOut(graph);
    QVERIFY(EdgeBetween(graph, QStringLiteral("diffusion"), QStringLiteral("text_encoder")));
    for (std::size_t i = 0; i < graph.edges.size(); ++i) {
      const bool back_way = graph.stages[static_cast<std::size_t>(graph.edges[i].from)].rank >
                            graph.stages[static_cast<std::size_t>(graph.edges[i].to)].rank;
      if (back_way) QVERIFY(layout.edges[i].rise > 0);
    }
  }

  void Sets_StandBelowEachOther() {
    PipelineScene scene(2, 2);
    *scene.cluster.add_nodes() = SceneInstance("other-1", 0, 0.5, 1, "set-10");
    *scene.cluster.add_nodes() = SceneInstance("other-2", 1, 0.5, 1, "set-2");
    // The instance is lent to another set. It is shown where it works.
    scene.node("instance-1").mutable_assignment()->set_workflow_set("set-2");
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    QCOMPARE(graph.sets.size(), std::size_t{3});
    QCOMPARE(graph.sets[1].name, std::string("set-2"));
    QCOMPARE(graph.sets[2].name, std::string("set-10"));
    const PipelineCard* lent = CardOf(graph, "instance-1");
    QCOMPARE(graph.stages[static_cast<std::size_t>(lent->stage)].set, 1);
    const PipelineLayout layout = LayOut(graph);
    QVERIFY(layout.sets[0].bottom() < layout.sets[1].top());
    QVERIFY(layout.sets[1].bottom() < layout.sets[2].top());
    QVERIFY(graph.verdict.contains(u" of set-2") || graph.verdict.contains(u" of set-10"));
  }

  void Layout_JoinsAndLeaves_MoveNobodyElse() {
    PipelineScene scene(2, 3);
    PipelineModel model;
    const auto before = Boxes(model.Update(*scene.At()));
    QVERIFY(before == Boxes(model.Update(*scene.At(kSceneMs + 1000))));
    // The server lists nodes in any order.
    PipelineScene shuffled = scene;
    std::reverse(shuffled.cluster.mutable_nodes()->begin(),
                 shuffled.cluster.mutable_nodes()->end());
    PipelineModel fresh;
    QVERIFY(before == Boxes(fresh.Update(*shuffled.At())));

    *scene.cluster.add_nodes() = SceneInstance("instance-10", 0, 0.5, 1);
    auto after = Boxes(model.Update(*scene.At(kSceneMs + 2000)));
    const QRectF joined = after.at("instance-10");
    QVERIFY(joined.top() > after.at("instance-3").bottom());  // Ordered by number, not by letters.
    after.erase("instance-10");
    QVERIFY(before == after);

    scene.Erase("instance-10");
    scene.Erase("instance-2");
    after = Boxes(model.Update(*scene.At(kSceneMs + 3000)));
    QCOMPARE(after.at("instance-2"), before.at("instance-2"));  // This is its ghost.
    QCOMPARE(after.at("instance-3"), before.at("instance-3"));
    after = Boxes(model.Update(*scene.At(kSceneMs + 3000 + PipelineModel::kGhostMs)));
    QVERIFY(!after.contains("instance-2"));
    QCOMPARE(after.at("instance-1"), before.at("instance-1"));
    QCOMPARE(after.at("instance-4"), before.at("instance-4"));
    QCOMPARE(after.at("instance-3").left(), before.at("instance-3").left());
  }

  void Layout_CardsDoNotOverlap_data() {
    QTest::addColumn<int>("replicas");
    for (const int replicas : {0, 1, 8, 9, 16, 64, 65, 300})
      QTest::addRow("%d", replicas) << replicas;
  }

  void Layout_CardsDoNotOverlap() {
    QFETCH(int, replicas);
    PipelineScene scene(2, replicas);
    for (int i = 0; i < replicas; ++i) {
      *scene.cluster.add_nodes() = SceneInstance("idle-" + std::to_string(i), -1, 0, 0);
    }
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    const PipelineLayout layout = LayOut(graph);
    std::set<std::pair<double, double>> corners;
    for (std::size_t i = 0; i < graph.cards.size(); ++i) {
      const QRectF& box = layout.cards[i];
      QVERIFY(corners.insert({box.left(), box.top()}).second);
      QVERIFY(layout.stages[static_cast<std::size_t>(graph.cards[i].stage)].contains(box));
    }
    for (std::size_t i = 0; i < graph.stages.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) QVERIFY(!layout.stages[i].intersects(layout.stages[j]));
      QVERIFY(layout.bounds.contains(layout.stages[i]) ||
              graph.stages[i].kind == PipelineStage::Kind::kIdle);
    }
  }

  void NodeIdLess_ComparesNumbersAsNumbers() {
    QVERIFY(NodeIdLess("instance-2", "instance-10"));
    QVERIFY(!NodeIdLess("instance-10", "instance-2"));
    QVERIFY(NodeIdLess("a", "b"));
    QVERIFY(NodeIdLess("a", "a1"));
    QVERIFY(NodeIdLess("a1", "a01") != NodeIdLess("a01", "a1"));
    QVERIFY(!NodeIdLess("a1", "a1"));
    QVERIFY(NodeIdLess("n-99999999999999999999998", "n-99999999999999999999999"));
  }

  void Ghosts_StayForAMinuteOfTheSnapshotsTime() {
    PipelineScene scene(2, 2);
    PipelineModel model;
    model.Update(*scene.At());
    v1::Node& node = scene.node("instance-2");
    node.set_state(v1::Node::DEAD);
    const PipelineCard* ghost = CardOf(model.Update(*scene.At(kSceneMs + 59'999)), "instance-2");
    QVERIFY(ghost != nullptr);
    QVERIFY(ghost->kind == PipelineCard::Kind::kLost);
    QVERIFY(!ghost->utilization && !ghost->running);  // A ghost has no present load.
    QCOMPARE(LookOf(*ghost, kSceneMs + 59'999).mark, QStringLiteral("seen 59 s ago"));
    QCOMPARE(model.graph().stages[1].present, 1);
    QVERIFY(CardOf(model.Update(*scene.At(kSceneMs + 60'000)), "instance-2") == nullptr);
    // It comes back.
    node.set_state(v1::Node::READY);
    QVERIFY(CardOf(model.Update(*scene.At(kSceneMs + 61'000)), "instance-2")->kind ==
            PipelineCard::Kind::kLive);
    // A snapshot of the past must not show what came after it.
    scene.Erase("instance-2");
    QVERIFY(CardOf(model.Update(*scene.At(kSceneMs - 5000)), "instance-2") == nullptr);
  }

  void Ghosts_OfThoseWhoDiedBeforeWeLooked() {
    PipelineScene scene(1, 2);
    scene.node("instance-1").set_state(v1::Node::DEAD);
    scene.node("instance-1").mutable_last_report_time()->set_seconds(kSceneMs / 1000 - 20);
    scene.node("instance-2").set_node_id("instance-2");
    *scene.cluster.add_nodes() = SceneInstance("instance-9", 0, 0, 0);
    scene.node("instance-9").set_state(v1::Node::DEAD);
    scene.node("instance-9").mutable_last_report_time()->set_seconds(kSceneMs / 1000 - 3600);
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    QCOMPARE(CardOf(graph, "instance-1")->seen_ms, kSceneMs - 20'000);
    QVERIFY(CardOf(graph, "instance-9") == nullptr);
  }

  void Plans_ShowWhatComesAndGoes() {
    PipelineScene scene(3, 3);
    *scene.cluster.add_nodes() = SceneInstance("spare", -1, 0, 0);
    scene.Plan(v1::Plan::RUNNING, "spare", ScenePool(1));
    scene.Plan(v1::Plan::RUNNING, "instance-1", ScenePool(2)).set_phase(v1::Move::DRAINING);
    scene.Plan(v1::Plan::RUNNING, "instance-7", "");
    scene.Plan(v1::Plan::UNCONFIRMED, "instance-5", ScenePool(1)).set_phase(v1::Move::DONE);
    scene.Plan(v1::Plan::DONE, "instance-2", ScenePool(1));
    scene.Plan(v1::Plan::RUNNING, "nobody", ScenePool(1));
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    const PipelineCard* comes = CardOf(graph, "+spare");
    QVERIFY(comes->kind == PipelineCard::Kind::kPlanned);
    QCOMPARE(graph.stages[static_cast<std::size_t>(comes->stage)].name,
             QStringLiteral("diffusion"));
    QCOMPARE(LookOf(*comes, kSceneMs).mark, QStringLiteral("+ from idle"));
    QVERIFY(CardOf(graph, "instance-1")->fate == PipelineCard::Fate::kMoves);
    QCOMPARE(LookOf(*CardOf(graph, "instance-1"), kSceneMs).mark, QStringLiteral("→ upscale"));
    QCOMPARE(LookOf(*CardOf(graph, "+instance-1"), kSceneMs).mark,
             QStringLiteral("+ from text_encoder"));
    QVERIFY(CardOf(graph, "instance-7")->fate == PipelineCard::Fate::kLeaves);
    QVERIFY(CardOf(graph, "instance-5")->fate == PipelineCard::Fate::kUnconfirmed);
    QVERIFY(CardOf(graph, "instance-2")->fate == PipelineCard::Fate::kStays);
    QVERIFY(CardOf(graph, "+instance-2") == nullptr);
    QVERIFY(CardOf(graph, "+nobody") == nullptr);
    QCOMPARE(StageNamed(graph, QStringLiteral("diffusion"))->present, 3);  // Ghosts do not count.
    // The plan is reverted, so the arrow turns.
    scene.elasticity.mutable_plans(1)->set_state(v1::Plan::REVERTING);
    scene.elasticity.mutable_plans(1)->mutable_moves(0)->mutable_from()->set_pool(ScenePool(0));
    model.Update(*scene.At());
    QVERIFY(CardOf(model.graph(), "+instance-1") == nullptr);
  }

  void Verdict_SaysWhyWithNumbers() {
    PipelineScene scene(3, 2);
    PipelineModel model;
    QCOMPARE(model.Update(*scene.At()).verdict,
             QStringLiteral("Bottleneck: diffusion, ρ 97 % over the last 5 m 00 s · 2 of 2 "
                            "instances serve · 16 of all 20 queued jobs wait there · a job takes "
                            "3.0 s · next is upscale with ρ 40 %"));
    QCOMPARE(model.graph().bottleneck, 2);
    QVERIFY(model.graph().stages[2].bottleneck);
    QVERIFY(model.graph().verdict_tone == StatusTone::kWarning);

    scene.elasticity.mutable_pools(1)->set_utilization(0.5);
    scene.elasticity.mutable_pools(2)->clear_utilization();
    model.Update(*scene.At());
    QVERIFY2(model.graph().verdict.startsWith(QStringLiteral(
                 "No bottleneck: the busiest pool, diffusion, has ρ 50 % over the last 5 m 00 s")),
             qPrintable(model.graph().verdict));
    QVERIFY(model.graph().verdict.endsWith(u"not measured yet: upscale"));
    QVERIFY(!model.graph().stages[2].bottleneck);

    // If two pools are equally busy, the one with more queued jobs is the narrowest.
    scene.elasticity.mutable_pools(0)->set_utilization(0.991);
    scene.elasticity.mutable_pools(1)->set_utilization(0.989);
    model.Update(*scene.At());
    QCOMPARE(model.graph().bottleneck, 2);

    for (v1::PoolStatus& pool : *scene.elasticity.mutable_pools()) pool.clear_utilization();
    model.Update(*scene.At());
    QCOMPARE(model.graph().verdict,
             QStringLiteral("Bottleneck not known yet: no pool has been measured for a whole "
                            "window (5 m 00 s)."));
    QCOMPARE(model.graph().bottleneck, -1);

    auto silent = scene.At();
    silent->elasticity = {nullptr, 0, "UNAVAILABLE: no leader"};
    model.Update(*silent);
    QVERIFY(model.graph().verdict.contains(u"UNAVAILABLE: no leader"));

    for (const char* id : {"instance-3", "instance-4"}) {
      scene.node(id).set_activity(v1::QUARANTINED);
    }
    model.Update(*scene.At());
    QCOMPARE(model.graph().verdict,
             QStringLiteral(
                 "No instance serves diffusion: jobs of wan-t2v cannot pass. 2 there, not ready."));
    QVERIFY(model.graph().verdict_tone == StatusTone::kBad);
  }

  void Unknown_IsNotZero() {
    PipelineScene scene(1, 2);
    scene.node("instance-1").clear_load();
    scene.node("instance-2").mutable_load()->set_utilization(0);
    scene.node("instance-2").mutable_load()->mutable_devices(0)->clear_sm_active();
    scene.node("instance-2").mutable_load()->set_running_jobs(0);
    scene.rings.clear();
    PipelineModel model;
    const PipelineGraph& graph = model.Update(*scene.At());
    const CardLook none = LookOf(*CardOf(graph, "instance-1"), kSceneMs);
    const CardLook zero = LookOf(*CardOf(graph, "instance-2"), kSceneMs);
    QCOMPARE(none.busy, QStringLiteral("N/A"));
    QCOMPARE(zero.busy, QStringLiteral("0 %"));
    QCOMPARE(none.busy_permille, -1);
    QCOMPARE(zero.busy_permille, 0);
    QCOMPARE(none.ring, QStringLiteral("N/A"));
    // From the node's report, because its ring does not answer.
    QCOMPARE(zero.ring, QStringLiteral("7/64"));
    QCOMPARE(zero.jobs, QStringLiteral("0/4"));
    QVERIFY(zero.sm.isEmpty());
    const EdgeLook edge = LookOf(graph.edges.front());
    QVERIFY(!edge.known);
    QCOMPARE(edge.rate, QStringLiteral("N/A"));
    QCOMPARE(edge.details.front(), QStringLiteral("q N/A"));
  }

  void ServiceTimes_AreOfTheLastHalfMinute() {
    PipelineScene scene(1, 1);
    PipelineModel model;
    v1::NodeLoad& load = *scene.node("instance-1").mutable_load();
    const auto update = [&](int second, std::uint64_t more, double seconds_each, int bucket) {
      v1::StageLoad& stage = *load.mutable_stages(0);
      stage.set_jobs(stage.jobs() + more);
      stage.set_compute_s(stage.compute_s() + seconds_each * static_cast<double>(more));
      stage.set_compute_buckets(bucket, stage.compute_buckets(bucket) + more);
      load.set_sample_unix_ms(kSceneMs + 1000 * second);
      return *CardOf(model.Update(*scene.At(kSceneMs + 1000 * second)), "instance-1");
    };
    PipelineCard card = update(0, 0, 0, 12);
    QCOMPARE(card.service_mean_s.value(), 3.0);   // 40 jobs since its process began.
    QCOMPARE(card.service_p50_s.value(), 3.072);  // The middle of 2.048 to 4.096.
    QCOMPARE(card.measured_s, 0.0);
    QVERIFY(!card.jobs_per_s);
    card = update(10, 5, 0.5, 9);
    QCOMPARE(card.service_mean_s.value(), 0.5);
    QCOMPARE(card.service_p50_s.value(), 0.384);
    QCOMPARE(card.jobs_per_s.value(), 0.5);
    QCOMPARE(card.jobs, std::uint64_t{5});
    QCOMPARE(card.measured_s, 10.0);
    update(30, 5, 0.5, 9);
    // The first half minute is outside of the window, and no job came since.
    card = update(61, 0, 0, 9);
    QCOMPARE(card.jobs_per_s.value(), 0.0);
    QCOMPARE(card.measured_s, 0.0);
    QCOMPARE(card.jobs, std::uint64_t{50});
    // A restarted process counts from 0.
    scene.node("instance-1").set_incarnation(2);
    load.mutable_stages(0)->set_jobs(1);
    load.mutable_stages(0)->set_compute_s(7);
    card = update(62, 0, 0, 9);
    QCOMPARE(card.service_mean_s.value(), 7.0);
    QVERIFY(!card.jobs_per_s);
    // Without buckets there is only a mean.
    load.mutable_stages(0)->clear_compute_buckets();
    for (int i = 0; i < 21; ++i) load.mutable_stages(0)->add_compute_buckets(0);
    card = update(63, 0, 0, 9);
    QVERIFY(!card.service_p50_s);
    QCOMPARE(LookOf(card, 0).service, QStringLiteral("mean 7.0 s"));
  }

  void Edges_TellSendersApart() {
    PipelineScene scene(3, 1);
    // The last stage receives from both others.
    v1::Workflow& workflow = *scene.cluster.mutable_workflows(0);
    workflow.mutable_stages(1)->add_after("text_encoder");
    workflow.mutable_stages(2)->add_after("text_encoder");
    workflow.mutable_stages(2)->add_after("diffusion");
    const auto ring = std::find_if(scene.rings.begin(), scene.rings.end(),
                                   [](const auto& one) { return one.node_id == "instance-3"; });
    for (const char* sender : {"instance-1", "instance-2"}) {
      v1::RingProducer& producer = *ring->health.add_producers();
      producer.set_node_id(sender);
      producer.set_delivered(100);
      producer.set_delivered_bytes(1000);
    }
    PipelineModel model;
    const auto between = [&](const char* from) {
      return *EdgeBetween(model.graph(), QLatin1String(from), QStringLiteral("upscale"));
    };
    model.Update(*scene.At());
    QVERIFY(!between("diffusion").items_per_s);  // Not known after one answer.
    ring->as_of_ms += 2000;
    ring->health.mutable_producers(0)->set_delivered(103);
    ring->health.mutable_producers(1)->set_delivered(120);
    ring->health.mutable_producers(1)->set_delivered_bytes(3000);
    model.Update(*scene.At(kSceneMs + 2000));
    QCOMPARE(between("text_encoder").items_per_s.value(), 1.5);
    QCOMPARE(between("diffusion").items_per_s.value(), 10.0);
    QCOMPARE(between("diffusion").bytes_per_s.value(), 1000.0);
    model.Update(*scene.At(kSceneMs + 2100));  // The same answer gives the same rates.
    QCOMPARE(between("diffusion").items_per_s.value(), 10.0);
    // It is the only sender of these rings, so their own rates count.
    QCOMPARE(EdgeBetween(model.graph(), QStringLiteral("text_encoder"), QStringLiteral("diffusion"))
                 ->items_per_s.value(),
             1.2);
    ring->health.mutable_producers(1)->set_delivered(0);  // The producer counts from 0 again.
    ring->as_of_ms += 2000;
    model.Update(*scene.At(kSceneMs + 4000));
    QVERIFY(!between("diffusion").items_per_s);
    // The edge passes over the column between them.
    const PipelineLayout layout = LayOut(model.graph());
    int risen = 0;
    for (const auto& edge : layout.edges) risen += edge.rise > 0 ? 1 : 0;
    QCOMPARE(risen, 1);
  }

  void Stalled_IsDashedAndSaid() {
    PipelineScene scene(2, 1);
    session::RingEntry& ring = scene.rings.back();
    ring.health.set_oldest_age_ms(9000);
    PipelineModel model;
    model.Update(*scene.At());
    const auto edge = [&] {
      return *EdgeBetween(model.graph(), QStringLiteral("text_encoder"),
                          QStringLiteral("diffusion"));
    };
    QVERIFY(!edge().stalled);  // Old, but messages are taken out.
    ring.rates->messages_per_s = 0;
    model.Update(*scene.At());
    QVERIFY(edge().stalled);
    QCOMPARE(LookOf(edge()).details.front(), QStringLiteral("stalled 9.0 s"));
    ring.health.set_oldest_age_ms(4000);
    model.Update(*scene.At());
    QVERIFY(!edge().stalled);
  }
};

}  // namespace onepiece::gui

ONEPIECE_TEST(onepiece::gui::GuiModelsPipelinesTest)
#include "pipelines_test.moc"
