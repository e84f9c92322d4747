// What the sources of Client share.
#pragma once

#include <utility>

#include "cluster/client/client.h"
#include "cluster/client/proxy_set.h"

namespace onepiece::client {

/// Threading: thread-safe. The options do not change, and ProxySet has a lock of its own.
class Client::Impl {
 public:
  explicit Impl(ClientOptions given) : options(std::move(given)), proxies(options) {}
  const ClientOptions options;
  ProxySet proxies;
};

}  // namespace onepiece::client
