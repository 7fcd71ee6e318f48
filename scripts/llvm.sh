# To be sourced. Finds an LLVM tool, also if only its versioned name is installed.
find_tool() {
  local name
  for name in "$1" "$1"-{21,20,19,18,17,16,15,14}; do
    if command -v "$name"; then return; fi
  done
  return 1
}
