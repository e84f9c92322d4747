#include "cluster/local/plan.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/local/ports.h"
#include "tests/test_main.h"

namespace onepiece::local {

class PlanTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    // A plan looks for the programs and does not run them, so files of their names suffice.
    const std::string bin = temp_.path().toStdString() + "/bin";
    std::filesystem::create_directories(bin);
    std::filesystem::create_directories(temp_.path().toStdString() + "/lib/onepiece/stages");
    for (const char* role : {"nodemanager", "proxy", "database", "instance"})
      std::ofstream(bin + "/onepiece-" + role) << "x";
    qputenv("ONEPIECE_BIN_DIR", QByteArray::fromStdString(bin));
  }

  void MakePlan_Replicas_KnowEachOtherAndOneBeginsTheGroup() {
    const auto plan = PlanOf(3, "");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    QCOMPARE(plan->nodemanagers, std::size_t{3});
    std::vector<std::string> replicas;
    std::set<std::string> addresses;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string& listen = plan->nodes[i].node->listen();
      QVERIFY(!listen.ends_with(":0"));
      addresses.insert(listen);
      replicas.push_back("nodemanager-" + std::to_string(i + 1) + "=" + listen);
    }
    QCOMPARE(addresses.size(), std::size_t{3});
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& config = dynamic_cast<v1::NodeManagerConfig&>(*plan->nodes[i].config);
      QCOMPARE(plan->nodes[i].node_id, "nodemanager-" + std::to_string(i + 1));
      QCOMPARE(std::vector<std::string>(config.replicas().begin(), config.replicas().end()),
               replicas);
      QCOMPARE(config.bootstrap(), i == 0);
    }
    QCOMPARE(plan->nodes[3].role, std::string("database"));
  }

  void MakePlan_OneReplica_IsAlone() {
    const auto plan = PlanOf(0, "127.0.0.1:7400");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    QCOMPARE(plan->nodemanagers, std::size_t{1});
    QCOMPARE(plan->nodes[0].node->listen(), std::string("127.0.0.1:7400"));
    const auto& config = dynamic_cast<v1::NodeManagerConfig&>(*plan->nodes[0].config);
    QCOMPARE(config.replicas_size(), 0);
    QVERIFY(!config.bootstrap());
  }

  void MakePlan_GivenAddress_IsTheFirstReplicas() {
    const auto plan = PlanOf(3, "127.0.0.1:7400");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    QCOMPARE(plan->nodes[0].node->listen(), std::string("127.0.0.1:7400"));
  }

  void MakeReadOnly_IsAboutThoseThatPeopleAsk() {
    auto plan = MakePlan(Config(), Dir(), "test");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    MakeReadOnly(*plan);
    for (const NodePlan& node : plan->nodes)
      QCOMPARE(node.node->read_only(), node.role != "instance");
  }

  void MakePlan_Databases_GetWhatTheFileSays() {
    v1::LocalClusterConfig config = Config();
    config.set_database_when_full(v1::WHEN_FULL_SPILL);
    config.set_database_budget_bytes(12345);
    config.mutable_ring()->set_shape(v1::RING_SHAPE_PER_PRODUCER);
    const auto plan = MakePlan(config, Dir(), "test");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    for (const NodePlan& node : plan->nodes) {
      if (node.role != "database") continue;
      // The program reads back what the plan wrote.
      v1::DatabaseConfig read;
      const auto status = config::ParseYaml(ToYaml(*node.config), "yaml", &read);
      QVERIFY2(status.ok(), status.ToString().c_str());
      QCOMPARE(read.when_full(), v1::WHEN_FULL_SPILL);
      QCOMPARE(read.budget_bytes(), 12345);
      QCOMPARE(read.ring().shape(), v1::RING_SHAPE_PER_PRODUCER);
      QVERIFY(read.node().data_dir().ends_with("/" + node.node_id));
    }
  }

  void MakePlan_BadCount_IsRefused() {
    for (const int count : {-1, 2, 4, 7}) {
      const auto plan = PlanOf(count, "");
      QCOMPARE(base::GetReason(plan.status()).reason, std::string("BAD_CONFIG"));
    }
  }

  void MakePlan_Sets_AreAlikeAndTheFirstKeepsPlainNames() {
    v1::LocalClusterConfig config = Config();
    config.set_workflow_sets(2);
    config.set_databases(1);
    config.set_proxy_listen("127.0.0.1:7001");
    config.add_instances()->set_count(2);  // Two instances without a pinned stage.
    const auto plan = MakePlan(config, Dir(), "test");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    std::map<std::string, std::string> sets;  // The workflow set of every node.
    for (const NodePlan& node : plan->nodes) sets[node.node_id] = node.node->workflow_set();
    const std::map<std::string, std::string> expected = {{"nodemanager-1", "default"},
                                                         {"database-1", "default"},
                                                         {"proxy-1", "default"},
                                                         {"instance-decode-1", "default"},
                                                         {"instance-any-1", "default"},
                                                         {"instance-any-2", "default"},
                                                         {"set-2-database-1", "set-2"},
                                                         {"set-2-proxy-1", "set-2"},
                                                         {"set-2-instance-decode-1", "set-2"},
                                                         {"set-2-instance-any-1", "set-2"},
                                                         {"set-2-instance-any-2", "set-2"}};
    QVERIFY(sets == expected);
    for (const NodePlan& node : plan->nodes) {
      QVERIFY(node.node->data_dir().ends_with("/" + node.node_id));
      if (node.node_id == "set-2-proxy-1")
        QCOMPARE(node.node->listen(), std::string("127.0.0.1:0"));
    }
    config.set_workflow_sets(-1);
    QCOMPARE(base::GetReason(MakePlan(config, Dir(), "test").status()).reason,
             std::string("BAD_CONFIG"));
  }

  void MakePlan_HandsElasticityDown_AndTheFileSaysIt() {
    v1::LocalClusterConfig config = Config();
    config.mutable_elasticity()->set_policy("static");
    config.mutable_elasticity()->set_window_s(2.5);
    config.set_parked_bytes(1 << 20);
    config.add_idle_work("train");
    config.add_idle_work("--slowly");
    const auto plan = MakePlan(config, Dir(), "test");
    QVERIFY2(plan.ok(), plan.status().ToString().c_str());
    const std::string file = temp_.path().toStdString() + "/nodemanager.yaml";
    std::ofstream(file) << ToYaml(*plan->nodes.front().config);
    v1::NodeManagerConfig manager;
    const absl::Status loaded = config::LoadYamlFile(file, &manager);
    QVERIFY2(loaded.ok(), loaded.ToString().c_str());
    QCOMPARE(manager.elasticity().policy(), std::string("static"));
    QCOMPARE(manager.elasticity().window_s(), 2.5);
    const auto& instance = dynamic_cast<v1::InstanceConfig&>(*plan->nodes.back().config);
    QCOMPARE(instance.parked_bytes(), std::int64_t{1 << 20});
    QCOMPARE(instance.idle_work_size(), 2);
    QCOMPARE(instance.idle_work(1), std::string("--slowly"));
  }

  void FreePorts_AreDifferentAndCanBeUsed() {
    const auto ports = FreePorts(5);
    QVERIFY2(ports.ok(), ports.status().ToString().c_str());
    QCOMPARE(std::set<int>(ports->begin(), ports->end()).size(), std::size_t{5});
    QVERIFY(!FreePorts(1000).ok());
  }

  void Complete_HasAnInstanceForEveryPool() {
    const QTemporaryDir dir;
    const std::string folder = dir.path().toStdString();
    const auto write = [&](const std::string& app, const std::string& model) {
      const std::string plugin = ", plugin: wan, model: " + model;
      std::ofstream(folder + "/" + app + ".yaml")
          << "app_id: " << app << "\nstages:\n"
          << "  - {stage: encode, pool: shared" << plugin << "}\n"
          << "  - {stage: diffuse" << plugin << ", min_instances: 2}\n"
          << "  - {stage: decode, pool: shared, threads: " << (app == "one" ? 1 : 2) << plugin
          << "}\n";
    };
    write("one", "small");
    write("two", "large");
    v1::LocalClusterConfig config;
    config.add_workflow_files("one.yaml");
    config.add_workflow_files("two.yaml");
    const auto complete = Complete(config, folder);
    QVERIFY2(complete.ok(), complete.status().ToString().c_str());
    std::map<std::string, int> counts;
    for (const auto& group : complete->instances()) counts[group.stage()] += group.count();
    const std::map<std::string, int> expected = {{"encode", 1}, {"diffuse", 4}, {"decode", 2}};
    QVERIFY(counts == expected);
    QCOMPARE(complete->instances_size(), 3);
  }

 private:
  absl::StatusOr<ClusterPlan> PlanOf(int nodemanagers, const std::string& listen) {
    v1::LocalClusterConfig config = Config();
    config.set_nodemanagers(nodemanagers);
    config.set_nodemanager_listen(listen);
    return MakePlan(config, Dir(), "test");
  }
  static v1::LocalClusterConfig Config() {
    v1::LocalClusterConfig config;
    config.add_workflow_files("unused.yaml");
    config.set_model_root("models");
    config.add_instances()->set_stage("decode");
    return config;
  }
  DataDir Dir() const { return DataDir{temp_.path().toStdString() + "/data"}; }

  QTemporaryDir temp_;
};

}  // namespace onepiece::local

ONEPIECE_TEST(onepiece::local::PlanTest)
#include "plan_test.moc"
