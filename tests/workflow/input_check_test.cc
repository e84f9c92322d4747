#include "cluster/workflow/input_check.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::workflow {
namespace {

v1::Workflow ImageAndMask() {
  v1::Workflow workflow;
  workflow.set_app_id("app");
  v1::InputSpec& image = *workflow.add_inputs();
  image.set_name("image");
  image.set_required(true);
  image.add_media_types("image/png");
  image.add_media_types("image/jpeg");
  image.set_max_bytes(1000);
  workflow.add_inputs()->set_name("notes");
  return workflow;
}

void Add(v1::SubmitJobRequest& request, const std::string& name, const std::string& type,
         std::string data) {
  v1::JobInput& input = *request.add_inputs();
  input.set_name(name);
  input.set_media_type(type);
  input.set_data(std::move(data));
}

std::map<std::string, std::string> Violations(const v1::SubmitJobRequest& request,
                                              const v1::Workflow& workflow = ImageAndMask()) {
  const absl::Status status = CheckInputs(workflow, request.inputs());
  const base::ErrorReason reason = base::GetReason(status);
  if (!status.ok() &&
      (status.code() != absl::StatusCode::kInvalidArgument || reason.reason != "INVALID_INPUTS")) {
    return {{"unexpected", status.ToString()}};
  }
  return reason.metadata;
}

}  // namespace

class InputCheckTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void GoodInputs_AreTaken() {
    v1::SubmitJobRequest request;
    Add(request, "image", "image/jpeg", std::string(1000, 'x'));
    QVERIFY(Violations(request).empty());
    Add(request, "notes", "", "anything");
    QVERIFY(Violations(request).empty());
    QVERIFY(CheckInputs(v1::Workflow(), v1::SubmitJobRequest().inputs()).ok());
  }

  void EveryViolation_IsNamedAtOnce() {
    v1::SubmitJobRequest request;
    Add(request, "notes", "text/plain", "");
    Add(request, "extra", "image/png", "x");
    const auto violations = Violations(request);
    QCOMPARE(violations.size(), std::size_t{3});
    QCOMPARE(violations.at("image"), std::string("is required"));
    QCOMPARE(violations.at("notes"), std::string("is empty"));
    QCOMPARE(violations.at("extra"), std::string("is not an input of app"));
  }

  void MediaTypeSizeAndCount_AreChecked() {
    v1::SubmitJobRequest request;
    Add(request, "image", "image/tiff", "x");
    QCOMPARE(Violations(request).at("image"),
             std::string("is image/tiff, must be one of: image/png, image/jpeg"));
    request.mutable_inputs(0)->clear_media_type();
    QCOMPARE(Violations(request).at("image"),
             std::string("is of no known media type, must be one of: image/png, image/jpeg"));
    request.mutable_inputs(0)->set_media_type("image/png");
    request.mutable_inputs(0)->set_data(std::string(1001, 'x'));
    QCOMPARE(Violations(request).at("image"),
             std::string("has 1001 bytes, at most 1000 are allowed"));
    request.mutable_inputs(0)->set_data("x");
    Add(request, "image", "image/png", "y");
    QCOMPARE(Violations(request).at("image"), std::string("is given twice"));
  }

  void Sizes_HaveADefaultAndASum() {
    v1::Workflow workflow;
    for (const char* name : {"a", "b", "c"}) workflow.add_inputs()->set_name(name);
    v1::SubmitJobRequest request;
    Add(request, "a", "", std::string(32 << 20, 'x'));
    Add(request, "b", "", std::string(32 << 20, 'x'));
    QVERIFY(Violations(request, workflow).empty());
    Add(request, "c", "", "x");
    QVERIFY(Violations(request, workflow).contains("inputs"));
    request.mutable_inputs()->RemoveLast();
    request.mutable_inputs(0)->mutable_data()->push_back('x');
    QVERIFY(Violations(request, workflow).contains("a"));
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::InputCheckTest)
#include "input_check_test.moc"
