#include "cluster/local/plan.h"

#include <QTemporaryDir>
#include <QtTest>
#include <fstream>
#include <map>

namespace onepiece::local {

class PlanTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
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
};

}  // namespace onepiece::local

QTEST_GUILESS_MAIN(onepiece::local::PlanTest)
#include "plan_test.moc"
