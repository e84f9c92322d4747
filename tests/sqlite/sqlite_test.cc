// The tests check that values come back unchanged, that transactions hold, and that failures are
// told apart.
#include "cluster/sqlite/sqlite.h"

#include <QTemporaryDir>
#include <QtTest>
#include <limits>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::sqlite {
namespace {

absl::Status Say(Failure failure, std::string_view what) {
  static constexpr const char* kNames[] = {"BUSY", "FULL", "DENIED", "DAMAGED", "FAILED"};
  return base::MakeError(absl::StatusCode::kInternal, kNames[static_cast<int>(failure)], what);
}

QString Reason(const absl::Status& status) {
  return QString::fromStdString(base::GetReason(status).reason);
}

}  // namespace

class SqliteTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    // These characters would mean something in a URI. The name is a path.
    path_ = folder_->filePath("a 100%?#.db").toStdString();
  }

  void Values_ComeBackAsTheyWere() {
    auto database = Open(OpenMode::kCreate);
    QVERIFY(QFile::exists(QString::fromStdString(path_)));
    QVERIFY(database->Execute("CREATE TABLE t (a, b, c, d, e)").ok());
    const std::string zeros("a\0b", 3);
    auto insert = *database->Prepare("INSERT INTO t VALUES (?1, ?2, ?3, ?4, NULL)");
    QVERIFY(insert
                .Run(std::numeric_limits<std::int64_t>::min(),
                     std::numeric_limits<std::uint64_t>::max(), std::string_view(), Blob{})
                .ok());
    QVERIFY(insert.Run(std::int64_t{1}, std::uint64_t{2}, "text", Blob{zeros}).ok());
    auto select = *database->Prepare("SELECT * FROM t ORDER BY rowid");
    QVERIFY(*select.Start().Next());
    QCOMPARE(select.Int(0), std::numeric_limits<std::int64_t>::min());
    QCOMPARE(select.Unsigned(1), std::numeric_limits<std::uint64_t>::max());
    QVERIFY(!select.IsNull(2) && select.Bytes(2).empty());
    QVERIFY(!select.IsNull(3) && select.Bytes(3).empty());
    QVERIFY(select.IsNull(4));
    QVERIFY(*select.Next());
    QCOMPARE(select.Text(2), std::string("text"));
    QCOMPARE(select.Text(3), zeros);
    auto copy = *database->Prepare("INSERT INTO t VALUES (?1, ?2, ?3, ?4, ?5)");
    QVERIFY(copy.RunRow(select).ok());
    select.Stop();
    QCOMPARE(*database->Number("SELECT count(*) FROM t WHERE typeof(c) = 'text' AND typeof(d) = "
                               "'blob' AND typeof(e) = 'null'"),
             3);
    QCOMPARE(*database->Number("SELECT a FROM t WHERE a > 5"), 0);
    // After the last row the statement can be started again.
    select.Start();
    for (int i = 0; i < 3; ++i) QVERIFY(*select.Next());
    QVERIFY(!*select.Next());
    QVERIFY(*select.Start().Next());
  }

  void Transactions_AreWholeOrNothing() {
    auto database = Open(OpenMode::kCreate);
    QVERIFY(database->Execute("CREATE TABLE t (a UNIQUE)").ok());
    QVERIFY(database->InTransaction([&] { return database->Execute("INSERT INTO t VALUES (1)"); })
                .ok());
    const absl::Status own = database->InTransaction([&]() -> absl::Status {
      ONEPIECE_RETURN_IF_ERROR(database->Execute("INSERT INTO t VALUES (2)"));
      return absl::CancelledError("enough");
    });
    QVERIFY(absl::IsCancelled(own));
    const absl::Status twice = database->InTransaction(
        [&] { return database->Execute("INSERT INTO t VALUES (3); INSERT INTO t VALUES (1)"); });
    QCOMPARE(Reason(twice), QString("DAMAGED"));  // The tables are not as their owner made them.
    QCOMPARE(*database->Number("SELECT count(*) FROM t"), 1);
    QVERIFY(database->InTransaction([&] { return database->Execute("INSERT INTO t VALUES (4)"); })
                .ok());
  }

  void ReadView_IsOfOneMoment() {
    auto writer = Open(OpenMode::kCreate), reader = Open(OpenMode::kRead);
    QVERIFY(writer->Execute("PRAGMA journal_mode=WAL; CREATE TABLE t (a)").ok());
    {
      const auto view = ReadView::Begin(*reader);
      QVERIFY(view.ok());
      QCOMPARE(*reader->Number("SELECT count(*) FROM t"), 0);
      QVERIFY(writer->Execute("INSERT INTO t VALUES (1)").ok());
      QCOMPARE(*reader->Number("SELECT count(*) FROM t"), 0);
    }
    QCOMPARE(*reader->Number("SELECT count(*) FROM t"), 1);
  }

  void Failures_AreToldApart() {
    QCOMPARE(Reason(Database::Open(path_, {.mode = OpenMode::kRead}, Say).status()),
             QString("FAILED"));  // The file does not exist.
    auto database = Open(OpenMode::kCreate);
    QVERIFY(database->Execute("CREATE TABLE t (a)").ok());
    QCOMPARE(Reason(database->Prepare("SELECT b FROM t").status()), QString("DAMAGED"));
    QCOMPARE(Reason(Open(OpenMode::kRead)->Execute("INSERT INTO t VALUES (1)")), QString("DENIED"));
    {
      auto other = Open(OpenMode::kWrite);
      QVERIFY(other->Execute("BEGIN EXCLUSIVE").ok());
      QCOMPARE(Reason(database->Execute("INSERT INTO t VALUES (1)")), QString("BUSY"));
      QCOMPARE(Reason(database->Number("SELECT count(*) FROM t").status()), QString("BUSY"));
    }
    QVERIFY(database->Execute("PRAGMA max_page_count=3").ok());
    QCOMPARE(Reason(database->Execute("INSERT INTO t VALUES (zeroblob(1000000))")),
             QString("FULL"));
    QVERIFY(database->Execute("INSERT INTO t VALUES (1)").ok());
    database.reset();
    QFile file(QString::fromStdString(path_));
    QVERIFY(file.open(QIODevice::ReadWrite));
    file.write("dear diary");
    file.close();
    QCOMPARE(Reason(Open(OpenMode::kRead)->Number("SELECT count(*) FROM t").status()),
             QString("DAMAGED"));
    QCOMPARE(Reason(Database::Open(folder_->path().toStdString(), {.mode = OpenMode::kCreate}, Say)
                        .status()),
             QString("FAILED"));
  }

  void FilesOfStrangers_RunNothing() {
    {
      auto database = Open(OpenMode::kCreate);
      QVERIFY(database
                  ->Execute("CREATE TABLE t (a); CREATE TABLE u (a); CREATE VIEW v AS SELECT 1; "
                            "CREATE TRIGGER w AFTER INSERT ON t BEGIN INSERT INTO u VALUES (1); "
                            "END; INSERT INTO u VALUES (zeroblob(5000))")
                  .ok());
    }
    auto database = Database::Open(
        path_, {.mode = OpenMode::kWrite, .untrusted = true, .max_value_bytes = 4000}, Say);
    QVERIFY(database.ok());
    QVERIFY((*database)->Execute("INSERT INTO t VALUES (1)").ok());
    QCOMPARE(*(*database)->Number("SELECT count(*) FROM u"), 1);  // The trigger did not run.
    QCOMPARE(Reason((*database)->Prepare("SELECT * FROM v").status()), QString("DAMAGED"));
    QCOMPARE(Reason((*database)->Prepare("SELECT a FROM u")->Next().status()), QString("DAMAGED"));
  }

 private:
  std::unique_ptr<Database> Open(OpenMode mode) const {
    auto database = Database::Open(path_, {.mode = mode}, Say);
    if (!database.ok()) qFatal("%s", base::Message(database.status()).c_str());
    return *std::move(database);
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string path_;
};

}  // namespace onepiece::sqlite

ONEPIECE_TEST(onepiece::sqlite::SqliteTest)
#include "sqlite_test.moc"
