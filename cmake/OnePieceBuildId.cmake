# Run as a script at every build: writes OUTPUT from INPUT, and only when the build's id has changed. So a commit compiles
# one small file again, and links the programs.
#   cmake -D SOURCE=.. -D VERSION=.. -D INPUT=.. -D OUTPUT=.. -P OnePieceBuildId.cmake
set(ONEPIECE_BUILD_ID "")
# A release inside of somebody else's clone is not of that clone's commit.
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty
    OUTPUT_VARIABLE ONEPIECE_BUILD_ID OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT ONEPIECE_BUILD_ID)
  set(ONEPIECE_BUILD_ID ${VERSION})
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
