#include "stages/instance/assignment_taker.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

v1::InstanceConfig Config() {
  v1::InstanceConfig config;
  config.set_device("cuda:1");
  config.set_workers(3);
  config.set_model_root("/models");
  return config;
}

v1::Assignment Diffusion() {
  v1::Assignment assignment;
  assignment.set_epoch(4);
  assignment.mutable_stage()->set_stage("diffusion");
  assignment.mutable_stage()->set_plugin("wan");
  assignment.mutable_stage()->set_model("shared");
  return assignment;
}

}  // namespace

class AssignmentTakerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void StageOf_TakesDeviceAndWorkersFromTheConfiguration() {
    const runtime::StageAssignment stage = StageOf(Diffusion(), Config());
    QCOMPARE(stage.stage, std::string("diffusion"));
    QCOMPARE(stage.plugin, std::string("wan"));
    QCOMPARE(stage.load.device, std::string("cuda:1"));
    QCOMPARE(stage.load.threads, 1);
    QCOMPARE(stage.load.precision, std::string("f32"));
    QCOMPARE(stage.workers, 3);
    QCOMPARE(stage.epoch, std::uint64_t{4});
  }

  void StageOf_FindsEachApplicationsModel() {
    v1::Assignment assignment = Diffusion();
    for (const char* app : {"one", "two", "three"}) assignment.add_app_ids(app);
    assignment.add_models("large");
    assignment.add_models("");
    const auto models = StageOf(assignment, Config()).models;
    QCOMPARE(models.size(), std::size_t{3});
    QCOMPARE(models[0].model_dir, std::string("/models/large"));
    QCOMPARE(models[1].model_dir, std::string());  // A stage without weights.
    QCOMPARE(models[2].app, std::string("three"));
    QCOMPARE(models[2].model_dir, std::string("/models/shared"));  // Named in the stage alone.
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::AssignmentTakerTest)
#include "assignment_taker_test.moc"
