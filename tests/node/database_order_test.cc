#include "cluster/node/database_order.h"

#include <QtTest>
#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "cluster/node/routing.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

enum class Known { kNothing, kHosts, kZones, kBoth };

/// Some databases, on some hosts in some zones, as far as they are known.
std::vector<DatabasePlace> RandomPlaces(Known known, std::mt19937& random) {
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  const int hosts = 1 + below(4), zones = 1 + below(3);
  std::vector<int> zone_of;
  for (int i = 0; i < hosts; ++i) zone_of.push_back(below(static_cast<unsigned>(zones)));
  std::vector<DatabasePlace> places;
  const int databases = 2 + below(7);
  for (int i = 0; i < databases; ++i) {
    const int host = below(static_cast<unsigned>(hosts));
    DatabasePlace& place = places.emplace_back();
    place.node_id = "db-" + std::to_string(i);
    if (known == Known::kHosts || known == Known::kBoth) place.host = "h" + std::to_string(host);
    if (known == Known::kZones || known == Known::kBoth)
      place.zone = "z" + std::to_string(zone_of[static_cast<std::size_t>(host)]);
  }
  return places;
}

std::vector<DatabasePlace> Chosen(const base::Uid& uid, const std::vector<DatabasePlace>& places,
                                  std::size_t count) {
  std::vector<DatabasePlace> chosen;
  for (const std::size_t place : DatabaseOrder(uid, places, count)) chosen.push_back(places[place]);
  return chosen;
}

std::set<std::string> IdsOf(const std::vector<DatabasePlace>& places) {
  std::set<std::string> names;
  for (const DatabasePlace& place : places) names.insert(place.node_id);
  return names;
}

template <typename Of>
std::map<std::string, int> CountBy(const std::vector<DatabasePlace>& places, Of of) {
  std::map<std::string, int> counts;
  for (const DatabasePlace& place : places) ++counts[of(place)];
  return counts;
}

std::string HostOf(const DatabasePlace& place) {
  return place.host.empty() ? place.node_id : place.host;
}

/// True when no domain that has a database to spare has two fewer of the chosen than another one.
bool AreSpread(const std::map<std::string, int>& chosen, const std::map<std::string, int>& all) {
  int most = 0;
  for (const auto& [domain, count] : chosen) most = std::max(most, count);
  return std::ranges::all_of(all, [&](const auto& domain) {
    const auto found = chosen.find(domain.first);
    const int count = found == chosen.end() ? 0 : found->second;
    return count == domain.second || count >= most - 1;
  });
}

}  // namespace

class DatabaseOrderTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void RandomTables_data() {
    QTest::addColumn<int>("known");
    QTest::newRow("nothing is known") << static_cast<int>(Known::kNothing);
    QTest::newRow("hosts") << static_cast<int>(Known::kHosts);
    QTest::newRow("zones") << static_cast<int>(Known::kZones);
    QTest::newRow("hosts and zones") << static_cast<int>(Known::kBoth);
  }
  void RandomTables() {
    QFETCH(int, known);
    std::mt19937 random(7);
    for (int round = 0; round < 500; ++round) {
      const base::Uid uid = base::Uid::GenerateRandom();
      std::vector<DatabasePlace> places = RandomPlaces(static_cast<Known>(known), random);
      const auto zone_of = [](const DatabasePlace& place) { return place.zone; };
      for (std::size_t copies = 1; copies <= 4; ++copies) {
        const std::vector<DatabasePlace> chosen = Chosen(uid, places, copies);
        QCOMPARE(chosen.size(), std::min(copies, places.size()));
        QCOMPARE(IdsOf(chosen).size(), chosen.size());
        QVERIFY(AreSpread(CountBy(chosen, zone_of), CountBy(places, zone_of)));
        for (const auto& [zone, count] : CountBy(places, zone_of)) {
          const auto elsewhere = [&zone = zone](const DatabasePlace& place) {
            return place.zone != zone;
          };
          std::vector<DatabasePlace> chosen_here = chosen, all_here = places;
          std::erase_if(chosen_here, elsewhere);
          std::erase_if(all_here, elsewhere);
          QVERIFY(AreSpread(CountBy(chosen_here, HostOf), CountBy(all_here, HostOf)));
        }
        JudgeLeaving(uid, places, chosen);
        std::shuffle(places.begin(), places.end(), random);
        QVERIFY(IdsOf(Chosen(uid, places, copies)) == IdsOf(chosen));
      }
    }
  }

  void HostsThatTellNothing_GiveTheOrderOfTheWeights() {
    const base::Uid uid = base::Uid::GenerateRandom();
    const auto order_with = [&](const std::string& host, bool different) {
      std::vector<DatabasePlace> places;
      for (int i = 0; i < 6; ++i) {
        places.push_back({.node_id = "db-" + std::to_string(i),
                          .host = different ? host + std::to_string(i) : host,
                          .zone = ""});
      }
      return DatabaseOrder(uid, places, 6);
    };
    std::vector<std::size_t> weights = {0, 1, 2, 3, 4, 5};
    std::ranges::sort(weights, std::greater<>(), [&](std::size_t i) {
      return RendezvousWeight(uid, "db-" + std::to_string(i));
    });
    QVERIFY(order_with("", false) == weights);
    QVERIFY(order_with("one", false) == weights);
    QVERIFY(order_with("h", true) == weights);
  }

  void FewerHostsThanCopies_TakeSeveralEach() {
    const std::vector<DatabasePlace> places = {
        {"a", "left", ""}, {"b", "left", ""}, {"c", "left", ""}, {"d", "right", ""}};
    for (int i = 0; i < 100; ++i) {
      const auto chosen = Chosen(base::Uid::GenerateRandom(), places, 3);
      QCOMPARE(CountBy(chosen, HostOf).at("left"), 2);
      QCOMPARE(CountBy(chosen, HostOf).at("right"), 1);
    }
  }

  void TextOf_TellsPlacesApart() {
    QCOMPARE(TextOf({"a", "", ""}), std::string("a"));
    QVERIFY(TextOf({"a", "h", ""}) != TextOf({"a", "", "h"}));
    QVERIFY(TextOf({"a", "h", ""}) != TextOf({"a", "", ""}));
  }

 private:
  // One that leaves moves its own copy alone, and nothing when it had none. Backwards it is one
  // that comes.
  static void JudgeLeaving(const base::Uid& uid, const std::vector<DatabasePlace>& places,
                           const std::vector<DatabasePlace>& chosen) {
    for (const DatabasePlace& gone : places) {
      std::vector<DatabasePlace> left = places;
      std::erase(left, gone);
      const std::set<std::string> before = IdsOf(chosen);
      std::set<std::string> after = IdsOf(Chosen(uid, left, chosen.size()));
      for (const std::string& name : before) after.erase(name);
      const bool replaced = before.contains(gone.node_id) && left.size() >= chosen.size();
      QCOMPARE(after.size(), std::size_t{replaced ? 1U : 0U});
    }
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::DatabaseOrderTest)
#include "database_order_test.moc"
