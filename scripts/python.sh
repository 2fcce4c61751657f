#!/bin/sh
# Puts packages for Python, real counterparts of this product that the tests play against, where the tests look for them. What is
# there already needs no network. Called by prepare.sh, which has installed python3-pip by then.
#
#   python.sh FOLDER PACKAGE==VERSION…     into target/tools/FOLDER
set -eu

folder=$(dirname "$0")/../target/tools/$1
shift
[ -e "$folder" ] && exit 0

echo "installing $* for Python"
mkdir -p "$(dirname "$folder")"
fresh=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$fresh/lib" "$@" || {
    echo "$0: pip could not install $*, see above" >&2
    exit 1
}
mv "$fresh/lib" "$folder"
