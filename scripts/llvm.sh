# Other scripts source this file. `find_tool NAME` prints the path of an LLVM tool, even if the tool is
# installed only under a name with its version, such as clang-19.
find_tool() {
  local name
  for name in "$1" "$1"-{21,20,19,18,17,16,15,14}; do
    if command -v "$name"; then return; fi
  done
  return 1
}
