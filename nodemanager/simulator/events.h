// The events of a simulation and their queue. Virtual time counts whole nanoseconds since the
// simulation began.
#pragma once

#include <cmath>
#include <cstdint>
#include <queue>
#include <vector>

namespace onepiece::simulator {

using Time = std::int64_t;

inline Time FromSeconds(double seconds) { return std::llround(seconds * 1e9); }
inline double ToSeconds(Time time) { return static_cast<double>(time) * 1e-9; }

struct Event {
  enum class Kind : std::uint8_t {
    kAsk,      ///< `job` asks to be admitted.
    kDeliver,  ///< `job` arrives at `stage`. `device` or the proxy (kProxy) sent it.
    kFinish,   ///< `device` has computed `stage` of `job`.
    kLoaded,   ///< `device` has its new role's weights.
    kEnd,      ///< The result of `job` is in the database.
    kReport,   ///< Instances report.
    kDecide,   ///< The policy decides.
    kDie,      ///< `device` breaks.
    kLost,     ///< The NodeManager finds that `device` has died.
    kReturn,   ///< A new process runs on `device`.
  };
  Time at = 0;
  std::uint64_t order = 0;  ///< Events at the same time happen in the order of Add().
  Kind kind = Kind::kAsk;
  int job = 0, stage = 0, device = 0;
  /// kFinish, kLoaded: Device::life of then. The event is void when the device has another one.
  std::uint32_t life = 0;
};

/// The events that are to come, earliest first.
///
/// Threading: thread-compatible.
class EventQueue {
 public:
  void Add(Event event) {
    event.order = next_++;
    events_.push(event);
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] Time next_at() const { return events_.top().at; }
  Event Pop() {
    const Event event = events_.top();
    events_.pop();
    return event;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t next_ = 0;
};

}  // namespace onepiece::simulator
