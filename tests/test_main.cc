#include "tests/test_main.h"

#include <QTemporaryDir>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace onepiece::testing {
namespace {

using TestClasses = std::map<std::string, RunTestClass, std::less<>>;

TestClasses& Known() {
  static TestClasses classes;  // Made at first use: classes of all files are added before main().
  return classes;
}

std::string Stem(std::string_view path) {
  if (const auto slash = path.rfind('/'); slash != path.npos) path.remove_prefix(slash + 1);
  return std::string(path.substr(0, path.rfind('.')));
}

/// Gives this process and its children a person's folders of their own: a test neither sees the
/// clusters, identities and contexts of whoever runs it, nor leaves any behind.
class OwnFolders {
 public:
  OwnFolders() {
    qputenv("XDG_STATE_HOME", folder_.filePath("state").toUtf8());
    qputenv("XDG_CONFIG_HOME", folder_.filePath("config").toUtf8());
    qunsetenv("ONEPIECE_CONTEXTS");
  }

 private:
  QTemporaryDir folder_;
};

}  // namespace

TestClass::TestClass(const char* file, RunTestClass run) {
  if (Known().emplace(Stem(file), run).second) return;
  std::fprintf(stderr, "two test files of one program are called %s\n", Stem(file).c_str());
  std::abort();
}

}  // namespace onepiece::testing

// PROGRAM: runs every class. PROGRAM CLASS [Qt Test's arguments]: runs one.
int main(int argc, char** argv) {
  using onepiece::testing::Known;
  const onepiece::testing::OwnFolders folders;
  if (argc > 1) {
    const auto found = Known().find(argv[1]);
    if (found != Known().end()) {
      argv[1] = argv[0];
      return found->second(argc - 1, argv + 1);
    }
    std::fprintf(stderr, "usage: %s [CLASS [arguments of Qt Test]]\nclasses:\n", argv[0]);
    for (const auto& [name, run] : Known()) std::fprintf(stderr, "  %s\n", name.c_str());
    return 2;
  }
  bool failed = false;
  for (const auto& [name, run] : Known()) failed |= run(argc, argv) != 0;
  return failed ? 1 : 0;
}
