#include "tests/database/simulation/world.h"

#include <cstdio>
#include <cstdlib>

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

std::pair<std::string, std::string> Link(const std::string& a, const std::string& b) {
  return std::minmax(a, b);
}

}  // namespace

void World::After(Duration delay, std::function<void()> what) {
  events_.push({Now() + delay, ++last_event_, std::move(what)});
}

void World::RunUntil(Duration end) {
  while (!events_.empty() && events_.top().at <= start_ + end && violations_.empty()) {
    Event event = events_.top();
    events_.pop();
    if (event.at > Now()) clock_.Advance(event.at - Now());
    event.what();
  }
  if (Now() < start_ + end) clock_.Advance(start_ + end - Now());
}

base::Uid World::NewUid() {
  std::array<std::uint8_t, 16> bytes;
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_());
  return base::Uid(bytes);
}

void World::Start(const std::string& node) {
  Tell("start " + node);
  Process& process = processes_[node];
  ++process.life;
  process.alive = true;
  process.paused = false;
  process.healthy_since = Now();
}

void World::Kill(const std::string& node) {
  Tell("kill " + node);
  Process& process = processes_.at(node);
  process.alive = false;
  process.waiting.clear();
  EndFibers(node);
}

void World::Pause(const std::string& node) {
  Tell("pause " + node);
  processes_.at(node).paused = true;
}

void World::Continue(const std::string& node) {
  Process& process = processes_.at(node);
  if (!process.alive || !process.paused) return;
  Tell("continue " + node);
  process.paused = false;
  process.healthy_since = Now();
  for (auto& what : std::exchange(process.waiting, {})) what();
}

void World::Cut(const std::string& a, const std::string& b) {
  Tell("cut " + a + " " + b);
  cut_.insert(Link(a, b));
}

void World::Join(const std::string& a, const std::string& b) {
  Tell("join " + a + " " + b);
  cut_.erase(Link(a, b));
  for (const std::string& node : {a, b}) processes_.at(node).healthy_since = Now();
}

bool World::IsCut(const std::string& a, const std::string& b) const {
  return cut_.contains(Link(a, b));
}

std::string World::AddressOf(const std::string& node) const {
  return node + "#" + std::to_string(processes_.at(node).life);
}

World::Place World::PlaceOf(const std::string& address) {
  const std::size_t at = address.find('#');
  return {address.substr(0, at), std::strtoull(address.c_str() + at + 1, nullptr, 10)};
}

bool World::Listens(const Place& place) const {
  const auto found = processes_.find(place.node);
  return found != processes_.end() && found->second.alive && found->second.life == place.life;
}

void World::RunAt(const std::string& node, std::uint64_t life, std::function<void()> what) {
  Process& process = processes_.at(node);
  if (!process.alive || process.life != life) return;
  if (process.paused) {
    process.waiting.push_back(std::move(what));
    return;
  }
  what();
}

void World::Spawn(const std::string& node, std::function<void()> body) {
  const std::uint64_t number = ++last_thread_;
  threads_[number] = {node, std::make_unique<Fiber>(std::move(body))};
  Later(node, Duration::zero(), [this, number] { Run(number); });
}

void World::Run(std::uint64_t thread) {
  const auto found = threads_.find(thread);
  if (found == threads_.end()) return;
  running_ = thread;
  found->second.fiber->Resume();
  running_ = 0;
  if (found->second.fiber->done()) threads_.erase(found);
}

void World::EndFibers(const std::string& node) {
  for (auto at = threads_.begin(); at != threads_.end();) {
    if (!node.empty() && at->second.node != node) {
      ++at;
      continue;
    }
    at->second.fiber->Unwind();
    at = threads_.erase(at);
  }
}

void World::Sleep(Duration duration) {
  const std::string node = threads_.at(running_).node;
  Later(node, duration, [this, me = running_] { Run(me); });
  Fiber::Suspend();
}

void World::Send(const std::string& from, const std::string& to, std::function<void()> what) {
  // TCP sends again what was lost.
  if (!Chance(loss)) return Write(from, to, std::move(what));
  After(Between(200ms, 900ms),
        [this, from, to, what = std::move(what)]() mutable { Write(from, to, std::move(what)); });
}

void World::Write(const std::string& from, const std::string& to, std::function<void()> what) {
  if (IsCut(from, to)) return;
  const std::uint64_t life = processes_.at(to).life;
  After(Way(), [this, from, to, life, what = std::move(what)]() mutable {
    if (!IsCut(from, to)) RunAt(to, life, std::move(what));
  });
}

void World::Later(const std::string& node, Duration delay, std::function<void()> what) {
  const std::uint64_t life = processes_.at(node).life;
  After(delay, [this, node, life, what = std::move(what)]() mutable {
    RunAt(node, life, std::move(what));
  });
}

World::Put World::PutAt(const std::string& from, const Place& to,
                        const std::function<void()>& deposit) {
  if (!Listens(to) || IsCut(from, to.node)) {
    Sleep(IsCut(from, to.node) ? Duration(100ms) : Duration(1ms));
    return Put::kRefused;
  }
  Put outcome = Put::kUnknown;
  const auto open = std::make_shared<bool>(true);
  After(Way(), [this, from, to, deposit, open, &outcome] {
    if (!Listens(to) || IsCut(from, to.node)) return;
    deposit();
    if (*open && !Chance(doubt)) outcome = Put::kDone;
  });
  // The sender looks after as long as a write takes; later nobody tells it any more.
  const Duration limit = Way();
  struct Closed {
    const std::shared_ptr<bool> open;
    ~Closed() { *open = false; }
  } closed{open};
  Sleep(limit + kUsual);
  return outcome;
}

void World::Tell(const std::string& what) const {
  if (!Tells()) return;
  std::printf("%11.6f s  %s\n", std::chrono::duration<double>(Passed()).count(), what.c_str());
}

bool World::Tells() {
  static const bool wanted =
      std::getenv("ONEPIECE_SEED") != nullptr && std::getenv("ONEPIECE_SEEDS") == nullptr;
  return wanted;
}

void World::Violation(const std::string& what) {
  const auto seconds = std::chrono::duration<double>(Passed()).count();
  violations_.push_back(std::to_string(seconds) + " s: " + what);
}

}  // namespace onepiece::simulation
