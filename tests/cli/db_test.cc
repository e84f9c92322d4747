// Tests `onepiece db` and `onepiece jobs` from outside, against real databases and a real proxy.
#include <grpcpp/grpcpp.h>

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "google/protobuf/util/time_util.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/database/database_cluster.h"
#include "tests/eventually.h"
#include "tests/program.h"
#include "tests/proxy/proxy_cluster.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;
using testing::Outcome;

class FakeNodeManager final : public v1::NodeManagerService::Service {
 public:
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    const base::MutexLock lock(mutex_);
    *response = cluster_;
    return grpc::Status::OK;
  }
  grpc::Status ListProxies(grpc::ServerContext*, const v1::ListProxiesRequest*,
                           v1::ListProxiesResponse* response) override {
    const base::MutexLock lock(mutex_);
    for (const v1::Node& node : cluster_.nodes()) {
      if (node.role() == v1::PROXY)
        response->add_proxies()->mutable_endpoint()->set_address(node.address());
    }
    return grpc::Status::OK;
  }
  void Show(const std::string& node_id, v1::Role role, const std::string& address) {
    const base::MutexLock lock(mutex_);
    cluster_.set_cluster_id("test");
    v1::Node& node = *cluster_.add_nodes();
    node.set_node_id(node_id);
    node.set_role(role);
    node.set_address(address);
    node.set_state(v1::Node::READY);
  }

 private:
  base::Mutex mutex_;
  v1::Cluster cluster_ ABSL_GUARDED_BY(mutex_);
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
    Start({});
  }
  void cleanup() { Stop(); }

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

  void Jobs_AndTheDatabases_NarrowBySameLabelsAndTimes() {
    const std::string old = Created("video", 120min, {{"user", "ann"}}),
                      middle = Created("video", 60min, {{"user", "ann"}, {"size", "big"}}),
                      young = Created("image", 1min, {{"user", "bob"}});
    const QString rfc3339 = QString::fromStdString(google::protobuf::util::TimeUtil::ToString(
        job::ToTimestamp(base::SystemClock().WallNow() - 90min)));
    const QString beginning = QString(rfc3339).left(19);  // UTC, because it names no zone.
    const std::vector<std::pair<QStringList, std::vector<std::string>>> cases{
        {{}, {young, middle, old}},
        {{"--since", "90m"}, {young, middle}},
        {{"--since", rfc3339}, {young, middle}},
        {{"--until", "90m"}, {old}},
        {{"--until", beginning}, {old}},
        {{"--since", rfc3339, "--until", "1800s"}, {middle}},
        {{"--since", "2h30m", "--until", "1h30m"}, {old}},
        {{"--until", "2000-01-01"}, {}},
        {{"--label", "user=ann"}, {middle, old}},
        {{"--label", "user=ann", "--label", "size=big"}, {middle}},
        {{"--label", "user="}, {}},
        {{"--label", "user=bob", "--since", "90m", "--app", "image"}, {young}}};
    for (const QStringList& verb : {QStringList{"jobs"}, {"db", "list"}}) {
      for (const auto& [narrowed, expected] : cases) {
        const Outcome outcome = Run(verb + narrowed + QStringList{"--json"});
        QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
        std::vector<std::string> uids;
        const json document = outcome.Document();
        for (const json& job : document["jobs"]) uids.push_back(job["uid"]);
        QVERIFY2(uids == expected, qPrintable((verb + narrowed).join(' ')));
      }
      for (const QStringList& wrong : {QStringList{"--label", "nokey"},
                                       {"--label", "=x"},
                                       {"--since", "yesterday"},
                                       {"--until", "-5m"},
                                       {"--since", "2026-13-01"}}) {
        const Outcome outcome = Run(verb + wrong);
        QCOMPARE(outcome.exit_code, 2);
        QVERIFY2(outcome.Says(wrong[0].toStdString() + ": "), outcome.err.c_str());
      }
      QVERIFY(Run(verb + QStringList{"--help"}).Says("or 15m for ago"));
    }
  }

  // The results are far more than fits into memory. Every byte comes back, and is gone after the
  // purge.
  void Spill_KeepsEveryResult_UntilItIsPurged() {
    constexpr std::size_t kBytes = 200'000, kResults = 12;
    constexpr std::int64_t kBudget = 1'000'000;
    Stop();
    Start({.budget_bytes = kBudget});
    std::vector<std::string> uids, contents;
    for (std::size_t i = 0; i < kResults; ++i) {
      contents.push_back(i == 3 ? "" : std::string(kBytes + i, static_cast<char>('a' + i)));
      uids.push_back(Succeeded("video", contents.back()));
    }
    const std::string large = Created("video", 0min, {});
    database::Require(cluster_->SendResult(large, std::string(kBudget + 1, 'x')).status());
    const auto failed = [&] {
      return Db({"get", QString::fromStdString(large), "--json"}).ErrorReason();
    };
    QVERIFY(database::Eventually([&] { return failed() == "RESULT_BUDGET_EXCEEDED"; }));
    QVERIFY(Db({"get", QString::fromStdString(large), "--json"}).Says("budget_bytes, 1000000"));
    for (const json& database : Db({"stats", "--json"}).Document()["databases"]) {
      QVERIFY(database["result_bytes"].get<std::int64_t>() <= kBudget);
      QVERIFY(database["spilled_results"].get<int>() >= 7);
      QCOMPARE(database["refused"].get<int>(),
               database["node_id"] == json(cluster_->Order(large).front()) ? 1 : 0);
    }
    QVERIFY(Files() >= 14);
    const QString path = folder_->filePath("out.mp4");
    for (std::size_t i = 0; i < kResults; ++i) {
      const Outcome got = Db({"get", QString::fromStdString(uids[i]), "-o", path, "--database",
                              i % 2 == 0 ? "db-1" : "db-2", "--json"});
      QVERIFY2(got.exit_code == 0, got.err.c_str());
      QCOMPARE(got.Document()["checked"], json(true));
      QCOMPARE(got.Document()["sha256"], json(base::Sha256Hex(contents[i])));
      QVERIFY(ReadBytes(path.toStdString()) == contents[i]);
    }
    QCOMPARE(Db({"purge", "--all", "--yes"}).exit_code, 0);
    QVERIFY(database::Eventually([&] { return Files() == 0; }));
    for (const json& database : Db({"stats", "--json"}).Document()["databases"]) {
      QCOMPARE(database["result_bytes"], json(0));
      QCOMPARE(database["spilled_results"], json(0));
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
    QCOMPARE(whole.Document()["sha256"], json(base::Sha256Hex(bytes)));
    // Each database gives a part of the result.
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
    // The failed calls left the file as it was, and no other file.
    QCOMPARE(ReadBytes(path.toStdString()).size(), std::size_t{1});
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files).size(), 1);
  }

  void Purge_AsksCountsAndPurges() {
    const std::string uid = Succeeded("video", 1000), other = Succeeded("image", 1000);
    const QString id = QString::fromStdString(uid);
    QCOMPARE(Db({"purge"}).exit_code, 2);
    QCOMPARE(Db({"purge", "--all"}).exit_code, 2);  // There is no terminal to ask on.
    QCOMPARE(Db({"purge", "nouid", "--yes"}).exit_code, 3);
    QCOMPARE(Db({"purge", "--all", "--ended-before", "soon", "--yes"}).exit_code, 2);
    const json counted = Db({"purge", "--all", "--dry-run", "--json"}).Document();
    QCOMPARE(counted["results"], json(4));  // Two results with two copies each.
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
  /// Starts databases that spill when they hold more than `store` allows.
  void Start(const database::JobStoreOptions& store) {
    cluster_ = std::make_unique<database::DatabaseCluster>();
    manager_ = std::make_unique<FakeNodeManager>();
    for (const std::string id : {"db-1", "db-2"}) {
      const auto spill = [&](database::DatabaseNodeOptions& options) {
        options.disk.folder = folder_->filePath(QString::fromStdString(id)).toStdString();
        options.disk.spill = true;
      };
      const auto& database = cluster_->AddDatabase(id, store, {.options = spill});
      manager_->Show(id, v1::DATABASE, database.server->address());
    }
    proxy_ = std::make_unique<proxy::Proxy>(*cluster_, "proxy-1");
    manager_->Show("proxy-1", v1::PROXY, proxy_->server.address());
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    server_->AddService(*manager_);
    database::Require(server_->Start().status());
  }
  void Stop() {
    server_.reset();
    proxy_.reset();
    cluster_.reset();
  }
  Outcome Run(const QStringList& arguments) const {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        arguments + QStringList{"--nodemanager", QString::fromStdString(server_->address())});
  }
  Outcome Db(const QStringList& arguments) const { return Run(QStringList{"db"} + arguments); }
  /// Returns the number of spilled results.
  int Files() const {
    int files = 0;
    for (const char* id : {"db-1", "db-2"})
      files +=
          static_cast<int>(QDir(folder_->filePath(id) + "/results").entryList({"*.result"}).size());
    return files;
  }
  /// Makes a job that both databases know.
  std::string Created(const std::string& app, base::Duration ago,
                      const std::map<std::string, std::string>& labels) {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    const base::WallTime now = base::SystemClock().WallNow();
    for (const auto& [key, value] : labels) (*job.mutable_labels())[key] = value;
    job.set_uid(base::Uid::Generate(base::ToUnixMs(now)).ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id(app);
    *job.mutable_create_time() = job::ToTimestamp(now - ago);
    job::SetTimeLimit(60s, now, record);
    record.set_fingerprint("f");
    record.set_result_ttl_s(600);
    database::Require(cluster_->records().Create(record).status());
    Reaches([&](database::JobStore& store) { return store.Get(job.uid()).ok(); });
    return job.uid();
  }
  /// Makes a job whose result both databases hold.
  std::string Succeeded(const std::string& app, const std::string& content) {
    std::string uid = Created(app, 0min, {});
    database::Require(cluster_->SendResult(uid, content).status());
    Reaches([&](database::JobStore& store) { return store.FindArtifact(uid, "").ok(); });
    return uid;
  }
  std::string Succeeded(const std::string& app, std::size_t bytes) {
    return Succeeded(app, std::string(bytes, 'v'));
  }
  template <typename Condition>
  void Reaches(const Condition& condition) {
    for (const char* id : {"db-1", "db-2"}) {
      const bool there = testing::Eventually(
          base::Scaled(20s), [&] { return condition(cluster_->at(id).node->store()); });
      if (!there) qFatal("it did not reach %s", id);
    }
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<database::DatabaseCluster> cluster_;
  std::unique_ptr<FakeNodeManager> manager_;
  std::unique_ptr<proxy::Proxy> proxy_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::DbTest)
#include "db_test.moc"
