# Sourced by the scripts that build a server for the tests from packages of Debian, once, into a cache folder.
# Such a script sets these variables, defines the functions `download` and `build`, which leave the programs
# in `$work/bin`, and calls `build_once` with its arguments:
#   name       the name of the script in messages, and of its cache folder
#   version    the name of the folder of the programs; change it after a change of the build
#   program    a program of the build
#   kilobytes  the free space that the build needs
# apt gets its own folders, so that the lists and packages of the machine stay unchanged.

cache=/var/cache/weir-$name
bin=$cache/$version

give_up() {
  echo "$name: $*" >&2
  exit 1
}

built() { [ -x "$bin/$program" ]; }

get() {
  apt-get -q -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/apt/lists" \
    -o Dir::State::status=/dev/null -o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User= -o Acquire::http::Timeout=20 -o Acquire::Retries=1 "$@"
}

# Reads the lists of a release of Debian. The other arguments are `deb` and `deb-src`.
use_release() {
  local release=$1 kind
  shift
  mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,root,bin}
  for kind in "$@"; do echo "$kind [signed-by=$key] $mirror $release main"; done >"$work/apt/sources.list"
  get -o APT::Update::Error-Mode=any update
}

# `--folder` prints the folder of the programs, and builds nothing. `--unless-failed` builds nothing if a
# build has failed within a day. Prints one line with the reason where the programs cannot be built.
build_once() {
  if [ "${1:-}" = --folder ]; then
    echo "$bin"
    exit 0
  fi
  if built; then exit 0; fi
  for command in apt-get dpkg-deb flock; do
    command -v "$command" >/dev/null || give_up "there is no $command: the server is built from packages of Debian."
  done
  [ -w "${cache%/*}" ] || give_up "the user $(id -un) may not write to ${cache%/*}."
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$key" ] || give_up "there is no $key, with which apt checks the packages of Debian."
  mirror=$(apt-get indextargets --format '$(SITE)' 'Label: Debian' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }') || mirror=
  [ -n "$mirror" ] || give_up "the sources of apt name no mirror of Debian, or apt-get update has not run."

  failure=$cache/failed-$version
  if [ "${1:-}" = --unless-failed ] && [ -n "$(find "$failure" -mmin -1440 2>/dev/null)" ]; then
    give_up "a build has failed within a day ($(cat "$failure")); npm run $name tries again."
  fi

  mkdir -p "$cache"
  # A second call waits for the first one.
  exec 9>"$cache/lock"
  flock -w 1200 9 || give_up "another build has not ended for 20 minutes."
  if built; then exit 0; fi
  [ "$(df --output=avail -k "$cache" | tail -1)" -ge "$kilobytes" ] || give_up "$cache has less than $((kilobytes / 1000000)) GB of free space."

  work=$cache/build
  log=$cache/build.log
  rm -rf "$work"
  mkdir -p "$work"
  trap 'rm -rf "$work"' EXIT
  echo "$name: building $version, which takes some minutes"
  # Not a condition, in which bash ignores -e.
  set +e
  (
    set -e
    download
    build
  ) >"$log" 2>&1 9>&-
  local status=$?
  set -e
  if [ "$status" != 0 ]; then
    tail -1 "$log" >"$failure"
    give_up "the build failed, see $log: $(tail -1 "$log")"
  fi
  rm -f "$failure"
  rm -rf "$bin"
  mv "$work/bin" "$bin"
  rm "$log"
}
