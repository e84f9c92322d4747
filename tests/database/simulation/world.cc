#include "tests/database/simulation/world.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSuspicion = 3s;

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
  ++process.incarnation;
  process.alive = true;
  process.paused = false;
  process.healthy_since = Now();
}

void World::Kill(const std::string& node) {
  Tell("kill " + node);
  Process& process = processes_.at(node);
  process.alive = false;
  process.waiting.clear();
  process.down_since = Now();
}

void World::Pause(const std::string& node) {
  Tell("pause " + node);
  processes_.at(node).paused = true;
  processes_.at(node).down_since = Now();
}

void World::Continue(const std::string& node) {
  Process& process = processes_.at(node);
  if (!process.alive || !process.paused) return;
  Tell("continue " + node);
  if (!Routed(node)) ++process.incarnation;
  process.paused = false;
  process.healthy_since = Now();
  for (auto& what : std::exchange(process.waiting, {})) what();
}

void World::Cut(const std::string& a, const std::string& b) {
  Tell("cut " + a + " " + b);
  cut_.insert(Link(a, b));
}

void World::Join(const std::string& a, const std::string& b) {
  cut_.erase(Link(a, b));
  for (const std::string& node : {a, b}) processes_.at(node).healthy_since = Now();
}

bool World::Routed(const std::string& node) const {
  const Process& process = processes_.at(node);
  const bool silent = !process.alive || process.paused;
  return !silent || Now() - process.down_since < kSuspicion;
}

bool World::IsOver(const std::string& node, std::uint64_t incarnation) const {
  const auto found = processes_.find(node);
  if (found == processes_.end()) return false;
  return found->second.incarnation > incarnation || !Routed(node);
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

void World::Send(const std::string& from, const std::string& to, std::function<void()> what) {
  // TCP sends again what was lost.
  if (!Chance(loss)) return Write(from, to, std::move(what));
  After(Between(200ms, 900ms),
        [this, from, to, what = std::move(what)]() mutable { Write(from, to, std::move(what)); });
}

void World::Write(const std::string& from, const std::string& to, std::function<void()> what) {
  if (cut_.contains(Link(from, to))) return;
  const std::uint64_t life = processes_.at(to).life;
  After(Between(50us, Chance(0.02) ? Duration(800ms) : Duration(2ms)),
        [this, from, to, life, what = std::move(what)]() mutable {
          if (!cut_.contains(Link(from, to))) RunAt(to, life, std::move(what));
        });
}

void World::Later(const std::string& node, Duration delay, std::function<void()> what) {
  const std::uint64_t life = processes_.at(node).life;
  After(delay, [this, node, life, what = std::move(what)]() mutable {
    RunAt(node, life, std::move(what));
  });
}

void World::Tell(const std::string& what) {
  static const bool wanted = std::getenv("ONEPIECE_SEED") != nullptr;
  if (!wanted) return;
  std::printf("%11.6f s  %s\n", std::chrono::duration<double>(Now() - start_).count(),
              what.c_str());
}

void World::Violation(const std::string& what) {
  const auto seconds = std::chrono::duration<double>(Now() - start_).count();
  violations_.push_back(std::to_string(seconds) + " s: " + what);
}

}  // namespace onepiece::simulation
