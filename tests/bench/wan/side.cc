#include "tests/bench/wan/side.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <system_error>

#include "cluster/base/status.h"

namespace onepiece::bench {
namespace {

constexpr int kPatienceMs = 120'000;

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(what + ": " + std::generic_category().message(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Side>> Side::Start(const std::vector<std::string>& command) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0) return Failed("pipe");
  if (pipe2(up, O_CLOEXEC) != 0) {
    close(down[0]);
    close(down[1]);
    return Failed("pipe");
  }
  std::unique_ptr<Side> side(new Side);
  side->to_ = down[1];
  side->from_ = up[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawnp(&side->pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(down[0]);
  close(up[1]);
  if (error != 0) {
    side->pid_ = -1;
    errno = error;
    return Failed(command.front());
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::string ready, side->ReadLine());
  if (ready != "ready") return absl::UnavailableError(command.front() + " answered " + ready);
  return side;
}

Side::~Side() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> Side::ReadLine() {
  for (;;) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd entry{from_, POLLIN, 0};
    const int ready = poll(&entry, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return absl::DeadlineExceededError("a side does not answer");
    char bytes[256];
    const ssize_t count = read(from_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("a side has ended; its errors are on stderr");
    buffer_.append(bytes, static_cast<std::size_t>(count));
  }
}

absl::StatusOr<std::string> Side::Ask(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Failed("a side does not listen");
  }
  return ReadLine();
}

absl::StatusOr<double> Side::AskNumber(const std::string& line) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string answer, Ask(line));
  double number = 0;
  const auto [end, error] = std::from_chars(answer.data(), answer.data() + answer.size(), number);
  if (error != std::errc()) return absl::UnavailableError("a side answered " + answer);
  return number;
}

absl::StatusOr<double> Side::Run(int count) { return AskNumber("run " + std::to_string(count)); }

absl::StatusOr<double> Side::PeakMemory() { return AskNumber("memory"); }

absl::StatusOr<std::vector<float>> Side::Output(const std::string& scratch_file) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string answer, Ask("output " + scratch_file));
  if (answer != "ok") return absl::UnavailableError("a side answered " + answer);
  std::ifstream file(scratch_file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace onepiece::bench
