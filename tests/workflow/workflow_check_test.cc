#include "cluster/workflow/workflow_check.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::workflow {

class WorkflowCheckTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void CheckWorkflow_NamesTheFieldThatIsWrong_data() {
    QTest::addColumn<QString>("field");
    QTest::addColumn<int>("change");
    int change = 0;
    for (const char* field : {"app_id",
                              "stages",
                              "stages[1].stage",
                              "stages[0].plugin",
                              "stages[0].mode",
                              "stages[0].min_instances",
                              "parameters[1].name",
                              "parameters[0].type",
                              "parameters[0].default_value",
                              "parameters[0].default_value",
                              "parameters[0].default_value",
                              "parameters[0].max_bytes",
                              "default_deadline_s",
                              "parameters[0].minimum",
                              "parameters[0].default_value",
                              "parameters[0].default_value",
                              "parameters[0].multiple_offset",
                              "parameters[0].default_value",
                              "inputs[0].name",
                              "inputs[1].name",
                              "inputs[0].max_bytes",
                              "inputs[0].max_bytes",
                              "inputs[0].media_types",
                              "inputs[0].media_types",
                              "inputs",
                              "stages[0].pool",
                              "stages[1].precision",
                              "stages[1].cost[1]",
                              "stages[0].cost[0]",
                              "stages[1].cost",
                              "stages[0].max_instances",
                              "stages[0].max_instances"}) {
      QTest::addRow("%d %s", change, field) << field << change;
      ++change;
    }
  }
  void CheckWorkflow_NamesTheFieldThatIsWrong() {
    QFETCH(QString, field);
    QFETCH(int, change);
    v1::Workflow workflow;
    workflow.set_app_id("app");
    for (const char* stage : {"a", "b"}) {
      workflow.add_stages()->set_stage(stage);
      workflow.mutable_stages(workflow.stages_size() - 1)->set_plugin("wan");
    }
    v1::ParameterSpec& steps = *workflow.add_parameters();
    steps.set_name("steps");
    steps.set_type(v1::ParameterSpec::INTEGER);
    steps.set_default_value("20");
    steps.set_minimum(1);
    steps.set_maximum(100);
    v1::InputSpec& image = *workflow.add_inputs();
    image.set_name("image");
    image.add_media_types("image/svg+xml");
    image.set_max_bytes(64 << 20);
    workflow.mutable_stages(0)->set_pool("text-v1.0");
    workflow.mutable_stages(1)->set_precision("bf16");
    workflow.mutable_stages(1)->add_cost("steps");
    workflow.mutable_stages(1)->set_min_instances(2);
    workflow.mutable_stages(1)->set_max_instances(2);
    QVERIFY(CheckWorkflow(workflow).ok());
    switch (change) {
      case 0:
        workflow.set_app_id("Not An Id");
        break;
      case 1:
        workflow.clear_stages();
        break;
      case 2:
        workflow.mutable_stages(1)->set_stage("a");
        break;
      case 3:
        workflow.mutable_stages(0)->set_plugin("../evil");
        break;
      case 4:
        workflow.mutable_stages(0)->set_mode(static_cast<v1::Mode>(77));
        break;
      case 5:
        workflow.mutable_stages(0)->set_min_instances(-1);
        break;
      case 6:
        *workflow.add_parameters() = v1::ParameterSpec(steps);
        break;
      case 7:
        steps.clear_type();
        break;
      case 8:
        steps.set_default_value("101");
        break;
      case 9:
        steps.set_default_value("2x");
        break;
      case 10:
        steps.set_multiple_of(3);
        break;
      case 11:
        steps.set_max_bytes(5);
        break;
      case 12:
        workflow.set_default_deadline_s(-1);
        break;
      case 13:
        steps.set_minimum(200);
        break;
      case 14:
        steps.set_default_value("");
        break;
      case 15:
        steps.set_required(true);
        break;
      case 16:
        steps.set_multiple_of(4);
        steps.set_multiple_offset(4);
        break;
      case 17:
        steps.set_default_value("-9223372036854775808");
        break;
      case 18:
        image.set_name("The image");
        break;
      case 19:
        *workflow.add_inputs() = v1::InputSpec(image);
        break;
      case 20:
        image.set_max_bytes(-1);
        break;
      case 21:
        image.set_max_bytes((64 << 20) + 1);
        break;
      case 22:
        image.add_media_types("image");
        break;
      case 23:
        image.add_media_types("image/*");
        break;
      case 24:
        for (int i = 0; i < 16; ++i) workflow.add_inputs()->set_name("i" + std::to_string(i));
        break;
      case 25:
        workflow.mutable_stages(0)->set_pool("../pool");
        break;
      case 26:
        workflow.mutable_stages(1)->set_precision("fp8");
        break;
      case 27:
        workflow.mutable_stages(1)->add_cost("width");
        break;
      case 28:
        workflow.add_parameters()->set_name("prompt");
        workflow.mutable_parameters(1)->set_type(v1::ParameterSpec::STRING);
        workflow.mutable_stages(0)->add_cost("prompt");
        break;
      case 29:
        for (int i = 0; i < 16; ++i) workflow.mutable_stages(1)->add_cost("steps");
        break;
      case 30:
        workflow.mutable_stages(0)->set_max_instances(-1);
        break;
      case 31:
        workflow.mutable_stages(0)->set_min_instances(3);
        workflow.mutable_stages(0)->set_max_instances(2);
        break;
      default:
        QFAIL("no such change");
    }
    const absl::Status status = CheckWorkflow(workflow);
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_WORKFLOW"));
    QCOMPARE(QString::fromStdString(base::GetReason(status).metadata.at("field")), field);
  }

  void CheckWorkflow_WantsOneGraph_data() {
    QTest::addColumn<QStringList>("after");  // For stages a, b, c, d: names separated by spaces.
    QTest::addColumn<QString>("field");      // Empty when the workflow is good.
    QTest::newRow("chain") << QStringList{"", "", "", ""} << "";
    QTest::newRow("diamond") << QStringList{"", "a", "a", "b c"} << "";
    QTest::newRow("two entrances") << QStringList{"", "", "a b", "c"} << "";
    QTest::newRow("a short cut") << QStringList{"", "a", "b", "a c"} << "";
    QTest::newRow("itself") << QStringList{"", "b", "", ""} << "stages[1].after[0]";
    QTest::newRow("a later stage") << QStringList{"", "c", "a", "b c"} << "stages[1].after[0]";
    QTest::newRow("nobody") << QStringList{"", "a", "b", "c e"} << "stages[3].after[1]";
    QTest::newRow("twice") << QStringList{"", "a", "b", "c c"} << "stages[3].after[1]";
    QTest::newRow("a dead end") << QStringList{"", "a", "a", "b"} << "stages[2].stage";
    QTest::newRow("an entrance that leads nowhere")
        << QStringList{"", "", "a", "c"} << "stages[1].stage";
  }
  void CheckWorkflow_WantsOneGraph() {
    QFETCH(QStringList, after);
    QFETCH(QString, field);
    v1::Workflow workflow;
    workflow.set_app_id("app");
    for (int i = 0; i < after.size(); ++i) {
      v1::StageSpec& stage = *workflow.add_stages();
      stage.set_stage(std::string(1, static_cast<char>('a' + i)));
      stage.set_plugin("wan");
      for (const QString& name : after[i].split(' ', Qt::SkipEmptyParts))
        stage.add_after(name.toStdString());
    }
    const absl::Status status = CheckWorkflow(workflow);
    QCOMPARE(status.ok(), field.isEmpty());
    if (status.ok()) return;
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_WORKFLOW"));
    QCOMPARE(QString::fromStdString(base::GetReason(status).metadata.at("field")), field);
  }

  void CheckWorkflow_BoundsTheEdges() {
    v1::Workflow workflow;
    workflow.set_app_id("app");
    for (int i = 0; i < 30; ++i) {
      v1::StageSpec& stage = *workflow.add_stages();
      stage.set_stage("s" + std::to_string(i));
      stage.set_plugin("wan");
      for (int k = 0; k < i; ++k) stage.add_after("s" + std::to_string(k));
    }
    QCOMPARE(base::GetReason(CheckWorkflow(workflow)).metadata.at("field"), std::string("stages"));
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::WorkflowCheckTest)
#include "workflow_check_test.moc"
