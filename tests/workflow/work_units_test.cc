#include "cluster/workflow/work_units.h"

#include <QtTest>
#include <limits>

#include "tests/test_main.h"

namespace onepiece::workflow {
namespace {

v1::Workflow SizedWorkflow() {
  v1::Workflow workflow;
  workflow.add_stages()->set_stage("encode");
  v1::StageSpec& paint = *workflow.add_stages();
  paint.set_stage("paint");
  paint.add_cost("steps");
  paint.add_cost("width");
  paint.add_cost("scale");
  const auto add = [&](const char* name, v1::ParameterSpec::Type type, const char* standard,
                       double minimum, double maximum) {
    v1::ParameterSpec& spec = *workflow.add_parameters();
    spec.set_name(name);
    spec.set_type(type);
    spec.set_default_value(standard);
    spec.set_minimum(minimum);
    spec.set_maximum(maximum);
  };
  add("steps", v1::ParameterSpec::INTEGER, "20", 1, 100);
  add("width", v1::ParameterSpec::INTEGER, "64", 16, 512);
  add("scale", v1::ParameterSpec::NUMBER, "0.5", 0, 0);  // Unbounded.
  return workflow;
}

google::protobuf::Struct Given(const std::map<std::string, double>& values) {
  google::protobuf::Struct given;
  for (const auto& [name, value] : values) (*given.mutable_fields())[name].set_number_value(value);
  return given;
}

}  // namespace

class WorkUnitsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void WorkUnits_IsTheProductOfWhatCostNames() {
    const v1::Workflow workflow = SizedWorkflow();
    const auto units = [&](const std::map<std::string, double>& values) {
      return WorkUnits(workflow, workflow.stages(1), Given(values));
    };
    QCOMPARE(units({{"steps", 10}, {"width", 32}, {"scale", 2}}), 640.0);
    QCOMPARE(units({{"steps", 10}}), 10 * 64 * 0.5);
    QCOMPARE(units({}), 20 * 64 * 0.5);
    QCOMPARE(WorkUnits(workflow, workflow.stages(0), Given({{"steps", 10}})), 1.0);
  }

  void WorkUnits_OfCheckedParametersIsTheSame() {
    const v1::Workflow workflow = SizedWorkflow();
    const message::Parameters parameters = {
        {"steps", std::int64_t{10}}, {"width", std::int64_t{32}}, {"scale", 2.0}};
    QCOMPARE(WorkUnits(workflow, workflow.stages(1), parameters), 640.0);
    QCOMPARE(WorkUnits(workflow, workflow.stages(1), message::Parameters()), 640.0);
    const message::Parameters text = {{"steps", std::string("10")}, {"width", true}};
    QCOMPARE(WorkUnits(workflow, workflow.stages(1), text), 640.0);
  }

  void WorkTerms_AreTheProductsOfTheTerms() {
    v1::Workflow workflow = SizedWorkflow();
    v1::StageSpec& paint = *workflow.mutable_stages(1);
    QVERIFY(WorkTerms(workflow, paint, Given({})).empty());
    paint.clear_cost();
    paint.add_cost_terms();
    for (const int times : {1, 2}) {
      v1::CostTerm& term = *paint.add_cost_terms();
      term.add_factors("steps");
      for (int i = 0; i < times; ++i) term.add_factors("width");
    }
    const std::vector<double> expected = {1, 10 * 32, 10 * 32 * 32};
    QCOMPARE(WorkTerms(workflow, paint, Given({{"steps", 10}, {"width", 32}})), expected);
    const message::Parameters parameters = {{"steps", std::int64_t{10}},
                                            {"width", std::int64_t{32}}};
    QCOMPARE(WorkTerms(workflow, paint, parameters), expected);
    // The first term that names a parameter counts as the units.
    QCOMPARE(UnitTerm(paint), 1);
    QCOMPARE(WorkUnits(workflow, paint, parameters), 320.0);
    workflow.mutable_parameters(0)->set_minimum(0);
    QCOMPARE(WorkTerms(workflow, paint, Given({{"steps", 0}}))[1], 0.0);
  }

  void WorkUnits_KeepsNonsenseWithinBounds() {
    v1::Workflow workflow = SizedWorkflow();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    const auto units = [&](const std::map<std::string, double>& values) {
      return WorkUnits(workflow, workflow.stages(1), Given(values));
    };
    QCOMPARE(units({{"steps", 1e300}}), 100 * 64 * 0.5);
    QCOMPARE(units({{"steps", -7}}), 1 * 64 * 0.5);
    QCOMPARE(units({{"steps", nan}, {"width", infinity}}), 640.0);
    QCOMPARE(units({{"scale", 1e300}}), 1e18);
    QCOMPARE(units({{"scale", -1}}), 1e-9);
    QCOMPARE(units({{"scale", 0}}), 1e-9);
    google::protobuf::Struct text;
    (*text.mutable_fields())["steps"].set_string_value("1000");
    (*text.mutable_fields())["width"].mutable_list_value();
    QCOMPARE(WorkUnits(workflow, workflow.stages(1), text), 640.0);
    workflow.mutable_stages(1)->add_cost("scale");
    workflow.mutable_parameters(2)->set_default_value("1e308");
    workflow.mutable_stages(1)->add_cost("zero");  // Not in the schema.
    QCOMPARE(units({}), 1e18);
    workflow.mutable_parameters(0)->set_minimum(0);
    QCOMPARE(units({{"steps", 0}}), 1e-9);
    workflow.mutable_parameters(2)->set_default_value("no number");
    QCOMPARE(units({}), 1e-9);
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::WorkUnitsTest)
#include "work_units_test.moc"
