// Who makes a call, as the server has found out (door.h), and what that allows.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/identity/role.h"
#include "cluster/identity/scope.h"
#include "cluster/identity/subject.h"

namespace onepiece::rpc {

/// How a caller showed who it is.
enum class Shown {
  kInsecure,  ///< It need not: the server is insecure, and everybody may do everything.
  kNothing,
  kCertificate,
  kToken,
};

/// Who makes a call. A value type.
class Caller {
 public:
  /// The caller of an insecure server.
  Caller() = default;
  static Caller Nobody() {
    Caller caller;
    caller.shown_ = Shown::kNothing;
    return caller;
  }
  /// `expires` is the moment at which the certificate or the token ends. `app_id`: a token for the
  /// jobs of one application; empty: of any.
  Caller(Shown shown, identity::Subject subject, base::WallTime expires, std::string app_id = {})
      : shown_(shown),
        subject_(std::move(subject)),
        expires_(expires),
        app_id_(std::move(app_id)) {}

  [[nodiscard]] Shown shown() const { return shown_; }
  [[nodiscard]] bool insecure() const { return shown_ == Shown::kInsecure; }
  /// None for insecure callers and for those that showed nothing.
  [[nodiscard]] const std::optional<identity::Subject>& subject() const { return subject_; }
  [[nodiscard]] base::WallTime expires() const { return expires_; }
  [[nodiscard]] const std::string& app_id() const { return app_id_; }

  /// Null unless it is a node, or a principal.
  [[nodiscard]] const identity::NodeSubject* node() const;
  [[nodiscard]] const identity::PrincipalSubject* principal() const;
  /// What it may do. Insecure callers may do everything, nodes have no scopes.
  [[nodiscard]] bool Has(identity::Scope scope) const;
  /// Whose jobs its own are: a principal's tenant, else identity::kDefaultTenant.
  [[nodiscard]] const std::string& tenant() const;
  /// Whether it may see the jobs of `tenant`: its own ones, and with scope read all. An empty
  /// `tenant` means identity::kDefaultTenant.
  [[nodiscard]] bool MaySee(const std::string& tenant) const;
  /// Whether it may cancel and delete the jobs of `tenant`: its own ones, and with scope operate
  /// all.
  [[nodiscard]] bool MayChange(const std::string& tenant) const;
  /// For audits and shares: "principal/alice", "node/proxy-1", "insecure", "nobody".
  [[nodiscard]] std::string name() const;

  /// Checks that a node speaks for itself: that the certificate is that of `node_id` and has
  /// `role`. Insecure callers may speak for every node.
  ///
  /// Errors: PERMISSION_DENIED (FOREIGN_NODE, WRONG_ROLE).
  [[nodiscard]] absl::Status CheckNode(const std::string& node_id,
                                       std::optional<identity::Role> role = {}) const;

 private:
  Shown shown_ = Shown::kInsecure;
  std::optional<identity::Subject> subject_;
  base::WallTime expires_ = base::WallTime::max();
  std::string app_id_;
};

// All functions are thread-safe.

}  // namespace onepiece::rpc
