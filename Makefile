# make build, try, test, bench, install, install-timer, install-crontab,
# uninstall, clean.
# GNU make 4.3 or newer; recipes are POSIX sh.

PREFIX = /usr/local
DESTDIR =
BIN = bin

GO = go
INSTALL = install

prefix = $(DESTDIR)$(PREFIX)
bindir = $(prefix)/bin
mandir = $(prefix)/share/man
bashdir = $(prefix)/share/bash-completion/completions
zshdir = $(prefix)/share/zsh/site-functions
fishdir = $(prefix)/share/fish/vendor_completions.d
unitdir = $(prefix)/share/systemd/user

COMMANDS = $(notdir $(wildcard cmd/*))
PAGES = $(notdir $(wildcard man/*.[1-8]))

# Without git or its history, the version says so. VERSION=1.2.3 overrides it.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# Go refuses to build in a tree whose git it cannot read (somebody else's clone,
# an export); the commit is then left out.
VCS := $(shell git status >/dev/null 2>&1 && echo true || echo false)

.DELETE_ON_ERROR:
.PHONY: build try test bench install install-timer install-crontab uninstall clean

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

# What was built is installed, so that `sudo make install` needs no Go.
install:
	@for c in $(COMMANDS); do test -x "$(BIN)/$$c" || \
		{ echo "make: $(BIN)/$$c is missing: run make build first" >&2; exit 1; }; done
	$(INSTALL) -d '$(bindir)' '$(bashdir)' '$(zshdir)' '$(fishdir)'
	set -e; for c in $(COMMANDS); do \
		$(INSTALL) -m 755 "$(BIN)/$$c" '$(bindir)'; \
		$(INSTALL) -m 644 "scripts/completions/$$c.bash" "$(bashdir)/$$c"; \
		$(INSTALL) -m 644 "scripts/completions/$$c.zsh" "$(zshdir)/_$$c"; \
		$(INSTALL) -m 644 "scripts/completions/$$c.fish" "$(fishdir)/$$c.fish"; \
	done
	set -e; for p in $(PAGES); do \
		$(INSTALL) -d "$(mandir)/man$${p##*.}"; \
		$(INSTALL) -m 644 "man/$$p" "$(mandir)/man$${p##*.}"; \
	done

# pk-sweep once a day, for whoever then says
#	systemctl --user enable --now pk-sweep.timer
install-timer:
	$(INSTALL) -d '$(unitdir)'
	set -e; for u in pk-sweep.service pk-sweep.timer; do \
		sed 's|@bindir@|$(PREFIX)/bin|' "scripts/systemd/$$u" >"$(unitdir)/$$u"; \
		chmod 644 "$(unitdir)/$$u"; \
	done

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

# Directories stay, since others install into them too; only below a DESTDIR do
# the empty ones go.
uninstall:
	set -e; for c in $(COMMANDS); do \
		rm -f "$(bindir)/$$c" "$(bashdir)/$$c" "$(zshdir)/_$$c" "$(fishdir)/$$c.fish"; \
	done
	set -e; for p in $(PAGES); do rm -f "$(mandir)/man$${p##*.}/$$p"; done
	rm -f '$(unitdir)/pk-sweep.service' '$(unitdir)/pk-sweep.timer'
	@test -z '$(DESTDIR)' || for d in '$(bindir)' '$(unitdir)' '$(mandir)'/man* '$(bashdir)' '$(zshdir)' '$(fishdir)'; do \
		test ! -d "$$d" || rmdir -p "$$d" 2>/dev/null || :; \
	done

clean:
	rm -rf '$(BIN)' .testenv
