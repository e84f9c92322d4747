#include "cluster/workflow/workflow_check.h"

#include <QtTest>
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::workflow {
namespace {

// A change that makes the workflow below wrong, and the field that CheckWorkflow() then names.
struct WrongWorkflow {
  const char* field;
  void (*change)(v1::Workflow& workflow);
};

std::vector<WrongWorkflow> WrongCosts() {
  using W = v1::Workflow;
  return {
      {"stages[1].cost[1]", [](W& w) { w.mutable_stages(1)->add_cost("width"); }},
      {"stages[0].cost[0]",
       [](W& w) {
         w.add_parameters()->set_name("prompt");
         w.mutable_parameters(1)->set_type(v1::ParameterSpec::STRING);
         w.mutable_stages(0)->add_cost("prompt");
       }},
      {"stages[1].cost",
       [](W& w) {
         for (int i = 0; i < 16; ++i) w.mutable_stages(1)->add_cost("steps");
       }},
      {"stages[1].cost_terms", [](W& w) { w.mutable_stages(1)->add_cost_terms(); }},
      {"stages[0].cost_terms",
       [](W& w) {
         for (int i = 0; i < 5; ++i) w.mutable_stages(0)->add_cost_terms();
       }},
      {"stages[0].cost_terms[1].factors[0]",
       [](W& w) {
         w.mutable_stages(0)->add_cost_terms();
         w.mutable_stages(0)->add_cost_terms()->add_factors("width");
       }},
      {"stages[0].cost_terms[0].factors[1]",
       [](W& w) {
         w.add_parameters()->set_name("prompt");
         w.mutable_parameters(1)->set_type(v1::ParameterSpec::STRING);
         w.mutable_stages(0)->add_cost_terms()->add_factors("steps");
         w.mutable_stages(0)->mutable_cost_terms(0)->add_factors("prompt");
       }},
      {"stages[0].cost_terms[0].factors",
       [](W& w) {
         v1::CostTerm& term = *w.mutable_stages(0)->add_cost_terms();
         for (int i = 0; i < 9; ++i) term.add_factors("steps");
       }},
  };
}

std::vector<WrongWorkflow> WrongStructures() {
  using W = v1::Workflow;
  return {
      {"app_id", [](W& w) { w.set_app_id("Not An Id"); }},
      {"stages", [](W& w) { w.clear_stages(); }},
      {"stages[1].stage", [](W& w) { w.mutable_stages(1)->set_stage("a"); }},
      {"stages[0].plugin", [](W& w) { w.mutable_stages(0)->set_plugin("../evil"); }},
      {"stages[0].mode", [](W& w) { w.mutable_stages(0)->set_mode(static_cast<v1::Mode>(77)); }},
      {"stages[1].parallel", [](W& w) { w.mutable_stages(1)->mutable_parallel()->set_cfg(2); }},
      {"stages[1].parallel.cfg",
       [](W& w) {
         w.mutable_stages(1)->set_mode(v1::MODE_COLLABORATION);
         w.mutable_stages(1)->mutable_parallel()->set_cfg(3);
       }},
      {"stages[1].parallel.sequence",
       [](W& w) {
         w.mutable_stages(1)->set_mode(v1::MODE_COLLABORATION);
         w.mutable_stages(1)->mutable_parallel()->set_sequence(65);
       }},
      {"stages[0].min_instances", [](W& w) { w.mutable_stages(0)->set_min_instances(-1); }},
      {"parameters[1].name",
       [](W& w) { *w.add_parameters() = v1::ParameterSpec(w.parameters(0)); }},
      {"parameters[0].type", [](W& w) { w.mutable_parameters(0)->clear_type(); }},
      {"parameters[0].default_value",
       [](W& w) { w.mutable_parameters(0)->set_default_value("101"); }},
      {"parameters[0].default_value",
       [](W& w) { w.mutable_parameters(0)->set_default_value("2x"); }},
      {"parameters[0].default_value", [](W& w) { w.mutable_parameters(0)->set_multiple_of(3); }},
      {"parameters[0].max_bytes", [](W& w) { w.mutable_parameters(0)->set_max_bytes(5); }},
      {"default_deadline_s", [](W& w) { w.set_default_deadline_s(-1); }},
      {"retries", [](W& w) { w.set_retries(-1); }},
      {"retries", [](W& w) { w.set_retries(21); }},
      {"parameters[0].minimum", [](W& w) { w.mutable_parameters(0)->set_minimum(200); }},
      {"parameters[0].default_value", [](W& w) { w.mutable_parameters(0)->set_default_value(""); }},
      {"parameters[0].default_value", [](W& w) { w.mutable_parameters(0)->set_required(true); }},
      {"parameters[0].multiple_offset",
       [](W& w) {
         w.mutable_parameters(0)->set_multiple_of(4);
         w.mutable_parameters(0)->set_multiple_offset(4);
       }},
      {"parameters[0].default_value",
       [](W& w) { w.mutable_parameters(0)->set_default_value("-9223372036854775808"); }},
      {"inputs[0].name", [](W& w) { w.mutable_inputs(0)->set_name("The image"); }},
      {"inputs[1].name", [](W& w) { *w.add_inputs() = v1::InputSpec(w.inputs(0)); }},
      {"inputs[0].max_bytes", [](W& w) { w.mutable_inputs(0)->set_max_bytes(-1); }},
      {"inputs[0].max_bytes", [](W& w) { w.mutable_inputs(0)->set_max_bytes((64 << 20) + 1); }},
      {"inputs[0].media_types", [](W& w) { w.mutable_inputs(0)->add_media_types("image"); }},
      {"inputs[0].media_types", [](W& w) { w.mutable_inputs(0)->add_media_types("image/*"); }},
      {"inputs",
       [](W& w) {
         for (int i = 0; i < 16; ++i) w.add_inputs()->set_name("i" + std::to_string(i));
       }},
      {"stages[0].pool", [](W& w) { w.mutable_stages(0)->set_pool("../pool"); }},
      {"stages[1].precision", [](W& w) { w.mutable_stages(1)->set_precision("fp8"); }},
      {"stages[1].device", [](W& w) { w.mutable_stages(1)->set_device("cuda:0"); }},
      {"stages[1].device_memory_bytes",
       [](W& w) { w.mutable_stages(1)->set_device_memory_bytes(-1); }},
      {"stages[0].max_instances", [](W& w) { w.mutable_stages(0)->set_max_instances(-1); }},
      {"stages[0].max_instances",
       [](W& w) {
         w.mutable_stages(0)->set_min_instances(3);
         w.mutable_stages(0)->set_max_instances(2);
       }},
  };
}

const std::vector<WrongWorkflow>& WrongWorkflows() {
  static const std::vector<WrongWorkflow> wrong = [] {
    std::vector<WrongWorkflow> all = WrongStructures();
    std::ranges::copy(WrongCosts(), std::back_inserter(all));
    return all;
  }();
  return wrong;
}

v1::Workflow GoodWorkflow() {
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
  return workflow;
}

}  // namespace

class WorkflowCheckTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void CheckWorkflow_TakesCostTerms() {
    v1::Workflow workflow = GoodWorkflow();
    for (int i = 0; i < 4; ++i) {
      v1::CostTerm& term = *workflow.mutable_stages(0)->add_cost_terms();
      for (int k = 0; k < 8 * i / 3; ++k) term.add_factors("steps");
    }
    QCOMPARE(CheckWorkflow(workflow), absl::OkStatus());
  }

  void CheckWorkflow_NamesTheFieldThatIsWrong_data() {
    QTest::addColumn<int>("change");
    for (int i = 0; i < static_cast<int>(WrongWorkflows().size()); ++i) {
      QTest::addRow("%d %s", i, WrongWorkflows()[static_cast<std::size_t>(i)].field) << i;
    }
  }
  void CheckWorkflow_NamesTheFieldThatIsWrong() {
    QFETCH(int, change);
    const WrongWorkflow& wrong = WrongWorkflows()[static_cast<std::size_t>(change)];
    v1::Workflow workflow = GoodWorkflow();
    QVERIFY(CheckWorkflow(workflow).ok());
    wrong.change(workflow);
    const absl::Status status = CheckWorkflow(workflow);
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_WORKFLOW"));
    QCOMPARE(base::GetReason(status).metadata.at("field"), std::string(wrong.field));
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
