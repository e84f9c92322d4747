// `onepiece db` from outside, against real databases.
#include <grpcpp/grpcpp.h>

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cluster/job/sha256.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/database/database_cluster.h"
#include "tests/program.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
using testing::Outcome;

class FakeNodeManager final : public v1::NodeManagerService::Service {
 public:
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    const std::scoped_lock lock(mutex_);
    *response = cluster_;
    return grpc::Status::OK;
  }
  void Show(const std::string& node_id, v1::Role role, const std::string& address) {
    const std::scoped_lock lock(mutex_);
    cluster_.set_cluster_id("test");
    v1::Node& node = *cluster_.add_nodes();
    node.set_node_id(node_id);
    node.set_role(role);
    node.set_address(address);
    node.set_state(v1::Node::READY);
  }

 private:
  std::mutex mutex_;
  v1::Cluster cluster_;  // Guarded by mutex_.
};

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

class DbTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    cluster_ = std::make_unique<database::DatabaseCluster>();
    manager_ = std::make_unique<FakeNodeManager>();
    for (const char* id : {"db-1", "db-2"})
      manager_->Show(id, v1::DATABASE, cluster_->AddDatabase(id).server->address());
    manager_->Show("proxy-1", v1::PROXY, "127.0.0.1:1");
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    server_->AddService(*manager_);
    QVERIFY(server_->Start().ok());
  }
  void cleanup() {
    server_.reset();
    cluster_.reset();
  }

  void Stats_OfEachDatabase() {
    (void)Succeeded("video", 5000);
    const json document = Db({"stats", "--json"}).Document();
    QCOMPARE(document["databases"].size(), std::size_t{2});
    for (const json& database : document["databases"]) {
      QCOMPARE(database["records"], json(1));
      QCOMPARE(database["results"], json(1));
      QCOMPARE(database["result_bytes"], json(5000));
      QVERIFY(database["budget_bytes"].get<std::int64_t>() > 5000);
      for (const char* field : {"memory_bytes", "spilled_bytes", "fetched", "expired", "deleted",
                                "evicted", "refused", "lost_on_restart", "copies", "peers"})
        QVERIFY2(database.contains(field), field);
    }
    const Outcome one = Db({"stats", "--database", "db-2"});
    QCOMPARE(one.exit_code, 0);
    QVERIFY(one.Says("db-2") && one.Says("peer      db-1") && !one.Says("peer      db-2"));
    QCOMPARE(Db({"stats", "--database", "db-9"}).exit_code, 3);
    QCOMPARE(Db({"stats", "--database", "proxy-1"}).exit_code, 3);
  }

  void Stats_WhoDoesNotAnswer_IsNamed() {
    cluster_->Kill("db-2");
    const Outcome outcome = Db({"stats", "--json"});
    QCOMPARE(outcome.exit_code, 69);
    const json databases = outcome.Document()["databases"];
    QVERIFY(databases[0].contains("records"));
    QVERIFY(databases[1].contains("error"));
  }

  void List_FiltersAndLimits() {
    const std::string first = Succeeded("video", 10), second = Succeeded("image", 10);
    const auto uids = [&](const QStringList& more) {
      std::vector<std::string> found;
      const Outcome outcome = Db(QStringList{"list", "--database", "db-1", "--json"} + more);
      const json document = outcome.Document();
      for (const json& job : document["jobs"]) found.push_back(job["uid"]);
      return found;
    };
    QCOMPARE(uids({}), (std::vector{second, first}));
    QCOMPARE(uids({"--limit", "1"}), std::vector{second});
    QCOMPARE(uids({"--app", "video"}), std::vector{first});
    QCOMPARE(uids({"--state", "RUNNING"}), std::vector<std::string>{});
    for (const QStringList& wrong : {QStringList{"--state", "DONE"},
                                     {"--label", "nokey"},
                                     {"--since", "yesterday"},
                                     {"--limit", "0"}}) {
      const Outcome outcome = Db(QStringList{"list", "--database", "db-1"} + wrong);
      QCOMPARE(outcome.exit_code, 2);
    }
  }

  void Get_ShowsWhereAResultIs() {
    const std::string uid = Succeeded("video", 10);
    const json document = Db({"get", QString::fromStdString(uid), "--json"}).Document();
    QCOMPARE(document["uid"], json(uid));
    QCOMPARE(document["state"], json("SUCCEEDED"));
    QCOMPARE(document["databases"].size(), std::size_t{2});
    for (const json& place : document["databases"]) QCOMPARE(place["has_bytes"], json(true));
    const QString nobody = QString::fromStdString(base::Uid::GenerateRandom().ToString());
    QCOMPARE(Db({"get", nobody}).exit_code, 3);
    QCOMPARE(Db({"get", "x"}).exit_code, 3);
    QCOMPARE(Db({"get", QString::fromStdString(uid), "--offset", "3"}).exit_code, 2);
  }

  void Get_FetchesWholeAndParts_AndLeavesTheResult() {
    const std::string uid = Succeeded("video", 2'500'000);
    const QString id = QString::fromStdString(uid), path = folder_->filePath("out.mp4");
    const Outcome whole = Db({"get", id, "-o", path, "--json"});
    QVERIFY2(whole.exit_code == 0, whole.err.c_str());
    const std::string bytes = ReadBytes(path.toStdString());
    QCOMPARE(bytes.size(), std::size_t{2'500'000});
    QCOMPARE(whole.Document()["checked"], json(true));
    QCOMPARE(whole.Document()["sha256"], json(job::Sha256Hex(std::as_bytes(std::span(bytes)))));
    // From each database, a part.
    for (const char* database : {"db-1", "db-2"}) {
      const Outcome part = Db({"get", id, "-o", path, "--offset", "1000", "--bytes", "70000",
                               "--database", database, "--json"});
      QVERIFY2(part.exit_code == 0, part.err.c_str());
      QCOMPARE(part.Document()["checked"], json(false));
      QCOMPARE(ReadBytes(path.toStdString()), bytes.substr(1000, 70'000));
    }
    const Outcome rest = Db({"get", id, "-o", path, "--offset", "2499999", "--bytes", "100"});
    QCOMPARE(rest.exit_code, 0);
    QCOMPARE(ReadBytes(path.toStdString()).size(), std::size_t{1});
    const Outcome beyond = Db({"get", id, "-o", path, "--offset", "2500001"});
    QCOMPARE(beyond.exit_code, 2);
    QCOMPARE(Db({"get", id, "-o", path, "--artifact", "nosuch"}).exit_code, 3);
    QCOMPARE(Db({"get", id, "-o", "/nonexistent/x"}).exit_code, 4);
    // What failed left the file as it was, and nothing beside it.
    QCOMPARE(ReadBytes(path.toStdString()).size(), std::size_t{1});
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files).size(), 1);
  }

  void Purge_AsksCountsAndPurges() {
    const std::string uid = Succeeded("video", 1000), other = Succeeded("image", 1000);
    const QString id = QString::fromStdString(uid);
    QCOMPARE(Db({"purge"}).exit_code, 2);
    QCOMPARE(Db({"purge", "--all"}).exit_code, 2);  // Nobody can be asked.
    QCOMPARE(Db({"purge", "nouid", "--yes"}).exit_code, 3);
    QCOMPARE(Db({"purge", "--all", "--ended-before", "soon", "--yes"}).exit_code, 2);
    const json counted = Db({"purge", "--all", "--dry-run", "--json"}).Document();
    QCOMPARE(counted["results"], json(4));  // Two, twice.
    QCOMPARE(counted["dry_run"], json(true));
    QCOMPARE(Db({"purge", "--ended-before", "1h", "--dry-run", "--json"}).Document()["results"],
             json(0));
    const Outcome purged = Db({"purge", id, "--yes", "--json"});
    QVERIFY2(purged.exit_code == 0, purged.err.c_str());
    QVERIFY(purged.Document()["results"].get<int>() >= 1);
    const Outcome again = Db({"purge", id, "--yes"});
    QCOMPARE(again.exit_code, 3);
    QCOMPARE(Db({"get", id, "-o", folder_->filePath("x")}).exit_code, 4);
    QCOMPARE(Db({"purge", "--app", "image", "--ended-before", "0s", "--yes"}).exit_code, 0);
    QCOMPARE(Db({"purge", "--all", "--dry-run", "--json"}).Document()["results"], json(0));
  }

 private:
  Outcome Db(const QStringList& arguments) const {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        QStringList{"db"} + arguments +
            QStringList{"--nodemanager", QString::fromStdString(server_->address())});
  }
  /// A job whose result both databases hold.
  std::string Succeeded(const std::string& app, std::size_t bytes) {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    const base::WallTime now = base::SystemClock().WallNow();
    job.set_uid(base::Uid::Generate(base::ToUnixMs(now)).ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id(app);
    *job.mutable_create_time() = job::ToTimestamp(now);
    *job.mutable_deadline() = job::ToTimestamp(now + 60s);
    record.set_fingerprint("f");
    record.set_result_ttl_s(600);
    database::Require(cluster_->records().Create(record).status());
    database::Require(cluster_->SendResult(job.uid(), std::string(bytes, 'v')).status());
    for (const char* id : {"db-1", "db-2"}) {
      const bool there = database::Eventually(
          [&] { return cluster_->at(id).node->store().FindArtifact(job.uid(), "").ok(); });
      if (!there) qFatal("the result did not reach %s", id);
    }
    return job.uid();
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<database::DatabaseCluster> cluster_;
  std::unique_ptr<FakeNodeManager> manager_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::cli

QTEST_GUILESS_MAIN(onepiece::cli::DbTest)
#include "db_test.moc"
