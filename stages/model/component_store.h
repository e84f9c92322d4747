// Keeps weights once: stages of one plug-in in one process that load the same component share it,
// whichever folders they load it from. Each plug-in links this library for itself, so two plug-ins
// share nothing.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "stages/tensor/safetensors.h"

namespace onepiece::model {

/// A loaded component, the hash of its files (ComponentHash), and the folder that it was loaded
/// from, which need not be the one that was asked for.
template <typename T>
struct Component {
  std::shared_ptr<const T> value;
  std::string hash, dir;

  /// Checks that the component's files have been neither truncated nor overwritten: weights on the
  /// CPU are views of them. Do this after computing, before the result counts.
  ///
  /// Errors: ABORTED MODEL_CHANGED.
  [[nodiscard]] absl::Status CheckUnchanged() const {
    return tensor::SafetensorsFile::CheckFolder(dir);
  }
};

/// Identifies components by class, content hash, device and precision.
///
/// Ownership: the store keeps no component alive. The last stage that gives one up frees it.
///
/// Threading: may be used from any thread.
class ComponentStore {
 public:
  struct Stats {
    std::int64_t components = 0;    ///< How many are alive.
    std::int64_t weight_bytes = 0;  ///< What they hold, each counted once.
    std::int64_t shared_bytes = 0;  ///< What the users would hold in addition without sharing.
  };

  /// Returns the store of this plug-in, which is never destroyed.
  static ComponentStore& OfProcess();

  /// Returns the component of that content. If nobody has loaded it or is loading it, calls
  /// T::Load(dir, device[, products]). T must be immutable after Load and have weight_bytes().
  ///
  /// Blocking: waits while another thread loads the component.
  ///
  /// Errors: those of T::Load and ComponentHash; ABORTED MODEL_CHANGED if the files were replaced
  /// meanwhile.
  template <typename T>
  absl::StatusOr<Component<T>> Get(const std::string& dir, at::Device device,
                                   at::ScalarType products = at::kFloat) {
    const auto load = [&] {
      if constexpr (requires { T::Load(dir, device, products); }) {
        return T::Load(dir, device, products);
      } else {
        return T::Load(dir, device);
      }
    };
    auto found = Find({typeid(T).name(), "", device.str(), c10::toString(products)}, dir,
                      [&]() -> absl::StatusOr<Loaded> {
                        auto loaded = load();
                        if (!loaded.ok()) return loaded.status();
                        const std::int64_t bytes = loaded->weight_bytes();
                        return Loaded{std::make_shared<const T>(*std::move(loaded)), bytes};
                      });
    if (!found.ok()) return found.status();
    return Component<T>{std::static_pointer_cast<const T>(found->value), found->hash, found->dir};
  }

  [[nodiscard]] Stats stats() const;

 private:
  // Class, content hash, device, precision.
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  struct Loaded {
    std::shared_ptr<const void> value;
    std::int64_t bytes = 0;
  };
  struct Entry {
    base::Mutex loading;  // Held by the thread that loads, which takes the store's mutex_ inside.
    // Both are guarded by the store's mutex_, which an attribute cannot name here.
    std::weak_ptr<const void> value;
    std::int64_t bytes = 0;
    std::string dir;  // Where `value` was loaded from.
  };

  // The store adds the hash to `key`.
  absl::StatusOr<Component<void>> Find(Key key, const std::string& dir,
                                       const std::function<absl::StatusOr<Loaded>()>& load);
  std::shared_ptr<Entry> EntryOf(const Key& key);

  mutable base::Mutex mutex_;
  // EntryOf drops dead ones.
  std::map<Key, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::model
