// Tests of the page "Logs": order, gaps, bounds and filters by number, and a tail of a real stream.
#include "gui/views/logs.h"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QLabel>
#include <QSignalSpy>
#include <QTableView>
#include <QtTest>
#include <memory>

#include "gui/models/log_lines.h"
#include "tests/gui/views/live.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

constexpr std::int64_t kNs = 1'000'000;

session::LogEntry Line(const std::string& node, std::uint64_t number, std::int64_t at_ms,
                       const std::string& text = "x", v1::LogLevel level = v1::LOG_INFO) {
  session::LogEntry entry;
  entry.node_id = node;
  entry.line.set_number(number);
  entry.line.set_unix_ns(at_ms * kNs);
  entry.line.set_level(level);
  entry.line.set_text(text);
  return entry;
}

QStringList Texts(const LogLines& lines) {
  QStringList texts;
  for (const auto& row : lines.Shown()) texts << row->text;
  return texts;
}

}  // namespace

class GuiViewsLogsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Lines_AreInTheOrderOfTime() {
    LogLines lines;
    lines.Take({{Line("a", 1, kNow - 300, "one"), Line("a", 2, kNow - 100, "three")}, 0, {}}, kNow);
    lines.Take({{Line("b", 1, kNow - 200, "two")}, 0, {}}, kNow + 200);
    QCOMPARE(Texts(lines),
             QStringList({QStringLiteral("one"), QStringLiteral("two"), QStringLiteral("three")}));
    // A stream that begins again repeats old lines.
    lines.Take({{Line("a", 2, kNow - 100, "three"), Line("a", 3, kNow, "four")}, 0, {}},
               kNow + 400);
    QCOMPARE(lines.size(), std::size_t{4});
    // A restarted process counts from 1.
    lines.Take({{Line("a", 1, kNow + 500, "five")}, 0, {}}, kNow + 600);
    QCOMPARE(Texts(lines).last(), QStringLiteral("five"));
  }

  void Lines_GapsAreShownWhereTheyAre() {
    LogLines lines;
    lines.Take({{Line("a", 1, kNow, "one")}, 0, {}}, kNow);
    lines.Take({{Line("a", 20, kNow + 1000, "two")}, 18, {}}, kNow + 1100);
    QCOMPARE(lines.size(), std::size_t{3});
    QVERIFY(lines.Shown()[1]->gap);
    QVERIFY(lines.Shown()[1]->text.startsWith(QStringLiteral("18 lines were dropped")));
    lines.Take({{}, 0, {{"a", "UNAVAILABLE: connection reset"}}}, kNow + 2000);
    lines.Take({{}, 0, {{"a", "UNAVAILABLE: connection reset"}}}, kNow + 2200);
    lines.Take({{}, 0, {}}, kNow + 3000);
    QCOMPARE(lines.size(), std::size_t{5});
    QVERIFY(Texts(lines)[3].contains(QStringLiteral("connection reset")));
    QVERIFY(Texts(lines)[4].contains(QStringLiteral("can be read again")));
    // No filter hides a gap.
    QVERIFY(lines.SetFilter({v1::LOG_ERROR, QStringLiteral("nothing"), false}).isEmpty());
    QCOMPARE(lines.Shown().size(), std::size_t{3});
  }

  void Lines_AreBounded() {
    LogLines lines;
    session::LogTail::News news;
    for (std::uint64_t i = 1; i <= LogLines::kMaxLines + 500; ++i) {
      news.entries.push_back(Line("a", i, kNow + static_cast<std::int64_t>(i), std::to_string(i)));
    }
    lines.Take(news, kNow + 30'000);
    QCOMPARE(lines.size(), LogLines::kMaxLines);
    QCOMPARE(lines.forgotten(), std::uint64_t{500});
    QCOMPARE(Texts(lines).first(), QStringLiteral("501"));
  }

  void Lines_AreFiltered() {
    LogLines lines;
    lines.Take({{Line("instance-1", 1, kNow, "job is done", v1::LOG_INFO),
                 Line("instance-2", 1, kNow + 1, "Disk is full", v1::LOG_ERROR),
                 Line("instance-2", 2, kNow + 2, "loading", v1::LOG_WARNING)},
                0,
                {}},
               kNow);
    lines.SetFilter({v1::LOG_WARNING, {}, false});
    QCOMPARE(lines.Shown().size(), std::size_t{2});
    lines.SetFilter({v1::LOG_INFO, QStringLiteral("disk"), false});
    QCOMPARE(Texts(lines), QStringList(QStringLiteral("Disk is full")));
    lines.SetFilter({v1::LOG_INFO, QStringLiteral("INSTANCE-1"), false});
    QCOMPARE(Texts(lines), QStringList(QStringLiteral("job is done")));
    lines.SetFilter({v1::LOG_INFO, QStringLiteral("^(job|load)"), true});
    QCOMPARE(lines.Shown().size(), std::size_t{2});
    // An expression that is not complete says so, and the last valid one stays.
    QVERIFY(!lines.SetFilter({v1::LOG_INFO, QStringLiteral("(job"), true}).isEmpty());
    QCOMPARE(lines.Shown().size(), std::size_t{2});
  }

  void Lines_NameTheirJob() {
    LogLines lines;
    lines.Take({{Line("a", 1, kNow, "job 0b5e8a3c-1111-4222-8333-abcdefabcdef is done"),
                 Line("a", 2, kNow + 1, "nothing of 12345678")},
                0,
                {}},
               kNow);
    QCOMPARE(lines.Shown()[0]->job, QStringLiteral("0b5e8a3c-1111-4222-8333-abcdefabcdef"));
    QVERIFY(lines.Shown()[1]->job.isEmpty());
  }

  void Lines_OfClocksThatDifferArePutWhereTheyBelong() {
    LogLines lines;
    // b is 5 s ahead: its lines come from the future.
    lines.Take({{Line("a", 1, kNow - 50, "one"), Line("b", 1, kNow + 4900, "two")}, 0, {}}, kNow);
    lines.Take({{Line("a", 2, kNow + 950, "three")}, 0, {}}, kNow + 1000);
    const auto skews = lines.Skews();
    QCOMPARE(skews.size(), std::size_t{1});
    QCOMPARE(skews.at("b"), std::int64_t{4900});
    QCOMPARE(Texts(lines),
             QStringList({QStringLiteral("one"), QStringLiteral("two"), QStringLiteral("three")}));
    // c is 3 s behind. That is known after a few lines that were written while the console
    // listened.
    lines.Take({{Line("c", 1, kNow - 60'000, "old")}, 0, {}}, kNow + 1100);
    QVERIFY(!lines.Skews().contains("c"));
    for (int i = 0; i < 3; ++i) {
      const std::int64_t now_ms = kNow + 10'000 + 1000 * i;
      lines.Take({{Line("c", static_cast<std::uint64_t>(2 + i), now_ms - 3100, "late")}, 0, {}},
                 now_ms);
    }
    QCOMPARE(lines.Skews().at("c"), std::int64_t{-3100});
    QCOMPARE(lines.Shown().back()->unix_ns, (kNow + 12'000) * kNs);
  }

  void Model_Holds() {
    KeyedTable<std::shared_ptr<const LogRow>> table(
        LogColumns(),
        [](const std::shared_ptr<const LogRow>& row) { return QString::number(row->number); });
    const QAbstractItemModelTester tester(&table);
    LogLines lines;
    for (int turn = 0; turn < 20; ++turn) {
      session::LogTail::News news;
      for (int i = 0; i < 7; ++i) {
        news.entries.push_back(Line(i % 2 == 0 ? "a" : "b",
                                    static_cast<std::uint64_t>(turn * 7 + i + 1),
                                    kNow + turn * 100 + i * 37, "line"));
      }
      news.dropped = turn % 5 == 0 ? 3 : 0;
      lines.Take(news, kNow + turn * 100);
      table.Update(lines.Shown(), [](const auto& a, const auto& b) { return a == b; });
      QCOMPARE(table.rowCount(), static_cast<int>(lines.size()));
    }
  }

  void Page_FollowsWhileItIsSeen() {
    testing::FakeCluster cluster;
    cluster.SetUp(1);
    cluster.Log(v1::LOG_INFO, "job 0b5e8a3c-1111-4222-8333-abcdefabcdef began");
    cluster.Log(v1::LOG_DEBUG, "details");
    ShownCluster shown_cluster;
    LogsView view(shown_cluster);
    QSignalSpy wanted(&view, &View::Wanted);
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    QTRY_VERIFY_WITH_TIMEOUT(shown_cluster.snapshot()->cluster.value != nullptr, 20'000);
    QVERIFY(!view.tails());
    QCOMPARE(cluster.calls("TailLogs"), 0);
    view.show();
    QAbstractItemModel* rows = view.ExportModel();
    // All four processes have the server's log.
    QTRY_COMPARE_WITH_TIMEOUT(rows->rowCount(), 4, 20'000);
    QCOMPARE(rows->index(0, 2).data().toString(), QStringLiteral("info"));
    cluster.Log(v1::LOG_WARNING, "hot");
    QTRY_COMPARE_WITH_TIMEOUT(rows->rowCount(), 8, 20'000);
    QVERIFY(rows->index(7, 2).data().toString().contains(QStringLiteral("warning")));
    view.SetFilter(QStringLiteral("began"));
    QCOMPARE(rows->rowCount(), 4);
    // Enter on a line that names a job opens it.
    auto* table = view.findChild<QTableView*>();
    table->setCurrentIndex(rows->index(0, 0));
    QTest::keyClick(table, Qt::Key_Return);
    QCOMPARE(wanted.count(), 1);
    QCOMPARE(wanted[0][1].toString(), QStringLiteral("job/0b5e8a3c-1111-4222-8333-abcdefabcdef"));
    view.SetFilter({});
    // Only one process is followed.
    view.Focus(QStringLiteral("node/instance-1"));
    view.hide();
    QVERIFY(!view.tails());
    view.show();
    QVERIFY(view.tails());
    const int before = rows->rowCount();
    cluster.Log(v1::LOG_ERROR, "once");
    QTRY_COMPARE_WITH_TIMEOUT(rows->rowCount(), before + 1, 20'000);
    // In the past the page says that lines are not recorded.
    shown_cluster.Pause();
    const auto* note = view.findChild<QLabel*>(QStringLiteral("logs.note"));
    QTRY_VERIFY(note->text().contains(QStringLiteral("not recorded")));
    shown_cluster.Follow(nullptr);
    QTRY_VERIFY(!view.tails());
    QCOMPARE(rows->rowCount(), 0);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiViewsLogsTest)
#include "logs_test.moc"
