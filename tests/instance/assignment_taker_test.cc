#include "stages/instance/assignment_taker.h"

#include <QtTest>

#include "cluster/base/status.h"
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

  void StageOf_Devices_AreWorkers_OrComputeTogether() {
    v1::InstanceConfig config = Config();
    config.set_workers(2);
    config.add_devices("cpu:0");
    config.add_devices("cpu:1");
    v1::Assignment assignment = Diffusion();
    assignment.add_app_ids("one");
    const runtime::StageAssignment alone = StageOf(assignment, config);
    QCOMPARE(alone.devices, (std::vector<std::string>{"cpu:0", "cpu:1"}));
    QCOMPARE(alone.workers, 2);
    assignment.mutable_stage()->set_mode(v1::MODE_COLLABORATION);
    const runtime::StageAssignment together = StageOf(assignment, config);
    QCOMPARE(together.load.device, std::string("cpu:0,cpu:1"));
    QCOMPARE(together.workers, 1);
    QVERIFY(together.devices.empty() && !together.load.plan.has_value());
    assignment.mutable_stage()->mutable_parallel()->set_cfg(2);
    const runtime::StageAssignment planned = StageOf(assignment, config);
    QVERIFY(planned.load.plan == (sdk::ParallelPlan{.cfg = 2, .sequence = 1}));
    QVERIFY(planned.models[0].refused.ok());
  }

  void StageOf_APlanForOtherDevices_IsRefused() {
    v1::Assignment assignment = Diffusion();
    assignment.add_app_ids("one");
    assignment.mutable_stage()->set_mode(v1::MODE_COLLABORATION);
    assignment.mutable_stage()->mutable_parallel()->set_sequence(2);
    const auto models = StageOf(assignment, Config()).models;
    QCOMPARE(base::GetReason(models[0].refused).reason, std::string("BAD_PLAN"));
    QVERIFY2(base::Message(models[0].refused).find("cfg=1 x sequence=2 = 2 workers") !=
                 std::string::npos,
             base::Message(models[0].refused).c_str());
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
