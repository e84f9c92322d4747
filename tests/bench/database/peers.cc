// Redis and memcached, as their own clients use them.
#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <libmemcached/memcached.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/local/ports.h"
#include "cluster/local/process.h"
#include "tests/bench/database/store.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kPeerLimit = 20s;
constexpr int kMegabytes = 3072;  // Memcached's size classes leave much of its memory unused.

std::string KeyOf(std::uint32_t key) { return absl::StrCat("value-", key); }

bool Same(const char* got, std::size_t length, const Value& expected) {
  return length == expected.bytes.size() &&
         static_cast<std::byte>(got[0]) == expected.bytes.front() &&
         static_cast<std::byte>(got[length - 1]) == expected.bytes.back();
}

absl::Status Another() { return absl::DataLossError("another value came back"); }

/// A peer's server: a process and its port.
class Peer : public Store {
 public:
  ~Peer() override { local::KillAndWait(process_, kPeerLimit); }
  [[nodiscard]] pid_t pid() const override { return process_.pid; }

  absl::Status Spawn(std::vector<std::string> arguments, const std::string& folder) {
    std::filesystem::create_directories(folder);
    if (!std::filesystem::exists(arguments.front()))
      return absl::NotFoundError(absl::StrCat(arguments.front(), " is not installed"));
    ONEPIECE_ASSIGN_OR_RETURN(const std::vector<int> ports, local::FreePorts(1));
    port_ = ports.front();
    for (std::string& argument : arguments) {
      if (argument == "PORT") argument = absl::StrCat(port_);
    }
    ONEPIECE_ASSIGN_OR_RETURN(
        process_, local::Spawn({.arguments = arguments, .output_path = folder + "/log"}));
    return AwaitPort();
  }
  [[nodiscard]] int port() const { return port_; }

 private:
  [[nodiscard]] absl::Status AwaitPort() const {
    const base::MonotonicTime deadline = base::SystemClock().Now() + kPeerLimit;
    while (base::SystemClock().Now() < deadline) {
      const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{.sin_family = AF_INET,
                          .sin_port = htons(static_cast<std::uint16_t>(port_)),
                          .sin_addr = {htonl(INADDR_LOOPBACK)},
                          .sin_zero = {}};
      const bool open = connect(to, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      close(to);
      if (open) return absl::OkStatus();
      testing::Pause(10ms);
    }
    return absl::DeadlineExceededError("the server does not listen");
  }

  local::ProcessId process_;
  int port_ = 0;
};

/// A server for one kind of client. Its sessions can be told to forget everything.
template <typename Client>
class PeerOf : public Peer {
 public:
  absl::StatusOr<std::unique_ptr<Session>> Connect() override { return Dial(); }
  absl::Status Clear() override {
    ONEPIECE_ASSIGN_OR_RETURN(const auto session, Dial());
    return session->Flush();
  }

 private:
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<Client>> Dial() const = 0;
};

class RedisSession final : public Session {
 public:
  explicit RedisSession(redisContext* context) : context_(context) {}
  ~RedisSession() override { redisFree(context_); }

  absl::Status Put(std::uint32_t key, const Value& value) override {
    return Ask([](const redisReply& reply) { return reply.type == REDIS_REPLY_STATUS; },
               "SET %s %b", KeyOf(key).c_str(), value.bytes.data(), value.bytes.size());
  }
  absl::Status Get(std::uint32_t key, const Value& expected) override {
    return Ask(
        [&](const redisReply& reply) {
          return reply.type == REDIS_REPLY_STRING && Same(reply.str, reply.len, expected);
        },
        "GET %s", KeyOf(key).c_str());
  }
  absl::Status Flush() {
    return Ask([](const redisReply& reply) { return reply.type == REDIS_REPLY_STATUS; },
               "FLUSHALL SYNC");
  }

 private:
  template <typename Good, typename... Arguments>
  absl::Status Ask(const Good& good, const char* format, Arguments... arguments) {
    auto* reply = static_cast<redisReply*>(redisCommand(context_, format, arguments...));
    if (reply == nullptr) return absl::UnavailableError(absl::StrCat("redis: ", context_->errstr));
    const bool is_good = good(*reply);
    freeReplyObject(reply);
    return is_good ? absl::OkStatus() : Another();
  }

  redisContext* const context_;
};

class Redis final : public PeerOf<RedisSession> {
 private:
  [[nodiscard]] absl::StatusOr<std::unique_ptr<RedisSession>> Dial() const override {
    redisContext* context = redisConnect("127.0.0.1", port());
    if (context == nullptr || context->err != 0) {
      if (context != nullptr) redisFree(context);
      return absl::UnavailableError("redis does not answer");
    }
    return std::make_unique<RedisSession>(context);
  }
};

class MemcachedSession final : public Session {
 public:
  explicit MemcachedSession(memcached_st* client) : client_(client) {}
  ~MemcachedSession() override { memcached_free(client_); }

