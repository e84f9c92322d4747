#include "cluster/config/yaml.h"

#include <QElapsedTimer>
#include <QTemporaryDir>
#include <QtTest>
#include <fstream>
#include <functional>

#include "example.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/test_main.h"

namespace onepiece::config {
namespace {

using testing::Example;
using testing::Inner;

std::string Repeat(std::string_view text, std::size_t count) {
  std::string repeated;
  for (std::size_t i = 0; i < count; ++i) repeated += text;
  return repeated;
}

}  // namespace

class YamlTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ParseYaml_SetsFieldsOfEveryType() {
    Example example;
    const auto status = ParseYaml(R"(# A comment.
name: tiny wan
small: -7
large: 9223372036854775807
count: 4294967295
size: 18446744073709551615
ratio: 5
share: 2.5e-1
enabled: true
fruit: pear
inner: {depth: 1, inner: {depth: 2}}
names: [a, "b c", 'd']
inners:
  - depth: 3
  - {}
numbers: {one: 1, "two": 2}
by_number:
  -5:
    depth: 4
right: 6
fruits: [FRUIT_APPLE, Pear]
)",
                                  "x.yaml", &example);
    QVERIFY2(status.ok(), base::Message(status).c_str());
    QCOMPARE(example.name(), std::string("tiny wan"));
    QCOMPARE(example.small(), -7);
    QCOMPARE(example.large(), std::numeric_limits<std::int64_t>::max());
    QCOMPARE(example.count(), std::numeric_limits<std::uint32_t>::max());
    QCOMPARE(example.size(), std::numeric_limits<std::uint64_t>::max());
    QCOMPARE(example.ratio(), 5.0);
    QCOMPARE(example.share(), 0.25F);
    QVERIFY(example.enabled());
    QVERIFY(example.fruit() == testing::FRUIT_PEAR);
    QCOMPARE(example.inner().depth(), 1);
    QCOMPARE(example.inner().inner().depth(), 2);
    QCOMPARE(example.names_size(), 3);
    QCOMPARE(example.names(1), std::string("b c"));
    QCOMPARE(example.inners_size(), 2);
    QCOMPARE(example.inners(0).depth(), 3);
    QCOMPARE(example.numbers().at("two"), 2);
    QCOMPARE(example.by_number().at(-5).depth(), 4);
    QCOMPARE(example.right(), 6);
    QVERIFY(example.fruits(0) == testing::FRUIT_APPLE);
    QVERIFY(example.fruits(1) == testing::FRUIT_PEAR);
  }

  void ParseYaml_KeepsWhatTheTextDoesNotName() {
    Example example;
    example.set_small(1);
    example.mutable_inner()->set_depth(2);
    example.add_names("old");
    QVERIFY(ParseYaml("name: x\ninner: {inner: {depth: 3}}\nnames: [new]\n", "x", &example).ok());
    QCOMPARE(example.small(), 1);
    QCOMPARE(example.inner().depth(), 2);
    QCOMPARE(example.inner().inner().depth(), 3);
    QCOMPARE(example.names_size(), 1);
    QCOMPARE(example.names(0), std::string("new"));
  }

  void ParseYaml_TakesNothingAsNothing() {
    for (const char* text :
         {"", "\n# only a comment\n", "{}", "---\n", "inner:\nnames:\nnumbers:\n"}) {
      Example example;
      example.set_small(1);
      const auto status = ParseYaml(text, "x", &example);
      QVERIFY2(status.ok(), base::Message(status).c_str());
      QCOMPARE(example.small(), 1);
    }
  }

  void ParseYaml_TakesPlainNumbersAsText() {
    Example example;
    QVERIFY(ParseYaml("name: 20\nnames: [5.0, true]\n", "x", &example).ok());
    QCOMPARE(example.name(), std::string("20"));
    QCOMPARE(example.names(0), std::string("5.0"));
    QCOMPARE(example.names(1), std::string("true"));
  }

  void ParseYaml_SaysWhereAndWhatIsWrong_data() {
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<QString>("error");
    const auto row = [](const char* name, const char* text, const char* error) {
      QTest::newRow(name) << QByteArray(text) << QString(error);
    };
    row("unknown key", "small: 1\nsmal: 2\n",
        "x.yaml:2:1: unknown key 'smal' in Example; did you mean 'small'?");
    row("unknown nested key", "inner:\n  deepth: 2\n",
        "x.yaml:2:3: unknown key 'deepth' in Inner; did you mean 'depth'?");
    row("nothing near", "inner: {unrelated: 2}",
        "x.yaml:1:9: unknown key 'unrelated' in Inner; known: depth, inner");
    row("duplicate key", "small: 1\nlarge: 2\nsmall: 3\n",
        "x.yaml:3:1: key 'small' is given twice");
    row("duplicate map key", "numbers: {a: 1, a: 2}", "x.yaml:1:17: key 'a' is given twice");
    row("text for a number", "small: many", "x.yaml:1:8: 'small' takes a whole number, not 'many'");
    row("quoted number", "small: \"5\"",
        "x.yaml:1:8: 'small' takes a whole number, not the text '5'");
    row("fraction for an integer", "small: 1.5",
        "x.yaml:1:8: 'small' takes a whole number, not '1.5'");
    row("out of range", "small: 2147483648", "x.yaml:1:8: 'small': '2147483648' is out of range");
    row("negative", "count: -1", "x.yaml:1:8: 'count' takes a whole number from 0, not '-1'");
    row("not a number", "ratio: nan", "x.yaml:1:8: 'ratio' takes a number, not 'nan'");
    row("yes is no boolean", "enabled: yes",
        "x.yaml:1:10: 'enabled' takes true or false, not 'yes'");
    row("unknown enum value", "fruit: peer",
        "x.yaml:1:8: 'fruit' cannot be 'peer'; did you mean 'pear'?");
    row("list for one", "small: [1]", "x.yaml:1:8: 'small' takes a single value, not a list");
    row("one for a list", "names: a", "x.yaml:1:8: 'names' takes a list, not 'a'");
    row("value for a message", "inner: 5", "x.yaml:1:8: expected a mapping (Inner), found a value");
    row("list at the top", "- 1\n", "x.yaml:1:1: expected a mapping (Example), found a list");
    row("list for a map", "numbers: [1]", "x.yaml:1:10: 'numbers' takes a mapping, not a list");
    row("bad map key", "by_number: {a: {}}", "x.yaml:1:13: 'key' takes a whole number, not 'a'");
    row("no value", "small:\nlarge: 1\n", "x.yaml:1:1: key 'small' has no value");
    row("null in a list", "names: [~]", "x.yaml:1:9: 'names' takes a single value, not nothing");
    row("both of a oneof", "left: a\nright: 1\n",
        "x.yaml:2:1: 'right': only one of choice can be given");
    row("alias", "name: &a x\nleft: *a\n", "x.yaml:1:7: anchors (&name) are not supported");
    row("tag", "name: !!str x\n", "x.yaml:1:7: tags (!name) are not supported");
    row("second document", "small: 1\n---\nsmall: 2\n",
        "x.yaml:3:1: a second document: only one is allowed");
    row("broken syntax", "small: [1\n", "x.yaml:2:1: end of sequence flow not found");
    row("key that is a list", "? [a]\n: 1\n", "x.yaml:1:3: a key must be text");
    row("tab", "inner:\n\tdepth: 1\n", "x.yaml:2:");
    row("not UTF-8", "name: \xff\n", "x.yaml:1:1: not UTF-8");
    row("surrogate by escape", "name: \"\\ud800\"\n", "x.yaml:1:");
    row("NUL by escape", "name: \"a\\0b\"\n", "x.yaml:1:7: text must be UTF-8 without NUL");
  }
  void ParseYaml_SaysWhereAndWhatIsWrong() {
    QFETCH(QByteArray, text);
    QFETCH(QString, error);
    Example example;
    example.set_name("before");
    const Example before = example;
    const auto status = ParseYaml(text.toStdString(), "x.yaml", &example);
    QVERIFY(absl::IsInvalidArgument(status));
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_CONFIG"));
    QCOMPARE(QString::fromStdString(base::Message(status)).left(error.size()), error);
    QVERIFY(base::GetReason(status).metadata.contains("line"));
    QVERIFY(google::protobuf::util::MessageDifferencer::Equals(example, before));
  }

  void ParseYaml_RefusesHostileTextQuickly_data() {
    QTest::addColumn<QByteArray>("text");
    std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 30; ++i) {
      const std::string alias = "*a" + std::to_string(i - 1);
      const std::string name = "a" + std::to_string(i);
      laughs += name + ": &" + name + " [" + alias + Repeat(", " + alias, 8) + "]\n";
    }
    constexpr std::size_t kMany = kMaxYamlBytes / 2;
    const auto row = [](const char* name, const std::string& text) {
      QTest::newRow(name) << QByteArray::fromStdString(text);
    };
    row("billion laughs", laughs);
    row("open brackets", Repeat("[", kMany));
    row("open braces", Repeat("{a: ", kMany / 4));
    row("nested lists in a line", Repeat("- ", kMany));
    row("question marks", Repeat("? ", kMany));
    row("colons", Repeat(": ", kMany));
    row("many keys in a flow", "{" + Repeat("a, ", kMany / 3));
    row("many items", "names: [" + Repeat("a,", kMany) + "]");
    row("long plain line", Repeat("a ", kMany));
    row("many lines of one text", Repeat("a\n", kMany));
    row("quotes", Repeat("\"", kMany));
    row("indented steps", [] {
      std::string text;
      for (std::size_t i = 0; i < 500; ++i) text += std::string(i, ' ') + "a:\n";
      return text;
    }());
    row("anchors", Repeat("&a ", kMany / 3));
    row("tags", Repeat("!a ", kMany / 3));
    row("document marks", Repeat("---\n", kMany / 4));
    row("directives", Repeat("%YAML 1.2\n", kMany / 10));
    row("block scalar", "name: |" + Repeat("\n ", kMany / 2) + "\n- ");
    row("too large", std::string(kMaxYamlBytes + 1, '#'));
  }
  void ParseYaml_RefusesHostileTextQuickly() {
    QFETCH(QByteArray, text);
    QElapsedTimer timer;
    timer.start();
    Example example;
    const auto status = ParseYaml(text.toStdString(), "x.yaml", &example);
    QVERIFY(absl::IsInvalidArgument(status));
    const qint64 elapsed = timer.elapsed();
    QVERIFY2(elapsed < 10'000, qPrintable(QString::number(elapsed) + " ms"));
    if (elapsed > 100) qInfo("%lld ms", elapsed);
  }

  void ParseYaml_RefusesNestingBeyond32Levels() {
    Example example;
    QVERIFY(ParseYaml(Repeat("{inner: ", 31) + "{}" + Repeat("}", 31), "x", &example).ok());
    const auto status = ParseYaml(Repeat("{inner: ", 32) + "{}" + Repeat("}", 32), "x", &example);
    QVERIFY(base::Message(status).find("nested deeper than 32") != std::string::npos);
  }

  void LoadYamlFile_ReadsAFileOrSaysWhyNot() {
    const QTemporaryDir folder;
    const std::string path = folder.filePath("a.yaml").toStdString();
    Example example;
    const auto missing = LoadYamlFile(path, &example);
    QCOMPARE(base::GetReason(missing).reason, std::string("BAD_CONFIG"));
    QCOMPARE(base::Message(missing), path + ": cannot be read: No such file or directory");
    const auto directory = LoadYamlFile(folder.path().toStdString(), &example);
    QCOMPARE(base::GetReason(directory).reason, std::string("BAD_CONFIG"));
    std::ofstream(path) << "small: 5\n";
    QVERIFY(LoadYamlFile(path, &example).ok());
    QCOMPARE(example.small(), 5);
    std::ofstream(path) << "large: five\n";
    QVERIFY(base::Message(LoadYamlFile(path, &example)).starts_with(path + ":1:8: "));
  }
};

}  // namespace onepiece::config

ONEPIECE_TEST(onepiece::config::YamlTest)
#include "yaml_test.moc"
