// Tests of what all pages stand on: KeyedTable, ShownCluster, format, and the numbers of the page
// "Overview".
#include <QAbstractItemModelTester>
#include <QSignalSpy>
#include <QtTest>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/overview_tiles.h"
#include "gui/models/shown_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

struct Row {
  int key = 0, value = 0;
};
bool operator==(const Row& a, const Row& b) { return a.key == b.key && a.value == b.value; }

class Table : public KeyedTable<Row> {
 public:
  Table()
      : KeyedTable({{QStringLiteral("Key"), QStringLiteral("tip"),
                     [](const Row& row, int role) {
                       return role == Qt::DisplayRole ? QVariant(row.key) : QVariant();
                     }},
                    {QStringLiteral("Value"),
                     {},
                     [](const Row& row, int role) {
                       if (role == kSortRole) return QVariant(row.value);
                       return role == Qt::DisplayRole ? QVariant(QString::number(row.value))
                                                      : QVariant();
                     },
                     Qt::AlignRight}},
                   [](const Row& row) {
                     ++keys_made;
                     return QString::number(row.key);
                   }) {}
  static inline int keys_made = 0;
  void Set(std::vector<Row> rows) { Update(std::move(rows), std::equal_to<Row>()); }
  [[nodiscard]] std::vector<Row> All() const {
    std::vector<Row> rows;
    for (int i = 0; i < rowCount(); ++i) rows.push_back(at(i));
    return rows;
  }
};

/// Rebuilds the rows from signals alone, as a view does.
class Mirror : public QObject {
 public:
  explicit Mirror(const Table& table) : table_(table) {
    connect(&table, &Table::rowsInserted, this, [this](const QModelIndex&, int first, int last) {
      for (int i = first; i <= last; ++i) rows_.insert(rows_.begin() + i, table_.at(i));
    });
    connect(&table, &Table::rowsRemoved, this, [this](const QModelIndex&, int first, int last) {
      rows_.erase(rows_.begin() + first, rows_.begin() + last + 1);
    });
    connect(&table, &Table::dataChanged, this,
            [this](const QModelIndex& first, const QModelIndex& last) {
              for (int i = first.row(); i <= last.row(); ++i)
                rows_[static_cast<std::size_t>(i)] = table_.at(i);
            });
    connect(&table, &Table::layoutChanged, this, [this] { rows_ = table_.All(); });
    connect(&table, &Table::modelReset, this, [this] { rows_ = table_.All(); });
  }
  std::vector<Row> rows_;

 private:
  const Table& table_;
};

std::shared_ptr<session::Snapshot> MakeSnapshot(std::int64_t at_ms) {
  auto snapshot = std::make_shared<session::Snapshot>();
  snapshot->at_ms = at_ms;
  return snapshot;
}

session::LinkStatus Linked(session::Link link) {
  session::LinkStatus status;
  status.link = link;
  return status;
}

session::JobEntry Job(const std::string& uid, v1::Job::State state, std::int64_t create_s,
                      std::int64_t end_s) {
  auto job = std::make_shared<v1::Job>();
  job->set_uid(uid);
  job->set_state(state);
  job->mutable_create_time()->set_seconds(create_s);
  if (end_s != 0) job->mutable_end_time()->set_seconds(end_s);
  return {job, session::Certainty::kKnown};
}

}  // namespace

class GuiModelsSharedTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void KeyedTable_EmitsOnlyWhatChanged_data() {
    QTest::addColumn<QList<int>>("before");
    QTest::addColumn<QList<int>>("after");
    // Counts of inserted, removed and changed rows, and of new layouts.
    QTest::addColumn<QList<int>>("counts");
    // A row is written as key * 10 + value.
    QTest::newRow("same") << QList<int>{10, 20} << QList<int>{10, 20} << QList<int>{0, 0, 0, 0};
    QTest::newRow("joins in the middle")
        << QList<int>{10, 30} << QList<int>{10, 20, 30} << QList<int>{1, 0, 0, 0};
    QTest::newRow("two join in a run")
        << QList<int>{10} << QList<int>{20, 30, 10} << QList<int>{1, 0, 0, 0};
    QTest::newRow("leaves") << QList<int>{10, 20, 30} << QList<int>{10, 30}
                            << QList<int>{0, 1, 0, 0};
    QTest::newRow("value changes")
        << QList<int>{10, 20, 30} << QList<int>{10, 25, 30} << QList<int>{0, 0, 1, 0};
    QTest::newRow("order changes")
        << QList<int>{10, 20, 30} << QList<int>{30, 10, 20} << QList<int>{0, 0, 0, 1};
    QTest::newRow("one goes, one comes")
        << QList<int>{10, 20} << QList<int>{30, 10} << QList<int>{1, 1, 0, 0};
    QTest::newRow("the oldest go, others come")
        << QList<int>{10, 20, 30, 40} << QList<int>{30, 40, 50} << QList<int>{1, 1, 0, 0};
    QTest::newRow("the oldest goes, others come between")
        << QList<int>{10, 20, 30, 40} << QList<int>{20, 60, 40, 50} << QList<int>{2, 2, 0, 0};
    QTest::newRow("one goes, the oldest moves")
        << QList<int>{10, 20, 30, 40} << QList<int>{30, 40, 10} << QList<int>{0, 1, 0, 1};
    QTest::newRow("all goes") << QList<int>{10, 20} << QList<int>{} << QList<int>{0, 1, 0, 0};
    QTest::newRow("a key twice: the first")
        << QList<int>{} << QList<int>{10, 15} << QList<int>{1, 0, 0, 0};
  }
  void KeyedTable_EmitsOnlyWhatChanged() {
    const auto rows = [](const QList<int>& numbers) {
      std::vector<Row> made;
      for (const int number : numbers) made.push_back({number / 10, number % 10});
      return made;
    };
    QFETCH(QList<int>, before);
    QFETCH(QList<int>, after);
    QFETCH(QList<int>, counts);
    Table table;
    table.Set(rows(before));
    QSignalSpy inserted(&table, &Table::rowsInserted), removed(&table, &Table::rowsRemoved),
        changed(&table, &Table::dataChanged), laid_out(&table, &Table::layoutChanged),
        reset(&table, &Table::modelReset);
    table.Set(rows(after));
    QCOMPARE((QList<int>{int(inserted.count()), int(removed.count()), int(changed.count()),
                         int(laid_out.count())}),
             counts);
    QCOMPARE(reset.count(), 0);
  }

  void KeyedTable_RandomUpdates_EqualAPlainVector() {
    std::mt19937_64 random(7);
    Table table;
    QAbstractItemModelTester tester(&table, QAbstractItemModelTester::FailureReportingMode::QtTest);
    Mirror mirror(table);
    std::vector<Row> plain;
    for (int round = 0; round < 400; ++round) {
      const int what = static_cast<int>(random() % 5);
      if (what == 0) std::shuffle(plain.begin(), plain.end(), random);
      for (Row& row : plain) {
        if (random() % 4 == 0) row.value = static_cast<int>(random() % 100);
      }
      if (what == 1) std::erase_if(plain, [&](const Row&) { return random() % 3 == 0; });
      for (int i = static_cast<int>(random() % 6); i > 0 && plain.size() < 60; --i) {
        const Row row{round * 10 + i, 0};
        plain.insert(plain.begin() + static_cast<std::ptrdiff_t>(random() % (plain.size() + 1)),
                     row);
      }
      // A selected row must keep its key.
      QPersistentModelIndex held;
      int held_key = -1;
      if (table.rowCount() > 0) {
        const int row = static_cast<int>(random() % static_cast<std::uint64_t>(table.rowCount()));
        held = table.index(row, 1);
        held_key = table.at(row).key;
      }
      table.Set(plain);
      QVERIFY(table.All() == plain);
      QVERIFY(mirror.rows_ == plain);
      const bool there = std::any_of(plain.begin(), plain.end(),
                                     [&](const Row& row) { return row.key == held_key; });
      QCOMPARE(held.isValid(), there);
      if (there) QCOMPARE(table.at(held.row()).key, held_key);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        QCOMPARE(table.RowOf(QString::number(plain[i].key)), static_cast<int>(i));
      }
      QCOMPARE(table.RowOf(QStringLiteral("-5")), -1);
    }
  }

  void KeyedTable_ManyRowsApart_AreFast() {
    Table table;
    std::vector<Row> rows;
    for (int i = 0; i < 100'000; ++i) rows.push_back({i, 0});
    table.Set(rows);
    QElapsedTimer timer;
    timer.start();
    std::erase_if(rows, [](const Row& row) { return row.key % 3 == 0; });
    table.Set(rows);
    QCOMPARE(table.rowCount(), static_cast<int>(rows.size()));
    QVERIFY2(timer.elapsed() < 5000, qPrintable(QString::number(timer.elapsed())));
  }

  void KeyedTable_LogThatGoesOn_LooksAtItsEndsOnly() {
    Table table;
    std::vector<Row> rows;
    for (int i = 0; i < 20'000; ++i) rows.push_back({i, 0});
    table.Set(rows);
    rows.erase(rows.begin(), rows.begin() + 100);
    for (int i = 0; i < 100; ++i) rows.push_back({20'000 + i, 0});
    Table::keys_made = 0;
    table.Set(rows);
    QVERIFY(table.All() == rows);
    QVERIFY2(Table::keys_made < 2000, qPrintable(QString::number(Table::keys_made)));
  }

  void KeyedTable_RolesFallBack() {
    Table table;
    table.Set({{3, 4}});
    // The display text counts, because the column gives no kSortRole.
    QCOMPARE(table.index(0, 0).data(kSortRole).toInt(), 3);
    QCOMPARE(table.index(0, 1).data(kSortRole).typeId(), static_cast<int>(QMetaType::Int));
    QCOMPARE(table.index(0, 1).data(kKeyRole).toString(), QStringLiteral("3"));
    QCOMPARE(table.headerData(0, Qt::Horizontal, Qt::ToolTipRole).toString(),
             QStringLiteral("tip"));
  }

  void Format_data() {
    QTest::addColumn<QString>("is");
    QTest::addColumn<QString>("shall");
    QTest::newRow("bytes") << FormatBytes(0) << "0 B";
    QTest::newRow("kibibytes") << FormatBytes(1536) << "1.5 KiB";
    QTest::newRow("gibibytes") << FormatBytes(4.2 * 1024 * 1024 * 1024) << "4.2 GiB";
    QTest::newRow("no bytes") << FormatBytes(std::nan("")) << "N/A";
    QTest::newRow("rate") << FormatRate(12.5) << "12.5/s";
    QTest::newRow("slow rate") << FormatRate(0.042) << "0.042/s";
    QTest::newRow("rate that is none") << FormatRate(0) << "0/s";
    QTest::newRow("rate that is not known") << FormatRate(std::nan("")) << "N/A";
    QTest::newRow("rate of one in 100 s") << FormatRate(0.01) << "0.01/s";
    QTest::newRow("rate by the minute") << FormatRate(0.004) << "0.24/min";
    QTest::newRow("rate by the hour") << FormatRate(1.0 / 7200) << "0.50/h";
    QTest::newRow("rate of one in four days") << FormatRate(1.0 / 345'600) << "0.01/h";
    QTest::newRow("rate of hardly any") << FormatRate(1e-9) << "< 0.01/h";
    QTest::newRow("rate that shrinks") << FormatRate(-0.004) << "-0.24/min";
    QTest::newRow("value of a series") << FormatValue(0.004, "1/s") << "0.24/min";
    QTest::newRow("few bytes") << FormatValue(0.3, "bytes/s") << "< 1 B/s";
    QTest::newRow("no bytes a second") << FormatValue(0, "bytes/s") << "0 B/s";
    QTest::newRow("little of anything") << FormatValue(0.0042, "1") << "0.0042";
    QTest::newRow("share") << FormatShare(0.874) << "87 %";
    QTest::newRow("zero is not unknown") << FormatShare(0.0) << "0 %";
    QTest::newRow("unknown is not zero") << FormatShare(std::nullopt) << "N/A";
    QTest::newRow("milliseconds") << FormatSeconds(2.1e-3) << "2.1 ms";
    QTest::newRow("microseconds") << FormatSeconds(42e-6) << QString::fromUtf8("42.0 µs");
    QTest::newRow("minutes") << FormatSeconds(185) << "3 m 05 s";
    QTest::newRow("just below a minute") << FormatSeconds(59.96) << "60.0 s";
    QTest::newRow("hours") << FormatSeconds(2 * 3600 + 300) << "2 h 05 m";
    QTest::newRow("days") << FormatSeconds(50 * 3600) << "2 d 02 h";
    QTest::newRow("negative") << FormatSeconds(-61) << "-1 m 01 s";
    QTest::newRow("infinite") << FormatSeconds(std::numeric_limits<double>::infinity()) << "N/A";
    QTest::newRow("age") << FormatAge(1'000'000, 1'003'500) << "3 s ago";
    QTest::newRow("no age") << FormatAge(0, 1'000) << "never";
    QTest::newRow("clock ahead") << FormatAge(1'010'000, 1'000'000) << "in 10.0 s";
    QTest::newRow("plain") << SafeText("instance-3") << "instance-3";
    QTest::newRow("control") << SafeText(std::string("a\nb\0c", 5)) << QString::fromUtf8("a␊b␀c");
    QTest::newRow("override") << SafeText("a\u202Ebc") << "a\\u202ebc";
    QTest::newRow("isolate and mark") << SafeText("\u2066x\u200F") << "\\u2066x\\u200f";
    QTest::newRow("escape") << SafeText("\x1b[31m") << QString::fromUtf8("␛[31m");
    QTest::newRow("not UTF-8") << SafeText(
                                      "a\xff"
                                      "b")
                               << QString::fromUtf8(
                                      "a\uFFFD"
                                      "b");
    QTest::newRow("Hebrew stays") << SafeText("\u05d0\u05d1") << QString::fromUtf8("\u05d0\u05d1");
    QTest::newRow("long") << SafeText(std::string(10'000, 'x'), 5) << QString::fromUtf8("xxxxx…");
    QTest::newRow("just fits") << SafeText("xxxxx", 5) << "xxxxx";
    QTest::newRow("surrogates count as one")
        << SafeText("\U0001F600\U0001F600", 2) << QString::fromUtf8("\U0001F600\U0001F600");
  }
  void Format() {
    QFETCH(QString, is);
    QFETCH(QString, shall);
    QCOMPARE(is, shall);
  }

  void Tips_AreNoMarkup() {
    QCOMPARE(SafeTip(QStringLiteral("a\nb")), QStringLiteral("a\nb"));
    const QString tip = SafeTip(QStringLiteral("<img src=x> & 1 < 2"));
    QVERIFY(tip.contains(u"&lt;img src=x&gt; &amp; 1 &lt; 2"));
    QVERIFY(!tip.contains(u"<img"));
  }

  void Tones_HaveGlyphsOfTheirOwn() {
    QSet<QString> glyphs;
    for (int tone = 0; tone <= static_cast<int>(StatusTone::kUnknown); ++tone) {
      glyphs.insert(ToneGlyph(static_cast<StatusTone>(tone)));
    }
    QCOMPARE(glyphs.size(), 6);
    QCOMPARE(ActivityName(v1::DRAINED), QStringLiteral("drained (safe to remove)"));
    QCOMPARE(ActivityName(static_cast<v1::Activity>(99)), QStringLiteral("unknown"));
    QCOMPARE(JobStateTone(v1::Job::FAILED), StatusTone::kBad);
  }

  void Store_ShowsNewSnapshotsWhileLive() {
    ShownCluster shown_cluster;
    QVERIFY(shown_cluster.snapshot() != nullptr);
    QSignalSpy changed(&shown_cluster, &ShownCluster::Changed);
    const auto first = MakeSnapshot(1000);
    shown_cluster.Show(first, Linked(session::Link::kLive));
    shown_cluster.Show(first, Linked(session::Link::kLive));
    QCOMPARE(changed.count(), 1);
    QCOMPARE(shown_cluster.snapshot(), std::shared_ptr<const session::Snapshot>(first));
  }

  void Store_PauseKeepsTheInstant() {
    ShownCluster shown_cluster;
    shown_cluster.Show(MakeSnapshot(5000), Linked(session::Link::kLive));
    shown_cluster.SetMode(ControlMode::kControl);
    QVERIFY(shown_cluster.WhyNoChange().isEmpty());
    shown_cluster.Pause();
    shown_cluster.Show(MakeSnapshot(6000), Linked(session::Link::kLive));
    QCOMPARE(shown_cluster.snapshot()->at_ms, 5000);
    QCOMPARE(shown_cluster.viewing_ms(), 5000);
    QVERIFY(shown_cluster.WhyNoChange().contains(QStringLiteral("past")));
  }

  void Store_SaysWhyNothingCanBeChanged_data() {
    QTest::addColumn<int>("link");
    QTest::addColumn<bool>("read_only");
    QTest::addColumn<bool>("control");
    QTest::addColumn<QString>("why");
    const auto row = [](const char* name, session::Link link, bool read_only, bool control,
                        const char* why) {
      QTest::newRow(name) << static_cast<int>(link) << read_only << control
                          << QString::fromUtf8(why);
    };
    row("all is well", session::Link::kLive, false, true, "");
    row("observe", session::Link::kLive, false, false, "Ctrl+Shift+U");
    row("stale before observe", session::Link::kStale, false, false, "stale");
    row("lost", session::Link::kReconnecting, false, true, "lost");
    row("lagging", session::Link::kLagging, false, true, "lagging");
    row("connecting", session::Link::kConnecting, false, true, "Connecting");
    row("refused", session::Link::kAuthFailed, false, true, "let us in");
    row("version", session::Link::kVersionMismatch, false, true, "version");
    row("read-only", session::Link::kLive, true, true, "read-only");
    row("offline", session::Link::kOffline, false, true, "No cluster");
  }
  void Store_SaysWhyNothingCanBeChanged() {
    QFETCH(int, link);
    QFETCH(bool, read_only);
    QFETCH(bool, control);
    QFETCH(QString, why);
    ShownCluster shown_cluster;
    session::LinkStatus status = Linked(static_cast<session::Link>(link));
    status.read_only = read_only;
    shown_cluster.Show(MakeSnapshot(1), status);
    if (control) shown_cluster.SetMode(ControlMode::kControl);
    QCOMPARE(shown_cluster.WhyNoChange().isEmpty(), why.isEmpty());
    QVERIFY2(shown_cluster.WhyNoChange().contains(why), qPrintable(shown_cluster.WhyNoChange()));
  }

  void Store_TellsOfTheConnectionOnlyWhatPeopleSee() {
    ShownCluster shown_cluster;
    QSignalSpy told(&shown_cluster, &ShownCluster::LinkChanged);
    session::LinkStatus link = Linked(session::Link::kLive);
    shown_cluster.Show(MakeSnapshot(1), link);
    link.last_heard_ms = 500;
    shown_cluster.Show(MakeSnapshot(2), link);
    QCOMPARE(told.count(), 1);
    link.link = session::Link::kStale;
    shown_cluster.Show(MakeSnapshot(3), link);
    QCOMPARE(told.count(), 2);
  }

  void Tiles_NothingKnown_IsNotZero() {
    OverviewTiles tiles;
    for (const OverviewTile& tile : tiles.Of(session::Snapshot{})) {
      QCOMPARE(tile.value, QStringLiteral("N/A"));
      QVERIFY(!tile.detail.isEmpty() && !tile.view_id.isEmpty());
    }
  }

  void Tiles_CountJobsOfTheWindow() {
    session::Snapshot snapshot;
    snapshot.at_ms = 10'000'000;
    session::JobList list;
    list.jobs = {Job("a", v1::Job::RUNNING, 9990, 0), Job("b", v1::Job::QUEUED, 9990, 0)};
    // 20 jobs take 1 s … 20 s each; 95 % took 19 s or less.
    for (int i = 1; i <= 20; ++i) list.jobs.push_back(Job("s", v1::Job::SUCCEEDED, 9900 - i, 9900));
    list.jobs.push_back(Job("old", v1::Job::SUCCEEDED, 1000, 2000));
    list.jobs.push_back(Job("f", v1::Job::FAILED, 9900, 9950));
    snapshot.jobs.value = std::make_shared<session::JobList>(list);
    OverviewTiles tiles;
    auto shown = tiles.Of(snapshot);
    QCOMPARE(shown[0].value, QStringLiteral("1 running"));
    QCOMPARE(shown[0].detail, QStringLiteral("1 queued"));
    QCOMPARE(shown[1].value, QStringLiteral("1.3/min"));
    QCOMPARE(shown[1].detail, QStringLiteral("20 succeeded, 1 failed in 15 min"));
    QCOMPARE(shown[2].value, QStringLiteral("19.0 s"));
    // A truncated list says so. After a proxy is lost, the numbers stay and the tile says why.
    list.truncated = true;
    snapshot.jobs.value = std::make_shared<session::JobList>(list);
    snapshot.jobs.error = "UNAVAILABLE: connection reset";
    shown = tiles.Of(snapshot);
    QVERIFY(shown[0].value.startsWith(QString::fromUtf8("≥")));
    QCOMPARE(shown[0].tone, StatusTone::kUnknown);
    QVERIFY(shown[0].detail.contains(QStringLiteral("connection reset")));
  }

  void Tiles_FewSamplesGiveNoPercentile() {
    session::Snapshot snapshot;
    snapshot.at_ms = 10'000'000;
    session::JobList list;
    list.jobs = {Job("a", v1::Job::SUCCEEDED, 9990, 9999)};
    snapshot.jobs.value = std::make_shared<session::JobList>(list);
    OverviewTiles tiles;
    QCOMPARE(tiles.Of(snapshot)[2].value, QStringLiteral("N/A"));
    QVERIFY(tiles.Of(snapshot)[2].detail.contains(QStringLiteral("insufficient data")));
  }

  void Tiles_RingsNodesAndUtilisation() {
    session::Snapshot snapshot;
    auto cluster = std::make_shared<v1::Cluster>();
    const double loads[] = {0.2, 0.9, 0.5};
    for (int i = 0; i < 3; ++i) {
      v1::Node& node = *cluster->add_nodes();
      node.set_node_id("instance-" + std::to_string(i));
      node.set_role(v1::INSTANCE);
      node.set_state(v1::Node::READY);
      node.set_activity(v1::SERVING);
      node.mutable_load()->set_sample_unix_ms(1);
      node.mutable_load()->set_utilization(loads[i]);
      node.mutable_load()->set_utilization_source(v1::GPU_COARSE);
    }
    v1::Node& dead = *cluster->add_nodes();
    dead.set_role(v1::INSTANCE);
    dead.set_state(v1::Node::DEAD);
    snapshot.cluster.value = cluster;
    auto rings = std::make_shared<session::Rings>();
    rings->resize(2);
    (*rings)[0].node_id = "instance-0";
    (*rings)[0].health.set_capacity_bytes(100);
    (*rings)[0].health.set_used_bytes(75);
    (*rings)[1].node_id = "instance-1";
    (*rings)[1].health.set_capacity_bytes(100);
    snapshot.rings.value = rings;
    OverviewTiles tiles;
    const auto shown = tiles.Of(snapshot);
    QCOMPARE(shown[3].value, QStringLiteral("50 % median"));
    QVERIFY(shown[3].detail.contains(QStringLiteral("min 20 % (instance-0)")));
    QVERIFY(shown[3].detail.contains(QStringLiteral("coarse")));
    QCOMPARE(shown[4].value, QStringLiteral("75 %"));
    QCOMPARE(shown[4].entity, QStringLiteral("ring/instance-0"));
    QCOMPARE(shown[4].tone, StatusTone::kWarning);
    QCOMPARE(shown[5].value, QStringLiteral("3 up, 1 lost"));
    QCOMPARE(shown[5].tone, StatusTone::kBad);
  }
};

}  // namespace onepiece::gui

ONEPIECE_TEST(onepiece::gui::GuiModelsSharedTest)
#include "shared_test.moc"
