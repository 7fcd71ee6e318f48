#!/usr/bin/env bash
# Gives all files below a folder the same modes and times, so that archives of them have the same bytes.
# Usage: same-attributes.sh FOLDER
set -euo pipefail
find "$1" -type d -exec chmod 755 {} +
find "$1" -type f -exec chmod u=rwX,go=rX {} +
find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
