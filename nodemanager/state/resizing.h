// A sum of message sizes that follows their changes.
#pragma once

#include <cstddef>

#include "google/protobuf/message_lite.h"

namespace onepiece::nodemanager {

/// While it lives the record may change; `sum` counts its size before and after. Borrows both.
class Resizing {
 public:
  Resizing(std::size_t& sum, const google::protobuf::MessageLite& record)
      : sum_(sum), record_(record) {
    sum_ -= record_.ByteSizeLong();
  }
  ~Resizing() { sum_ += record_.ByteSizeLong(); }
  Resizing(const Resizing&) = delete;
  Resizing& operator=(const Resizing&) = delete;

 private:
  std::size_t& sum_;
  const google::protobuf::MessageLite& record_;
};

}  // namespace onepiece::nodemanager