  absl::Status Put(std::uint32_t key, const Value& value) override {
    const std::string name = KeyOf(key);
    return Check(memcached_set(client_, name.data(), name.size(),
                               reinterpret_cast<const char*>(value.bytes.data()),
                               value.bytes.size(), 0, 0));
  }
  absl::Status Get(std::uint32_t key, const Value& expected) override {
    const std::string name = KeyOf(key);
    std::size_t length = 0;
    std::uint32_t flags = 0;
    memcached_return_t code = MEMCACHED_SUCCESS;
    char* got = memcached_get(client_, name.data(), name.size(), &length, &flags, &code);
    if (got == nullptr) return Check(code == MEMCACHED_SUCCESS ? MEMCACHED_NOTFOUND : code);
    const bool same = Same(got, length, expected);
    std::free(got);
    return same ? absl::OkStatus() : Another();
  }
  absl::Status Flush() { return Check(memcached_flush(client_, 0)); }

 private:
  [[nodiscard]] absl::Status Check(memcached_return_t code) const {
    if (code == MEMCACHED_SUCCESS) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("memcached: ", memcached_strerror(client_, code)));
  }
  memcached_st* const client_;
};

class Memcached final : public PeerOf<MemcachedSession> {
 private:
  [[nodiscard]] absl::StatusOr<std::unique_ptr<MemcachedSession>> Dial() const override {
    const std::string where = absl::StrCat("--SERVER=127.0.0.1:", port(), " --TCP-NODELAY");
    memcached_st* client = memcached(where.data(), where.size());
    if (client == nullptr) return absl::UnavailableError("memcached does not answer");
    return std::make_unique<MemcachedSession>(client);
  }
};

/// Returns a column of one line of redis-benchmark's table: "SET","13797.86",…
absl::StatusOr<double> RateIn(std::string_view csv, std::string_view test) {
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(csv.data(), csv.size()), '\n')) {
    const std::vector<std::string> columns = absl::StrSplit(line, ',');
    double rate = 0;
    if (columns.size() > 1 && columns[0] == absl::StrCat("\"", std::string(test), "\"") &&
        columns[1].size() > 2 &&
        absl::SimpleAtod(columns[1].substr(1, columns[1].size() - 2), &rate)) {
      return rate;
    }
  }
  return absl::UnavailableError("redis-benchmark said nothing of that test");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> StartRedis(const std::string& folder) {
  auto redis = std::make_unique<Redis>();
  ONEPIECE_RETURN_IF_ERROR(
      redis->Spawn({"/usr/bin/redis-server", "--port", "PORT", "--bind", "127.0.0.1", "--save", "",
                    "--appendonly", "no", "--dir", folder},
                   folder));
  return redis;
}

absl::StatusOr<std::unique_ptr<Store>> StartMemcached(const std::string& folder) {
  auto memcached = std::make_unique<Memcached>();
  ONEPIECE_RETURN_IF_ERROR(
      memcached->Spawn({"/usr/bin/memcached", "-p", "PORT", "-l", "127.0.0.1", "-m",
                        absl::StrCat(kMegabytes), "-I", "128m", "-u", "nobody"},
                       folder));
  return memcached;
}

absl::StatusOr<std::pair<double, double>> RedisPipelined(const Store& redis,
                                                         std::size_t value_bytes, int clients,
                                                         std::size_t values) {
  // Each client has at most 16 requests and 64 MiB under way.
  const std::size_t depth =
      std::clamp<std::size_t>((std::size_t{64} << 20) / value_bytes / clients, 1, 16);
  const std::string command =
      absl::StrCat("/usr/bin/redis-benchmark -p ", dynamic_cast<const Peer&>(redis).port(), " -c ",
                   clients, " -P ", depth, " -d ", value_bytes, " -n ", values, " -r ", values,
                   " -t set,get --csv 2>/dev/null");
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return absl::NotFoundError("redis-benchmark");
  std::string csv;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), output))
    csv.append(buffer.data(), count);
  pclose(output);
  ONEPIECE_ASSIGN_OR_RETURN(const double puts, RateIn(csv, "SET"));
  ONEPIECE_ASSIGN_OR_RETURN(const double gets, RateIn(csv, "GET"));
  return std::pair(puts, gets);
}

}  // namespace onepiece::bench
