// Worlds whose workers are threads of the test.
#pragma once

#include <unistd.h>

#include <QtTest>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "stages/collectives/fabric_world.h"
#include "stages/collectives/gloo_world.h"

namespace onepiece::collectives {

inline std::uint64_t SeedFromEnvironment() {
  const char* text = std::getenv("ONEPIECE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : base::RandomU64();
}

inline bool LongRun() {
  const char* text = std::getenv("ONEPIECE_LONG");
  return text != nullptr && std::string(text) == "1";
}

inline sdk::Group::Deadline After(base::Duration time) {
  return base::SystemClock().Now() + base::Scaled(time);
}
/// A deadline that no sound run comes near.
inline sdk::Group::Deadline Soon() { return After(std::chrono::seconds(30)); }

/// Complaints of threads, which may not call QVERIFY.
///
/// Threading: thread-safe.
class Complaints {
 public:
  void Add(const std::string& what) {
    const base::MutexLock lock(mutex_);
    if (text_.size() < 4000) text_ += what + "\n";
  }
  [[nodiscard]] std::string text() const {
    const base::MutexLock lock(mutex_);
    return text_;
  }

 private:
  mutable base::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

/// Calls body(i) for 0 ≤ i < count, each in a thread of its own.
inline void InThreads(std::uint32_t count, const std::function<void(std::uint32_t)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// All ends of a world.
class Worlds {
 public:
  virtual ~Worlds() = default;
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(ends_.size()); }
  [[nodiscard]] World& at(std::uint32_t index) { return *ends_[index]; }
  /// Ends one worker's part.
  void Leave(std::uint32_t index) { ends_[index].reset(); }
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 protected:
  using OpenEnd = std::function<absl::StatusOr<std::unique_ptr<World>>(std::uint32_t)>;
  void Open(std::uint32_t count, const OpenEnd& open) {
    ends_.resize(count);
    Complaints complaints;
    InThreads(count, [&](std::uint32_t i) {
      auto end = open(i);
      if (end.ok()) {
        ends_[i] = *std::move(end);
      } else {
        complaints.Add(end.status().ToString());
      }
    });
    trouble_ = complaints.text();
  }

  std::vector<std::unique_ptr<World>> ends_;

 private:
  std::string trouble_;
};

/// Threads on one fabric.
class FabricWorlds final : public Worlds {
 public:
  FabricWorlds(const std::string& uri, std::uint32_t count, std::uint64_t slot_bytes = 64 * 1024,
               std::uint64_t slots = 4)
      : meeting_(count) {
    auto fabric = fabric::Fabric::Open(uri);
    if (!fabric.ok()) qFatal("%s", fabric.status().ToString().c_str());
    fabric_ = *std::move(fabric);
    Open(count, [&](std::uint32_t i) -> absl::StatusOr<std::unique_ptr<World>> {
      const auto seat = meeting_.Join(i);
      return FabricWorld::Open(
          *fabric_, *seat, {.index = i, .workers = count, .slot_bytes = slot_bytes, .slots = slots},
          Soon());
    });
  }
  ~FabricWorlds() override { ends_.clear(); }
  FabricWorlds(const FabricWorlds&) = delete;
  FabricWorlds& operator=(const FabricWorlds&) = delete;

  static std::string ShmUri() { return "shm://collectives-" + std::to_string(getpid()); }

 private:
  std::unique_ptr<fabric::Fabric> fabric_;
  LocalMeeting meeting_;
};

#ifdef ONEPIECE_HAVE_GLOO
/// Threads that meet over loopback.
class GlooWorlds final : public Worlds {
 public:
  explicit GlooWorlds(std::uint32_t count) {
    Open(count, [&](std::uint32_t i) -> absl::StatusOr<std::unique_ptr<World>> {
      return GlooWorld::Open(
          {.index = i, .workers = count, .folder = folder_.path().toStdString()});
    });
  }
  ~GlooWorlds() override { ends_.clear(); }
  GlooWorlds(const GlooWorlds&) = delete;
  GlooWorlds& operator=(const GlooWorlds&) = delete;

 private:
  QTemporaryDir folder_;
};
#endif

/// The kinds of worlds that this build has.
inline QStringList WorldKinds() {
  QStringList kinds{"shm", "shm with tiny slots"};
// ThreadSanitizer does not instrument UCX.
#if defined(ONEPIECE_HAVE_UCX) && !defined(__SANITIZE_THREAD__)
  kinds << "ucx";
#endif
#ifdef ONEPIECE_HAVE_GLOO
  kinds << "gloo";
#endif
  return kinds;
}

inline std::unique_ptr<Worlds> OpenWorlds(const QString& kind, std::uint32_t count) {
#ifdef ONEPIECE_HAVE_GLOO
  if (kind == "gloo") return std::make_unique<GlooWorlds>(count);
#endif
  if (kind == "ucx") return std::make_unique<FabricWorlds>("ucx://lo", count, 4096, 2);
  if (kind == "shm with tiny slots") {
    return std::make_unique<FabricWorlds>(FabricWorlds::ShmUri(), count, 64, 2);
  }
  return std::make_unique<FabricWorlds>(FabricWorlds::ShmUri(), count);
}

inline sdk::GroupDescriptor GroupOfAll(std::uint32_t count, std::uint64_t epoch) {
  sdk::GroupDescriptor group{.job = "job", .epoch = epoch, .members = {}, .offsets = {}};
  for (std::uint32_t i = 0; i < count; ++i) group.members.push_back(i);
  return group;
}

}  // namespace onepiece::collectives
