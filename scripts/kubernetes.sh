#!/bin/sh
# Puts the Kubernetes client for Python, whose leader election the tests play against, where the tests look for it. Where it is
# already, this does nothing and needs no network. Called by prepare.sh, which has installed python3-pip by then.
set -eu

version=37.0.2
folder=$(dirname "$0")/../target/tools/kubernetes-$version
[ -e "$folder" ] && exit 0

echo "installing kubernetes $version for Python"
mkdir -p "$(dirname "$folder")"
fresh=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$fresh/lib" "kubernetes==$version" || {
    echo "$0: pip could not install kubernetes $version, see above" >&2
    exit 1
}
mv "$fresh/lib" "$folder"
