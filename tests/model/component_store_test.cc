#include "stages/model/component_store.h"

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "stages/model/content_hash.h"
#include "stages/model/weights.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

namespace fs = std::filesystem;

std::string Models() { return std::string(ONEPIECE_SOURCE_DIR) + "/resources/models"; }
std::string Encoder(const std::string& model) { return Models() + "/" + model + "/text_encoder"; }

/// Returns all weights of a component.
class Held {
 public:
  static absl::StatusOr<Held> Load(const std::string& dir, at::Device device,
                                   at::ScalarType products) {
    ONEPIECE_ASSIGN_OR_RETURN(const ComponentFiles files, ComponentFiles::Open(dir));
    WeightBinder weights(files, device, products);
    Held held;
    for (const auto& [name, place] : files.tensors())
      held.tensors_.push_back(weights.GetFactor(name, place.entry->shape));
    held.bytes_ = weights.bytes();
    if (!weights.status().ok()) return weights.status();
    return held;
  }
  [[nodiscard]] std::int64_t weight_bytes() const { return bytes_; }

 private:
  std::vector<at::Tensor> tensors_;
  std::int64_t bytes_ = 0;
};

/// A component that counts how often it is loaded. Loading ends when the test says so.
struct Slow {
  static inline std::atomic<int> loads = 0;
  static inline std::promise<void> open;
  static inline std::shared_future<void> gate = open.get_future().share();
  static inline absl::Status result;

  static absl::StatusOr<Slow> Load(const std::string&, at::Device) {
    ++loads;
    gate.wait();
    if (!result.ok()) return result;
    return Slow{};
  }
  static std::int64_t weight_bytes() { return 100; }
};

}  // namespace

class ComponentStoreTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Get_SharesTheSameContentOfTwoFolders() {
    ComponentStore store;
    auto one = store.Get<Held>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat);
    auto two = store.Get<Held>(Encoder("tiny-wan-i2v"), at::kCPU, at::kFloat);
    QVERIFY2(one.ok() && two.ok(), one.status().ToString().c_str());
    QCOMPARE(one->value.get(), two->value.get());
    QCOMPARE(one->hash, two->hash);
    QCOMPARE(store.stats().components, 1);
    QCOMPARE(store.stats().weight_bytes, one->value->weight_bytes());
    QCOMPARE(store.stats().shared_bytes, one->value->weight_bytes());
    one->value.reset();
    QCOMPARE(store.stats().shared_bytes, 0);
    two->value.reset();
    QCOMPARE(store.stats().components, 0);  // The store keeps nothing.
    QCOMPARE(store.stats().weight_bytes, 0);
  }

  void Get_KeepsApartWhatDiffersInOneByte() {
    QTemporaryDir dir;
    const std::string copy = dir.path().toStdString() + "/text_encoder";
    fs::copy(Encoder("tiny-wan-t2v"), copy, fs::copy_options::recursive);
    ComponentStore store;
    const auto original = store.Get<Held>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat);
    const auto same = store.Get<Held>(copy, at::kCPU, at::kFloat);
    QVERIFY2(original.ok() && same.ok(), same.status().ToString().c_str());
    QCOMPARE(original->value.get(), same->value.get());
    {
      // Changes the lowest bit of the last weight. Writes another file, as somebody who replaces a
      // model does.
      const std::string path = copy + "/model.safetensors";
      fs::copy_file(path, copy + "/new");
      std::fstream file(copy + "/new", std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-4, std::ios::end);
      const char byte = static_cast<char>(file.get() ^ 1);
      file.seekp(-4, std::ios::end);
      file.put(byte);
      file.close();
      fs::rename(copy + "/new", path);
    }
    const auto changed = store.Get<Held>(copy, at::kCPU, at::kFloat);
    QVERIFY2(changed.ok(), changed.status().ToString().c_str());
    QVERIFY(changed->value != original->value);
    QVERIFY(changed->hash != original->hash);
    QCOMPARE(store.stats().components, 2);
  }

  void Get_KeepsApartClassesAndPrecisions() {
    Slow::result = absl::OkStatus();
    ComponentStore store;
    Slow::loads = 0;
    Slow::open = {};
    Slow::gate = Slow::open.get_future().share();
    Slow::open.set_value();
    const auto encoder = store.Get<Held>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat);
    const auto f32 = store.Get<Slow>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat);
    const auto bf16 = store.Get<Slow>(Encoder("tiny-wan-t2v"), at::kCPU, at::kBFloat16);
    QVERIFY(encoder.ok() && f32.ok() && bf16.ok());
    QVERIFY(f32->value != bf16->value);
    QCOMPARE(Slow::loads.load(), 2);
    QCOMPARE(store.stats().components, 3);
  }

  void Get_AtTheSameTimeLoadsOnce() {
    Slow::result = absl::OkStatus();
    Slow::loads = 0;
    Slow::open = {};
    Slow::gate = Slow::open.get_future().share();
    ComponentStore store;
    std::vector<absl::StatusOr<Component<Slow>>> got(4);
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < got.size(); ++i) {
        threads.emplace_back([&, i] {
          got[i] = store.Get<Slow>(Encoder(i % 2 == 0 ? "tiny-wan-t2v" : "tiny-wan-i2v"), at::kCPU,
                                   at::kFloat);
        });
      }
      QTRY_COMPARE(Slow::loads.load(), 1);
      Slow::open.set_value();
    }
    QCOMPARE(Slow::loads.load(), 1);
    for (const auto& one : got) QVERIFY(one.ok() && one->value == got[0]->value);
    QCOMPARE(store.stats().shared_bytes, 300);
  }

  void Get_AfterAFailureTriesAgain() {
    Slow::open = {};
    Slow::gate = Slow::open.get_future().share();
    Slow::open.set_value();
    Slow::result = absl::ResourceExhaustedError("no memory");
    ComponentStore store;
    QVERIFY(absl::IsResourceExhausted(
        store.Get<Slow>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat).status()));
    QCOMPARE(store.stats().components, 0);
    Slow::result = absl::OkStatus();
    QVERIFY(store.Get<Slow>(Encoder("tiny-wan-t2v"), at::kCPU, at::kFloat).ok());
  }

  void Get_NamesWhatIsMissing() {
    ComponentStore store;
    QCOMPARE(
        base::GetReason(store.Get<Held>("/nonexistent/vae", at::kCPU, at::kFloat).status()).reason,
        std::string("MODEL_NOT_FOUND"));
  }

  void HashOfFiles_KnowsContentAndOrder() {
    QTemporaryDir dir;
    const std::string path = dir.path().toStdString();
    const auto write = [&](const char* name, const char* text) {
      std::ofstream(path + "/" + name) << text;
      return path + "/" + name;
    };
    const std::string a = write("a", "one"), b = write("b", "two"), c = write("c", "one");
    QCOMPARE(HashOfFiles({a, b}).value(), HashOfFiles({c, b}).value());
    QVERIFY(HashOfFiles({a, b}).value() != HashOfFiles({b, a}).value());
    const std::string before = HashOfFiles({a}).value();
    write("a", "ONE");
    QVERIFY(HashOfFiles({a}).value() != before);
    QCOMPARE(base::GetReason(HashOfFiles({path + "/none"}).status()).reason,
             std::string("MODEL_NOT_FOUND"));
    QVERIFY(HashOfParts({"ab", "c"}) != HashOfParts({"a", "bc"}));
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::ComponentStoreTest)
#include "component_store_test.moc"
