// Tests of what an identity may do in the console, and of what is said when it may not.
#include "gui/models/permissions.h"

#include <QSignalSpy>
#include <QtTest>

#include "gui/models/job_wait.h"
#include "gui/models/pipeline_graph.h"
#include "gui/models/shown_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

constexpr std::string_view kAllMethods[] = {
    methods::kSubmitJob,   methods::kCancelJob,     methods::kDeleteJob,   methods::kFetchResult,
    methods::kProposePlan, methods::kApplyPlan,     methods::kConfirmPlan, methods::kUndoPlan,
    methods::kSetHold,     methods::kSetPoolLimits, methods::kStepDown,    methods::kTakeSnapshot};

v1::WhoAmIResponse Principal(const QStringList& scopes) {
  v1::WhoAmIResponse me;
  me.set_cluster_id("pirates");
  me.set_name("ci");
  me.set_tenant("films");
  me.set_shown("token");
  for (const QString& scope : scopes) me.add_scopes(scope.toStdString());
  return me;
}

v1::WhoAmIResponse Insecure() {
  v1::WhoAmIResponse me;
  me.set_name("insecure");
  me.set_tenant("default");
  me.set_shown("insecure");
  return me;
}

session::LinkStatus Live() {
  session::LinkStatus link;
  link.link = session::Link::kLive;
  return link;
}

}  // namespace

class GuiModelsPermissionsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Forbidden_NamesTheMissingScope_data() {
    QTest::addColumn<QStringList>("scopes");
    QTest::addColumn<QString>("method");
    QTest::addColumn<QString>("why");
    const auto row = [](const char* name, const char* scopes, std::string_view method,
                        const char* why) {
      QTest::newRow(name) << QString::fromUtf8(scopes).split(u',')
                          << QString::fromUtf8(method.data(), static_cast<int>(method.size()))
                          << QString::fromUtf8(why);
    };
    row("a program submits", "submit,read-own", methods::kSubmitJob, "");
    row("and fetches", "submit,read-own", methods::kFetchResult, "");
    row("it does not cancel", "submit,read-own", methods::kCancelJob,
        "Needs the scope cancel-own; ci has submit, read-own");
    row("it does not operate", "submit,read-own", methods::kApplyPlan,
        "Needs the scope operate; ci has submit, read-own");
    row("it does not look at plans", "submit,read-own", methods::kProposePlan,
        "Needs the scope read; ci has submit, read-own");
    row("who looks may ask", "read,read-own", methods::kProposePlan, "");
    row("who looks does not undo", "read,read-own", methods::kUndoPlan,
        "Needs the scope operate; ci has read, read-own");
    row("an operator drains", "operate", methods::kApplyPlan, "");
    row("what operate implies", "operate", methods::kCancelJob, "");
    row("an operator spends no quota", "operate", methods::kSubmitJob,
        "Needs the scope submit; ci has operate");
    row("a scope of a newer server", "submit,fly", methods::kSetHold,
        "Needs the scope operate; ci has submit, fly");
  }
  void Forbidden_NamesTheMissingScope() {
    QFETCH(QStringList, scopes);
    QFETCH(QString, method);
    QFETCH(QString, why);
    QCOMPARE(WhyForbidden(Principal(scopes), method.toStdString()), why);
  }

  void Forbidden_AdminAndInsecureMayDoEverything() {
    for (const std::string_view method : kAllMethods) {
      QCOMPARE(WhyForbidden(Principal({QStringLiteral("admin")}), method), QString());
      QCOMPARE(WhyForbidden(Insecure(), method), QString());
    }
  }

  void Forbidden_ANodeIsNoOperator() {
    v1::WhoAmIResponse me;
    me.set_name("proxy-1");
    me.set_shown("certificate");
    me.add_roles("proxy");
    QCOMPARE(WhyForbidden(me, methods::kApplyPlan),
             QStringLiteral("Needs the scope operate; proxy-1 has none"));
    QCOMPARE(IdentityTitle(me), QStringLiteral("proxy-1"));
  }

  void Theirs_NeedsOperate() {
    QCOMPARE(WhyNotTheirs(Principal({QStringLiteral("cancel-own")}), "films"), QString());
    const QString why = WhyNotTheirs(Principal({QStringLiteral("cancel-own")}), "games");
    QVERIFY2(why.contains(u"games") && why.contains(u"operate"), qPrintable(why));
    QVERIFY(WhyNotTheirs(Principal({QStringLiteral("cancel-own")}), "").contains(u"default"));
    QCOMPARE(WhyNotTheirs(Principal({QStringLiteral("operate")}), "games"), QString());
  }

  void Words_SayWhoThatIs() {
    v1::WhoAmIResponse me = Principal({QStringLiteral("submit"), QStringLiteral("read-own")});
    me.set_expires_unix_ms(1'000'000'000'000);
    QCOMPARE(IdentityTitle(me), QStringLiteral("ci · films"));
    const QString text = IdentityText(me, 1'000'000'000'000);
    for (const char* part : {"ci, by token", "Tenant: films", "Scopes: submit, read-own", "Valid"})
      QVERIFY2(text.contains(QLatin1String(part)), qPrintable(text));
    QVERIFY(IsSecure(me));
    QVERIFY(!IsSecure(Insecure()));
    QCOMPARE(IdentityTitle(Insecure()), QStringLiteral("Not secure"));
    QVERIFY(IdentityText(Insecure(), 0).contains(u"nothing is encrypted"));
    me.set_name("a\u202Eb");  // Right-to-left override.
    QVERIFY(!IdentityTitle(me).contains(QChar(0x202e)));
  }

  void Hidden_NothingFollowsFromNodesThatAreNotShown() {
    auto cluster = std::make_shared<v1::Cluster>();
    v1::Workflow& workflow = *cluster->add_workflows();
    workflow.set_app_id("t2v");
    workflow.add_stages()->set_stage("diffusion");
    v1::Node& proxy = *cluster->add_nodes();
    proxy.set_node_id("proxy-1");
    proxy.set_role(v1::PROXY);
    proxy.set_workflow_set("default");
    session::Snapshot snapshot;
    snapshot.cluster = {cluster, 1000, {}};
    QVERIFY(!AreNodesHidden(snapshot));
    QVERIFY(QueueNow(snapshot, "t2v").contains(u"No instance serves it"));
    QVERIFY(!PipelineModel().Update(snapshot).stages.empty());
    snapshot.cluster.error = "MISSING_SCOPE: principal/ci lacks scope read";
    QVERIFY(AreNodesHidden(snapshot));
    QVERIFY2(QueueNow(snapshot, "t2v").contains(u"is not known"),
             qPrintable(QueueNow(snapshot, "t2v")));
    v1::Job job;
    job.set_app_id("t2v");
    job.set_state(v1::Job::QUEUED);
    QVERIFY(WhyItWaits(snapshot, job, {}, 1000).contains(u"Which instances serve it is not known"));
    PipelineModel pipelines;
    QVERIFY(pipelines.Update(snapshot).stages.empty());
    QVERIFY2(pipelines.graph().empty.contains(u"scope read"), qPrintable(pipelines.graph().empty));
  }

  void Shown_TheScopeIsSaidBeforeTheMode() {
    ShownCluster shown_cluster;
    shown_cluster.Show(std::make_shared<session::Snapshot>(), Live());
    // Nothing is known yet: the mode alone counts.
    QVERIFY(shown_cluster.me() == nullptr);
    QVERIFY(shown_cluster.WhyNoChange(methods::kApplyPlan).contains(u"Ctrl+Shift+U"));
    QCOMPARE(shown_cluster.WhyForbidden(methods::kApplyPlan), QString());
    const QSignalSpy told(&shown_cluster, &ShownCluster::LinkChanged);
    shown_cluster.TakeIdentity(Principal({QStringLiteral("submit")}));
    QCOMPARE(told.count(), 1);
    QVERIFY(shown_cluster.WhyNoChange(methods::kApplyPlan).contains(u"operate"));
    QVERIFY(shown_cluster.WhyNoChange(methods::kSubmitJob).contains(u"Ctrl+Shift+U"));
    shown_cluster.Pause();
    QVERIFY(shown_cluster.WhyNoChange(methods::kApplyPlan).contains(u"operate"));
    shown_cluster.SetMode(ControlMode::kControl);
    QVERIFY(shown_cluster.WhyNoChange(methods::kSubmitJob).contains(u"past"));
    // Another cluster may know us otherwise.
    shown_cluster.Follow(nullptr);
    QVERIFY(shown_cluster.me() == nullptr);
  }
};

}  // namespace onepiece::gui

ONEPIECE_TEST(onepiece::gui::GuiModelsPermissionsTest)
#include "permissions_test.moc"
