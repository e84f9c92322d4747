#include "cluster/workflow/graph.h"

#include <QtTest>
#include <algorithm>

#include "tests/test_main.h"

namespace onepiece::workflow {
namespace {

using Names = std::vector<std::string>;

v1::Workflow Stages(const std::vector<std::pair<std::string, Names>>& stages) {
  v1::Workflow workflow;
  for (const auto& [name, after] : stages) {
    v1::StageSpec& spec = *workflow.add_stages();
    spec.set_stage(name);
    for (const std::string& before : after) spec.add_after(before);
  }
  return workflow;
}

Names List(std::span<const std::string> names) { return {names.begin(), names.end()}; }

}  // namespace

class GraphTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void NobodyNamesAny_IsAChain() {
    const Graph graph(Stages({{"encode", {}}, {"diffuse", {}}, {"decode", {}}}));
    QCOMPARE(List(graph.Entrances()), Names{"encode"});
    QVERIFY(graph.Predecessors("encode").empty());
    QCOMPARE(List(graph.Successors("encode")), Names{"diffuse"});
    QCOMPARE(List(graph.Predecessors("decode")), Names{"diffuse"});
    QVERIFY(graph.Successors("decode").empty());
  }

  void ADiamond_ForksAndJoins() {
    const Graph graph(Stages(
        {{"read", {}}, {"text", {"read"}}, {"image", {"read"}}, {"paint", {"image", "text"}}}));
    QCOMPARE(List(graph.Entrances()), Names{"read"});
    QCOMPARE(List(graph.Successors("read")), (Names{"text", "image"}));
    QCOMPARE(List(graph.Predecessors("paint")), (Names{"image", "text"}));
  }

  void AStageWithoutAfter_IsAnEntranceOnceAnyStageNamesOne() {
    const Graph graph(Stages({{"text", {}}, {"image", {}}, {"paint", {"text", "image"}}}));
    QCOMPARE(List(graph.Entrances()), (Names{"text", "image"}));
    QVERIFY(graph.Predecessors("image").empty());
    QCOMPARE(List(graph.Successors("text")), Names{"paint"});
  }

  void UnknownStages_HaveNoNeighbours() {
    const Graph graph(Stages({{"only", {}}}));
    QCOMPARE(List(graph.Entrances()), Names{"only"});
    QVERIFY(graph.Successors("other").empty());
    QVERIFY(Graph().Entrances().empty());
  }

  // A routing table from another version may hold a workflow that CheckWorkflow refuses.
  void WhatTheCheckRefuses_GivesNoEdge() {
    const Graph graph(Stages({{"a", {"b", "a"}}, {"b", {"a", "a", "nobody"}}, {"a", {"b"}}}));
    QCOMPARE(List(graph.Entrances()), Names{"a"});
    QCOMPARE(List(graph.Predecessors("b")), Names{"a"});
    QVERIFY(graph.Successors("b").empty());
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::GraphTest)
#include "graph_test.moc"
