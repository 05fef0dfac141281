# make build, try, test, bench, bench-check, install, install-timer, install-crontab,
# uninstall, race, fuzz, vuln, cover, dist, dist-check, deb, deb-check, strangers,
# engines, reproducible, clean.
# GNU make 4.3 or newer; recipes are POSIX sh.

PREFIX = /usr/local
DESTDIR =
BIN = bin

GO = go

bindir = $(PREFIX)/bin
mandir = $(PREFIX)/share/man
bashdir = $(PREFIX)/share/bash-completion/completions
zshdir = $(PREFIX)/share/zsh/site-functions
fishdir = $(PREFIX)/share/fish/vendor_completions.d
unitdir = $(PREFIX)/share/systemd/user
policydir = $(PREFIX)/share/pikuri/policies
export GO PREFIX DESTDIR BIN bindir mandir bashdir zshdir fishdir unitdir policydir

# A release's source says its version in .version, a clone has git's. Without both
# it is "devel". VERSION=1.2.3 overrides it. The length of the commit is given: else
# it depends on what else the clone holds.
ifndef VERSION
VERSION := $(patsubst v%,%,$(shell cat .version 2>/dev/null || git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo devel))
endif

# Go refuses to build in a tree whose git it cannot read (somebody else's clone,
# an export); the commit is then left out.
VCS := $(shell git status >/dev/null 2>&1 && echo true || echo false)

.DELETE_ON_ERROR:
.PHONY: build try test bench bench-check install install-timer install-crontab uninstall race fuzz vuln cover dist dist-check deb deb-check strangers engines reproducible clean

# Go knows best what is up to date. The tag keeps a documentation generator out
# of the binaries, and its start-up time with it.
build:
	@mkdir -p '$(BIN)'
	CGO_ENABLED=0 $(GO) build -buildvcs=$(VCS) -trimpath -tags urfave_cli_no_docs \
		-ldflags '-s -w -X main.version=$(VERSION)' -o '$(BIN)/' ./cmd/...

try:
	@scripts/try

test:
	@scripts/test

bench: build
	@scripts/bench

# Fails when a bar that is promised is missed by more than noise.
bench-check: build
	@scripts/bench --check

# What was built is installed, so that `sudo make install` needs no Go. What is
# missing is built first, if the tree is the caller's own.
install:
	@scripts/install all

# The units alone: pk-sweep once a day, for whoever then says
#	systemctl --user enable --now pk-sweep.timer
install-timer:
	@scripts/install units

# The same for cron, in the crontab of the user who calls this. Whatever else is
# in it stays; a crontab that cannot be read is not replaced.
install-crontab:
	@table=$$(LC_ALL=C crontab -l 2>&1) || case $$table in \
		*'no crontab for'*) table= ;; \
		*) echo "make: cannot read the crontab: $$table" >&2; exit 1 ;; \
	esac; \
	case $$table in *pk-sweep*) echo 'make: the crontab has a line with pk-sweep already'; exit 0 ;; esac; \
	{ test -z "$$table" || printf '%s\n' "$$table"; \
		sed 's|@bindir@|$(PREFIX)/bin|' scripts/pk-sweep.crontab; } | crontab -

uninstall:
	@scripts/install nothing

# A release in bin/dist: source, programs, packages, sums. VERSION=1.2.3 names it.
dist:
	@scripts/dist

deb:
	@scripts/dist deb

# What a release holds, installed, used and removed in fresh Debians.
dist-check:
	@scripts/dist-check

deb-check:
	@scripts/dist-check --kinds deb

# From a clone to make try and make test in fresh Debians, as an ordinary user.
strangers:
	@scripts/strangers

# An array of fenced jobs under Slurm. It needs Debian's Slurm, and no root.
engines: build
	@scripts/engines

# Beside make test: races, 30 s for each parser, known holes, and what no test
# reaches.
race:
	@scripts/race

fuzz:
	@scripts/fuzz

vuln:
	@scripts/vuln

cover:
	@scripts/cover

# Two builds of the last commit, in other places at other times, are the same.
reproducible:
	@scripts/reproducible

clean:
	rm -rf '$(BIN)' .testenv
