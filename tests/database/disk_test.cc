// A database's memory and its disk: pressure moves results to files, purges take them away, and a
// restart brings back what was there and says honestly what was not.
#include "cluster/database/disk.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <functional>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "tests/eventually.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::int64_t kResult = 10'000;

// A database without the process around it.
struct Instance {
  Instance(const std::string& folder, std::int64_t results, bool spill, base::Clock& clock,
           std::int64_t spill_budget = 1 << 30)
      : disk({.folder = folder, .spill = spill, .spill_budget_bytes = spill_budget}, clock),
        store({.budget_bytes = results * kResult, .tombstone_ttl = 60s}, clock,
              {.made = [this](const v1::JobRecord& record) { disk.Note(record); },
               .ended = [this](const v1::JobRecord& record) { disk.Note(record); },
               .forgotten = [this](const base::Uid& uid) { disk.Forget(uid); },
               .served =
                   [this](const base::Uid& uid, const Artifacts* artifacts) {
                     disk.Served(uid, artifacts);
                     if (on_served) on_served(uid, artifacts);
                   }}) {}
  ~Instance() { disk.Stop(); }

  /// Called under a lock of the store. Set it while no other thread works.
  std::function<void(const base::Uid&, const Artifacts*)> on_served;
  Disk disk;
  JobStore store;
};

}  // namespace

class DiskTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    dir_ = folder_->filePath("data").toStdString();
    clock_ = std::make_unique<base::ManualClock>();
    uids_.clear();
  }

  void Pressure_MovesTheOldest_DownToFourFifths() {
    auto node = Start(10, true);
    for (int i = 0; i < 10; ++i) Add(*node);
    QVERIFY(Eventually([&] { return node->store.stats().result_bytes <= 8 * kResult; }));
    QCOMPARE(node->store.stats().result_bytes, 8 * kResult);
    QCOMPARE(node->store.stats().spilled_results, 2);
    QCOMPARE(Files(), 2);
    for (std::size_t i = 0; i < uids_.size(); ++i) {
      const auto found = node->store.FindArtifact(uids_[i], "");
      QVERIFY(found.ok());
      QVERIFY(found->data.text() == Content(i));
    }
    QVERIFY(fs::exists(dir_ + "/results/" + uids_[0] + ".result"));
    QVERIFY(fs::exists(dir_ + "/results/" + uids_[1] + ".result"));
  }

  void PurgedAndExpired_TakeTheirFilesAway() {
    auto node = Start(10, true);
    for (int i = 0; i < 10; ++i) Add(*node);
    QVERIFY(Eventually([&] { return Files() == 2; }));
    QVERIFY(node->store.Acknowledge(uids_[0]).ok());
    QVERIFY(Eventually([&] { return Files() == 1; }));
    clock_->Advance(601s);
    node->store.Sweep({});
    QVERIFY(Eventually([&] { return Files() == 0; }));
    QCOMPARE(Reason(node->store.FindArtifact(uids_[1], "").status()),
             std::string("RESULT_EXPIRED"));
    QCOMPARE(node->disk.stats().spill.bytes, 0);
  }

  void Asked_MakesRoom_UntilFilesAreFullToo() {
    auto node = Start(2, true, 3 * 16'384);
    for (int i = 0; i < 2; ++i) Add(*node);
    int more = 0;
    ResultBundle bundle = Bundle();
    while (more < 20) {
      const auto outcome =
          node->store.StoreResult(bundle, message::Kind::kResult, {.wait_for_room = true});
      QVERIFY(outcome.ok());
      if (*outcome == StoreOutcome::kStored) {
        ++more;
        bundle = Bundle();
      } else if (!node->disk.MakeRoom(clock_->Now() + 20s)) {
        break;
      }
    }
    // Three files fit, and two results in memory.
    QCOMPARE(Files(), 3);
    QCOMPARE(more, 3);
    QCOMPARE(node->store.stats().results, 2);
  }

  void WithoutSpill_NothingMoves() {
    auto node = Start(2, false);
    for (int i = 0; i < 2; ++i) Add(*node);
    QVERIFY(!node->disk.MakeRoom(clock_->Now() + 20s));
    QVERIFY(!fs::exists(dir_ + "/results"));
    Disk nothing({}, *clock_);
    QVERIFY(nothing.Open("cluster", node->store).ok());
    QVERIFY(!nothing.MakeRoom(clock_->Now() + 20s));
  }

  void Restart_BringsBackFiles_AndSaysWhatIsLost() {
    std::string running;
    {
      auto node = Start(10, true);
      for (int i = 0; i < 10; ++i) Add(*node);
      QVERIFY(Eventually([&] { return Files() == 2; }));
      QVERIFY(node->store.Acknowledge(uids_[9]).ok());
      running = Create(*node);
    }
    auto node = Start(10, true);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto found = node->store.FindArtifact(uids_[i], "");
      QVERIFY2(found.ok(), found.status().ToString().c_str());
      QVERIFY(found->data.text() == Content(i));
    }
    QCOMPARE(node->store.stats().missing_results, 7);
    QCOMPARE(Reason(node->store.FindArtifact(uids_[9], "").status()),
             std::string("RESULT_FETCHED"));
    QCOMPARE(node->store.Get(running)->job().state(), v1::Job::QUEUED);
    // A peer sends one of the others.
    QCOMPARE(Reason(node->store.FindArtifact(uids_[2], "").status()),
             std::string("RESULT_ELSEWHERE"));
    QVERIFY(node->store.StoreResult(Bundle(2), message::Kind::kReplica).ok());
    node->store.MarkLost(clock_->Now(), [](const base::Uid&) { return true; });
    QVERIFY(node->store.FindArtifact(uids_[2], "").ok());
    QCOMPARE(node->store.stats().lost_on_restart, 6U);
    for (std::size_t i = 3; i < 9; ++i) {
      QCOMPARE(Reason(node->store.FindArtifact(uids_[i], "").status()),
               std::string("LOST_ON_RESTART"));
      QCOMPARE(node->store.Get(uids_[i])->job().error().reason(), std::string("LOST_ON_RESTART"));
    }
    // A peer that comes back later repairs the loss.
    QVERIFY(node->store.StoreResult(Bundle(3), message::Kind::kReplica).ok());
    QVERIFY(node->store.FindArtifact(uids_[3], "").ok());
  }

  void Restart_DamagedFile_IsMissing_StaleOnesGo() {
    {
      auto node = Start(10, true);
      for (int i = 0; i < 10; ++i) Add(*node);
      QVERIFY(Eventually([&] { return Files() == 2; }));
    }
    fs::resize_file(dir_ + "/results/" + uids_[0] + ".result", 4096);
    {
      auto node = Start(10, true);
      QCOMPARE(node->store.stats().missing_results, 9);
      QVERIFY(node->store.FindArtifact(uids_[1], "").ok());
      QCOMPARE(Files(), 1);
    }
    // So much later that no database remembers the jobs.
    clock_->Advance(2h);
    auto node = Start(10, true);
    QCOMPARE(node->store.stats().records, 0);
    QCOMPARE(Files(), 0);
    QVERIFY(Eventually([&] { return node->disk.stats().journal.records == 0; }));
  }

  // The disk could not be read for a while.
  void Restart_UnreadableFile_IsMissing_UntilItCanBeRead() {
    {
      auto node = Start(10, true);
      for (int i = 0; i < 10; ++i) Add(*node);
      QVERIFY(Eventually([&] { return Files() == 2; }));
    }
    const std::string file = dir_ + "/results/" + uids_[0] + ".result", aside = dir_ + "/aside";
    fs::rename(file, aside);
    fs::create_symlink(file, file);  // ELOOP, for the superuser too.
    {
      auto node = Start(10, true);
      QCOMPARE(node->store.stats().missing_results, 9);
      QCOMPARE(node->disk.stats().spill.damaged, std::uint64_t{0});
    }
    fs::rename(aside, file);
    auto node = Start(10, true);
    const auto found = node->store.FindArtifact(uids_[0], "");
    QVERIFY2(found.ok(), found.status().ToString().c_str());
    QVERIFY(found->data.text() == Content(0));
  }

  // A result is purged while another one moves, comes again, and moves in the same pass.
  void PurgedBeforeItsMove_KeepsItsNewFile() {
    {
      auto node = Start(10, true);
      for (int i = 0; i < 10; ++i) Add(*node);
      QVERIFY(Eventually([&] { return Files() == 2; }));
    }
    {
      // The disk remembers a file of this result, and the store does not have it.
      std::fstream file(dir_ + "/results/" + uids_[0] + ".result",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(5000);
      file.put('?');
    }
    auto node = Start(10, true);
    const base::Uid again = *base::Uid::Parse(uids_[0]);
    base::Uid oldest{};
    int served = 0;
    // The second time that the oldest is served is its move, which the disk's thread makes.
    node->on_served = [&](const base::Uid& uid, const Artifacts*) {
      if (uid == oldest && ++served == 2) node->disk.Served(again, nullptr);
    };
    uids_.push_back(Create(*node));
    oldest = *base::Uid::Parse(uids_.back());
    const auto store = [&](std::size_t number, message::Kind kind) {
      const auto outcome = node->store.StoreResult(Bundle(number), kind);
      return outcome.ok() && *outcome == StoreOutcome::kStored;
    };
    QVERIFY(store(uids_.size() - 1, message::Kind::kResult));
    QVERIFY(store(0, message::Kind::kReplica));
    for (int i = 0; i < 8; ++i) Add(*node);
    QVERIFY(Eventually([&] { return node->store.stats().result_bytes <= 8 * kResult; }));
    QCOMPARE(served, 2);
    QVERIFY(node->disk.MakeRoom(clock_->Now() + 20s));  // The next pass has removed what is gone.
    QVERIFY(fs::exists(dir_ + "/results/" + uids_[0] + ".result"));
  }

  void OtherCluster_IsRefused() {
    { (void)Start(10, true); }
    Instance other(dir_, 10, true, *clock_);
    QCOMPARE(Reason(other.disk.Open("other", other.store)), std::string("OTHER_CLUSTER"));
  }

 private:
  std::unique_ptr<Instance> Start(std::int64_t results, bool spill,
                                  std::int64_t spill_budget = 1 << 30) {
    auto node = std::make_unique<Instance>(dir_, results, spill, *clock_, spill_budget);
    const absl::Status opened = node->disk.Open("cluster", node->store);
    if (!opened.ok()) qFatal("%s", opened.ToString().c_str());
    return node;
  }
  std::string Create(Instance& node) {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    job.set_uid(base::Uid::GenerateRandom().ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id("app");
    *job.mutable_create_time() = job::ToTimestamp(clock_->WallNow());
    job::SetTimeLimit(60s, clock_->WallNow(), record);
    record.set_fingerprint("f");
    record.set_result_ttl_s(600);
    if (!node.store.Create(record).ok()) qFatal("Create");
    return job.uid();
  }
  static std::string Content(std::size_t number) {
    return std::string(kResult, static_cast<char>('a' + number % 26));
  }
  ResultBundle Bundle(std::optional<std::size_t> number = {}) {
    ResultBundle bundle;
    if (!number.has_value()) {
      number = uids_.size();
      uids_.push_back(base::Uid::GenerateRandom().ToString());
    }
    bundle.uid = *base::Uid::Parse(uids_[*number]);
    bundle.app_id = "app";
    bundle.ingress_time = clock_->WallNow();
    bundle.deadline = clock_->Now() + 60s;
    StoredArtifact& artifact = bundle.artifacts.emplace_back();
    const std::string content = Content(*number);
    artifact.info.set_artifact("video");
    artifact.info.set_media_type("video/mp4");
    artifact.info.set_size_bytes(kResult);
    artifact.info.set_sha256(base::Sha256Hex(content));
    artifact.data = message::Buffer::FromString(content);
    bundle.total_bytes = kResult;
    return bundle;
  }
  void Add(Instance& node) {
    uids_.push_back(Create(node));
    const auto outcome = node.store.StoreResult(Bundle(uids_.size() - 1), message::Kind::kResult);
    if (!outcome.ok() || *outcome != StoreOutcome::kStored) qFatal("StoreResult");
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    return testing::Eventually([&] {
      clock_->Advance(10ms);
      return condition();
    });
  }
  int Files() const {
    int files = 0;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(dir_ + "/results", error))
      files += entry.path().extension() == ".result" ? 1 : 0;
    return files;
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string dir_;
  std::unique_ptr<base::ManualClock> clock_;
  std::vector<std::string> uids_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::DiskTest)
#include "disk_test.moc"
