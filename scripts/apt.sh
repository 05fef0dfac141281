# shellcheck shell=bash
# apt.sh, to be sourced: an apt that keeps all it has in one directory, and
# needs no root.

is_debian() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null &&
		[ -n "$(keyring)" ] && [ -n "$(base_of main)" ]
}

keyring() {
	local file
	for file in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
		[ ! -r "$file" ] || { echo "$file"; return; }
	done
}

# base_of main|security prints where this machine gets Debian from. It asks apt
# for the addresses that an update would fetch, which works before the first
# update too.
base_of() {
	local suites='bookworm|trixie|forky|sid|unstable|testing|stable|oldstable|oldoldstable'
	[ "$1" = main ] || suites="(${suites})-security"
	apt-get update --print-uris 2>/dev/null |
		sed -E -n "s,^'(.*/)dists/($suites)/(main/.*/Packages|InRelease).*,\1,p" | head -n 1
}

# open_apt ROOT SUITE makes an apt root and fetches the lists of packages, of this
# machine's architecture or of $architecture. What
# apt says goes to ROOT/log.
open_apt() {
	rm -rf -- "$1"
	mkdir -p -- "$1/lists/partial" "$1/cache/archives/partial" "$1/debs"
	: >"$1/status"
	sources "$2" >"$1/sources.list"
	settings "$1" >"$1/apt.conf"
	apt-get -qq -c "$1/apt.conf" update >"$1/log" 2>&1
}

sources() {
	local arch signed main security
	arch=${architecture:-$(dpkg --print-architecture)}
	signed=$(keyring)
	main=$(base_of main)
	security=$(base_of security)
	local options="[arch=$arch target=Packages signed-by=$signed]"
	echo "deb $options $main $1 main"
	echo "deb $options $main $1-updates main"
	[ -z "$security" ] || echo "deb $options $security $1-security main"
}

# settings ROOT: the machine's own settings stay (a proxy may be among them)
# except for where things are, what is preferred, and commands to be run, which
# would clean the machine's own cache.
settings() {
	cat <<-END
		Dir::State "$1";
		Dir::State::lists "$1/lists";
		Dir::State::status "$1/status";
		Dir::Cache "$1/cache";
		Dir::Cache::archives "$1/cache/archives";
		Dir::Etc::sourcelist "$1/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		APT::Default-Release "";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Acquire::Retries "3";
		Acquire::http::Timeout "30";
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
	END
}
