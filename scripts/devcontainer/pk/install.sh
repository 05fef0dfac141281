#!/bin/sh
# Usage: install.sh [DIR]
#
# Puts bubblewrap and the commands on a Debian or Ubuntu, as root. DIR is a tree of pk
# with programs in bin; without, it is the release's archive beside this script, for
# a devcontainer that has this directory as .devcontainer/pk and "./pk" as a feature.
set -eu

arch=$(dpkg --print-architecture)
here=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
	set -- "$(mktemp -d)"
	trap 'rm -rf "$1"' EXIT
	cat "$here"/pk-*-linux-"$arch".tar.gz | tar -xz -C "$1" --strip-components=1 ||
		{ echo "install.sh: there is no pk-VERSION-linux-$arch.tar.gz of a release in $here" >&2; exit 1; }
fi

apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends bubblewrap make util-linux bash
make -s -C "$1" install

# On Ubuntu, AppArmor lets programs make user namespaces if they have a profile.
if command -v apparmor_parser >/dev/null && [ -e /proc/sys/kernel/apparmor_restrict_unprivileged_userns ]; then
	printf 'abi <abi/4.0>,\nprofile pk /{usr/bin/bwrap,usr/local/bin/pk-*} flags=(unconfined) { userns, }\n' >/etc/apparmor.d/pk
	apparmor_parser -r /etc/apparmor.d/pk
fi
