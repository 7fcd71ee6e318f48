# Sourced by the scripts of npm, before they install or build: prints the comment at the top of the script for
# --help, and ends it.
for word in "$@"; do
  case "$word" in
    -h | --help)
      sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[1]}"
      exit 0
      ;;
  esac
done
