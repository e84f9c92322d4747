// Keeps a sum of message sizes up to date while one of the messages changes.
#pragma once

#include <cstddef>

#include "google/protobuf/message_lite.h"

namespace onepiece::nodemanager {

/// A scope in which `record` may change. The constructor takes the record's size out of `sum`, and
/// the destructor adds the new size.
///
/// Ownership: borrows both.
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
