#include "gui/app/connection.h"

#include <QFile>
#include <QUuid>
#include <filesystem>
#include <utility>

#include "cluster/contexts/contexts.h"
#include "cluster/local/identities.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr char kTokenPrefix[] = "console-", kTokenSuffix[] = ".token";

Connection ConnectionOf(const contexts::ClusterContext& context) {
  return {.cluster = {.name = context.name, .nodemanagers = context.nodemanagers},
          .credentials = context.credentials,
          .from_context = true};
}

absl::StatusOr<contexts::Contexts> LoadContexts(const std::string& path) {
  return path.empty() ? contexts::Contexts() : contexts::Load(path);
}

std::filesystem::path FolderOf(const std::string& contexts_path) {
  return std::filesystem::path(contexts_path).parent_path();
}

}  // namespace

contexts::Credentials IdentityIn(const std::string& folder) {
  return {.folder = folder, .name = {}, .authorities = {}, .token_file = {}};
}

QString LoginName(const contexts::Credentials& credentials) {
  if (!credentials.folder.empty()) return Tr("certificate");
  return credentials.token_file.empty() ? Tr("not secure") : Tr("token");
}

absl::Status LogIn(const contexts::Credentials& credentials) {
  const bool named = !credentials.folder.empty() && !credentials.name.empty();
  if (named || !credentials.token_file.empty()) return contexts::Present(credentials);
  return local::ShowIdentity(credentials.folder);
}

absl::StatusOr<std::vector<Connection>> ContextConnections(const std::string& contexts_path) {
  const auto all = LoadContexts(contexts_path);
  if (!all.ok()) return all.status();
  std::vector<Connection> connections;
  for (const contexts::ClusterContext& context : all->all()) {
    connections.push_back(ConnectionOf(context));
  }
  return connections;
}

absl::StatusOr<Connection> FindContext(const std::string& contexts_path, const std::string& name) {
  const auto all = LoadContexts(contexts_path);
  if (!all.ok()) return all.status();
  const auto found = all->Find(name);
  if (!found.ok()) return found.status();
  return ConnectionOf(*found);
}

std::string NewTokenFile(const std::string& contexts_path) {
  // A name of its own, so that no token of `onepiece context add` is ever replaced.
  const std::string name = QUuid::createUuid().toString(QUuid::WithoutBraces).toStdString();
  return (FolderOf(contexts_path) / (kTokenPrefix + name + kTokenSuffix)).string();
}

void ForgetToken(const std::string& contexts_path, const Connection& connection) {
  const std::filesystem::path file = connection.credentials.token_file;
  const bool ours = file.parent_path() == FolderOf(contexts_path) &&
                    file.filename().string().starts_with(kTokenPrefix) &&
                    file.extension() == kTokenSuffix;
  if (ours) QFile::remove(QString::fromStdString(file.string()));
}

}  // namespace onepiece::gui
