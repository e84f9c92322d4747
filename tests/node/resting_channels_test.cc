#include "cluster/node/resting_channels.h"

#include <QtTest>
#include <set>
#include <utility>

#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

using Names = std::multiset<std::string>;

/// The names of the channels that are open. Thread-safe.
class Open {
 public:
  void Add(const std::string& name) {
    const base::MutexLock lock(mutex_);
    names_.insert(name);
  }
  void Remove(const std::string& name) {
    const base::MutexLock lock(mutex_);
    names_.erase(names_.find(name));
  }
  Names names() {
    const base::MutexLock lock(mutex_);
    return names_;
  }

 private:
  base::Mutex mutex_;
  Names names_ ABSL_GUARDED_BY(mutex_);
};

class NamedChannel final : public fabric::Channel {
 public:
  NamedChannel(std::string name, Open& open) : Channel(kMiB), name_(std::move(name)), open_(open) {
    open_.Add(name_);
  }
  ~NamedChannel() override { open_.Remove(name_); }

 private:
  absl::Status Run(std::span<const fabric::Op>, base::MonotonicTime) override {
    return absl::OkStatus();
  }
  const std::string name_;
  Open& open_;
};

struct Rest {
  void Add(const std::string& address, const std::string& name, std::uint64_t bytes = kMiB) {
    fabric::RemoteRegion region;
    region.address = address;
    region.length_bytes = bytes;
    channels.Add(region, std::make_unique<NamedChannel>(name, open));
  }

  // The object's own thread may be closing them just now.
  bool AreOpen(const Names& names) {
    return testing::Eventually(std::chrono::seconds(10), [&] { return open.names() == names; });
  }

  Open open;
  base::ManualClock clock;
  RestingChannels channels{clock};
};

}  // namespace

class RestingChannelsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Tidy_ClosesWhatHasRestedForLongEnough() {
    Rest f;
    f.Add("a", "early");
    f.clock.Advance(base::Scaled(RestingChannels::kRest) / 2);
    f.Add("b", "late");
    f.channels.Tidy();
    QVERIFY(f.AreOpen({"early", "late"}));
    f.clock.Advance(base::Scaled(RestingChannels::kRest) / 2);
    f.channels.Tidy();
    QVERIFY(f.AreOpen({"late"}));
  }

  void Add_ReplacesTheChannelToTheSameRegion() {
    Rest f;
    f.Add("a", "first");
    f.Add("b", "other");
    f.clock.Advance(base::Scaled(RestingChannels::kRest) / 2);
    f.Add("a", "second");
    QVERIFY(f.AreOpen({"other", "second"}));
    f.clock.Advance(base::Scaled(RestingChannels::kRest) / 2);
    f.channels.Tidy();
    QVERIFY(f.AreOpen({"second"}));
  }

  void Add_MakesRoom_TheLongestRestedGoesFirst() {
    Rest f;
    f.Add("z", "oldest");
    f.clock.Advance(std::chrono::milliseconds(1));
    for (std::size_t i = 1; i < RestingChannels::kMaxChannels; ++i)
      f.Add("region " + std::to_string(i), "newer");
    QCOMPARE(f.open.names().size(), RestingChannels::kMaxChannels);
    f.Add("one more", "newest");
    QCOMPARE(f.open.names().size(), RestingChannels::kMaxChannels);
    QCOMPARE(f.open.names().count("oldest"), std::size_t{0});
  }

  void Add_TheRegionsHaveABoundTogether() {
    Rest f;
    f.Add("a", "small");
    f.clock.Advance(std::chrono::milliseconds(1));
    f.Add("b", "large", RestingChannels::kMaxBytes);
    QVERIFY(f.AreOpen({"large"}));
    f.Add("c", "too large", RestingChannels::kMaxBytes + 1);
    QVERIFY(f.AreOpen({"large"}));
    f.Add("d", "small");
    QVERIFY(f.AreOpen({"small"}));
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::RestingChannelsTest)
#include "resting_channels_test.moc"
