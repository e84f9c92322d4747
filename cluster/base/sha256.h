// SHA-256 of a stream of bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace onepiece::client {

/// Thread-confined.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::string_view bytes);
  /// Lower-case hex of everything so far; call once, at the end.
  [[nodiscard]] std::string FinishHex();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace onepiece::client
