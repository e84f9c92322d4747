// Tests the file of a configuration and the paths into a configuration.
#include "cluster/config/config_file.h"

#include <QtTest>

#include "cluster/config/config_changes.h"
#include "cluster/config/config_path.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/test_main.h"

namespace onepiece::config {
namespace {

constexpr char kFile[] = R"(
elasticity: {policy: static, threshold: 0.5}
workflow_sets:
  - name: default
    pools:
      - {pool: diffusion/wan/tiny.1;2 threads, min_instances: 2}
workflows:
  - app_id: film
    stages:
      - {stage: encode, mode: collaboration, after: [a, b]}
    retries: 0
)";

v1::ClusterConfig Config() {
  const auto file = ParseConfigFile(kFile, "test");
  if (!file.ok()) qFatal("%s", file.status().ToString().c_str());
  return file->config;
}

QString Reason(const absl::Status& status) {
  return QString::fromStdString(base::GetReason(status).reason);
}

}  // namespace

class ConfigFileTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Sections_AreThoseThatTheFileNames() {
    const auto file = ParseConfigFile("alerts: []\nelasticity: {}\n", "x.yaml");
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    QVERIFY((file->sections == std::vector<std::string>{"alerts", "elasticity"}));
    QVERIFY(file->config.has_elasticity());
  }

  void Example_OfTheDocuments_HasEverySection() {
    QFile example(ONEPIECE_SOURCE_DIR "/docs/examples/cluster.yaml");
    QVERIFY(example.open(QIODevice::ReadOnly));
    const auto file = ParseConfigFile(example.readAll().toStdString(), "cluster.yaml");
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    QCOMPARE(file->sections, ConfigSections());
    const auto back = ParseConfigFile(ConfigFileText(file->config), "written");
    QVERIFY2(back.ok(), base::Message(back.status()).c_str());
    QVERIFY(ConfigChanges(file->config, back->config).empty());
  }

  void BadFiles_SayWhatIsWrong_data() {
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<QString>("error");
    const auto row = [](const char* name, const QByteArray& text, const char* error) {
      QTest::newRow(name) << text << error;
    };
    row("a workflow file", "app_id: film\nstages: []\n",
        "x.yaml:1:1: this is the file of one workflow");
    row("a workflow file, stages first", "# x\nstages: []\napp_id: film\n",
        "x.yaml:2:1: this is the file of one workflow");
    row("empty", "", "x.yaml:1:1: there is no section in it");
    row("only comments", "# alerts: []\n", "x.yaml:1:1: there is no section in it");
    row("an empty mapping", "{}", "x.yaml:1:1: there is no section in it");
    row("all lines of a section are comments", "liveness: {}\nworkflows:\n#  - app_id: a\n",
        "x.yaml:2:1: 'workflows' has no value: write [] or {}");
    row("unknown section", "elastic: {}", "x.yaml:1:1: unknown key 'elastic' in ClusterConfig");
    row("unknown field", "liveness: {dead: 5}",
        "x.yaml:1:12: unknown key 'dead' in LivenessConfig");
    row("a list", "- a", "x.yaml:1:1: there is no section in it");
    row("too large", QByteArray((1 << 20) + 1, '#'), "x.yaml:1:1: larger than 1024 KiB");
    row("no YAML", "alerts: [}", "x.yaml:1:");
  }
  void BadFiles_SayWhatIsWrong() {
    QFETCH(QByteArray, text);
    QFETCH(QString, error);
    const auto file = ParseConfigFile(text.toStdString(), "x.yaml");
    QCOMPARE(Reason(file.status()), QString("BAD_CONFIG"));
    const QString message = QString::fromStdString(base::Message(file.status()));
    QVERIFY2(message.startsWith(error), qPrintable(message));
  }

  // A cluster with a hundred applications still fits into a file.
  void LargeFiles_AreRead() {
    v1::ClusterConfig config;
    for (int i = 0; i < 100; ++i) {
      v1::Workflow& workflow = *config.add_workflows();
      workflow.set_app_id("app-" + std::to_string(i));
      for (int p = 0; p < 20; ++p) {
        v1::ParameterSpec& parameter = *workflow.add_parameters();
        parameter.set_name("parameter-" + std::to_string(p));
        parameter.set_description(std::string(100, 'x'));
        parameter.set_type(v1::ParameterSpec::INTEGER);
      }
    }
    const std::string text = ConfigFileText(config);
    QVERIFY(text.size() > std::size_t{300} << 10);
    const auto file = ParseConfigFile(text, "x.yaml");
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    QVERIFY(google::protobuf::util::MessageDifferencer::Equals(file->config, config));
  }

  void Text_IsReadBackWithNoDifference() {
    v1::ClusterConfig config = Config();
    config.mutable_workflows(0)->set_name("workflows/film");
    const std::string text = ConfigFileText(config);
    QVERIFY2(text.find("workflows/film") == std::string::npos, text.c_str());
    const auto file = ParseConfigFile(text, "exported");
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    QVERIFY(ConfigChanges(config, file->config).empty());
    QCOMPARE(QString::fromStdString(ConfigFileText(file->config)), QString::fromStdString(text));
  }

  void Find_GivesTheYamlOfAPart_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("yaml");
    const auto row = [](const char* path, const char* yaml) {
      QTest::newRow(path) << path << yaml;
    };
    row("elasticity.threshold", "0.5\n");
    row("elasticity.window_s", "");  // Not set.
    row("elasticity", "policy: static\nthreshold: 0.5\n");
    row("liveness", "");
    row("liveness.dead_after_ms", "");
    row("alerts", "");
    row("workflows[film].retries", "0\n");
    row("workflows[film].stages[encode]", "stage: encode\nmode: collaboration\nafter: [a, b]\n");
    row("workflows[film].stages[encode].mode", "collaboration\n");
    row("workflows[film].stages[encode].after", "[a, b]\n");
    row("workflow_sets[default].pools[diffusion/wan/tiny.1;2 threads].min_instances", "2\n");
    row("workflow_sets",
        "- name: default\n  pools:\n    - pool: \"diffusion/wan/tiny.1;2 "
        "threads\"\n      min_instances: 2\n");
  }
  void Find_GivesTheYamlOfAPart() {
    QFETCH(QString, path);
    QFETCH(QString, yaml);
    const v1::ClusterConfig config = Config();
    const auto part = FindConfigPart(config, path.toStdString());
    QVERIFY2(part.ok(), base::Message(part.status()).c_str());
    QCOMPARE(QString::fromStdString(ConfigPartToYaml(*part)), yaml);
  }

  void UnknownPaths_AreNotFound_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("says");
    const auto row = [](const char* path, const char* says) {
      QTest::newRow(path) << path << says;
    };
    row("elastcity", "did you mean 'elasticity'?");
    row("elasticity.treshold", "did you mean 'threshold'?");
    row("elasticity.policy.name", "'policy' has no fields");
    row("workflows.film", "'workflows' is a list: name an element");
    row("workflows[flim]", "'workflows'; known: film");
    row("alerts[hot]", "'alerts', which is empty");
    row("elasticity[x]", "no elements that are known by a name");
    row("workflows[film", "a ']' is missing");
    row("workflows[film]stages", "after an element comes '.'");
    row("", "a field's name is missing");
    row("elasticity.", "a field's name is missing");
    row("elasticity..policy", "a field's name is missing");
  }
  void UnknownPaths_AreNotFound() {
    QFETCH(QString, path);
    QFETCH(QString, says);
    v1::ClusterConfig config = Config();
    const auto part = FindConfigPart(config, path.toStdString());
    QCOMPARE(Reason(part.status()), QString("KEY_UNKNOWN"));
    const QString message = QString::fromStdString(base::Message(part.status()));
    QVERIFY2(message.contains(says), qPrintable(message));
    QVERIFY(!SetConfigValue(path.toStdString(), "1", config).ok());
    QVERIFY(ConfigChanges(Config(), config).empty());
  }

  void Set_ChangesOneField_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("value");
    QTest::addColumn<QString>("yaml");
    const auto row = [](const char* path, const char* value, const char* yaml) {
      QTest::newRow(path) << path << value << yaml;
    };
    row("elasticity.threshold", "0.9", "0.9\n");
    row("elasticity.policy", "utilization", "utilization\n");
    row("elasticity.policy", "a: [1] #", "\"a: [1] #\"\n");
    row("liveness.dead_after_ms", "4000", "4000\n");
    row("workflows[film].stages[encode].mode", "INDIVIDUAL", "individual\n");
    row("workflows[film].display_name", "20", "\"20\"\n");
    row("workflow_sets[set-2].pools[decode/wan/tiny].max_instances", "3", "3\n");
  }
  void Set_ChangesOneField() {
    QFETCH(QString, path);
    QFETCH(QString, value);
    QFETCH(QString, yaml);
    v1::ClusterConfig config = Config();
    const absl::Status status = SetConfigValue(path.toStdString(), value.toStdString(), config);
    QVERIFY2(status.ok(), base::Message(status).c_str());
    const auto part = FindConfigPart(config, path.toStdString());
    QVERIFY(part.ok());
    QCOMPARE(QString::fromStdString(ConfigPartToYaml(*part)), yaml);
    QCOMPARE(ConfigChanges(Config(), config).size(), std::size_t{1});
  }

  void Set_WrongValues_AreNamed_data() {
    QTest::addColumn<QString>("path");
    QTest::addColumn<QString>("value");
    QTest::addColumn<QString>("error");
    const auto row = [](const char* path, const char* value, const char* error) {
      QTest::newRow(value) << path << value << error;
    };
    row("elasticity.threshold", "high",
        "'elasticity.threshold': 'threshold' takes a number, not 'high'");
    row("elasticity.threshold", "0.5\npolicy: static",
        "'elasticity.threshold': 'threshold' takes a number");
    row("elasticity.threshold", "", "'elasticity.threshold': 'threshold' takes a number");
    row("liveness.dead_after_ms", "99999999999",
        "'liveness.dead_after_ms': 'dead_after_ms': '99999999999' is out");
    row("workflows[film].stages[encode].mode", "pair",
        "'workflows[film].stages[encode].mode': 'mode' cannot be");
    row("elasticity", "{}", "'elasticity': this is not one value");
    row("workflows[film].stages[encode].after", "[x]",
        "'workflows[film].stages[encode].after': this is not one");
    row("workflows[film]", "{ }", "'workflows[film]': this is a whole element");
  }
  void Set_WrongValues_AreNamed() {
    QFETCH(QString, path);
    QFETCH(QString, value);
    QFETCH(QString, error);
    v1::ClusterConfig config = Config();
    const absl::Status status = SetConfigValue(path.toStdString(), value.toStdString(), config);
    QCOMPARE(Reason(status), QString("BAD_CONFIG"));
    const QString message = QString::fromStdString(base::Message(status));
    QVERIFY2(message.startsWith(error), qPrintable(message));
    QVERIFY(ConfigChanges(Config(), config).empty());
  }

  void Limits_AreSetShownAndWritten() {
    v1::ClusterConfig config = Config();
    QVERIFY(SetConfigValue("limits.proxies.max_jobs_in_flight", "7", config).ok());
    QVERIFY(SetConfigValue("limits.databases.budget_bytes", "1073741824", config).ok());
    QCOMPARE(config.limits().proxies().max_jobs_in_flight(), 7);
    const auto part = FindConfigPart(config, "limits.proxies");
    QVERIFY(part.ok());
    QVERIFY(ConfigPartToYaml(*part).find("max_jobs_in_flight: 7") != std::string::npos);
    const auto read = ParseConfigFile(ConfigFileText(config), "written");
    QVERIFY(read.ok());
    QVERIFY(ConfigChanges(config, read->config).empty());
    const absl::Status unknown = SetConfigValue("limits.proxies.max_jobs", "7", config);
    QCOMPARE(Reason(unknown), QString("KEY_UNKNOWN"));
    QCOMPARE(Reason(SetConfigValue("limits.proxies.max_jobs_in_flight", "many", config)),
             QString("BAD_CONFIG"));
  }

  // A typing mistake in an application's name makes no application.
  void Set_MakesNoApplication() {
    v1::ClusterConfig config = Config();
    const absl::Status status = SetConfigValue("workflows[flim].retries", "1", config);
    QCOMPARE(Reason(status), QString("KEY_UNKNOWN"));
    QCOMPARE(config.workflows_size(), 1);
  }
};

}  // namespace onepiece::config

ONEPIECE_TEST(onepiece::config::ConfigFileTest)
#include "config_file_test.moc"
