// Observers for the ring's tests: a fault policy that notes operations, and a consumer's thread.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/fabric/fault.h"
#include "cluster/ring/consumer.h"

namespace onepiece::ring {

/// Notes the names of all operations and lets them pass.
class NamesOnly final : public fabric::FaultPolicy {
 public:
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    names_ += std::string(names_.empty() ? "" : " ") + point.name;
    return {};
  }
  /// The names since the last call.
  std::string Take() { return std::exchange(names_, {}); }

 private:
  std::string names_;
};

/// A thread that takes messages from a consumer, and sleeps in its Wait when there are none.
///
/// Ownership: borrows `consumer`, which must outlive it, and interrupts it at the end.
class Reader {
 public:
  explicit Reader(Consumer& consumer) : consumer_(consumer), thread_([this] { Run(); }) {}
  ~Reader() {
    consumer_.Interrupt();
    thread_.join();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  [[nodiscard]] std::uint64_t got() const { return got_.load(); }

 private:
  void Run() {
    while (auto delivery = consumer_.Wait(base::MonotonicTime::max())) {
      std::vector<std::byte> bytes(delivery->size_bytes());
      if (delivery->CopyTo(bytes).ok()) got_.fetch_add(1);
    }
  }
  Consumer& consumer_;
  std::atomic<std::uint64_t> got_{0};
  std::thread thread_;
};

}  // namespace onepiece::ring
