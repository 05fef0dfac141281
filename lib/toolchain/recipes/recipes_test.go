package recipes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/toolchain/toolchaintest"
)

// A recipe builds something with a real tool, twice in one session. The second
// command finds the caches that the first has written.
type recipe struct {
	name  string
	host  string // the user's work before, outside: the project, and caches that exist
	first string // inside, with registries on the loopback
	again string // inside, with no network at all
	want  string // the output of both
}

// npmProject needs two packages, one of them for its program only.
const npmProject = `printf '{"name":"a","version":"1.0.0","dependencies":{"ms":"2.1.3"}}\n' >package.json`

// npmTool installs a package manager of npm's in the user's own prefix.
func npmTool(tarball string) string {
	return "\nnpm install -g --silent --prefix ~/.npm-global --offline --no-audit --no-fund /srv/npm/" + tarball + "\n"
}

const fromLoopback = " --registry=" + npmRegistry

// Uv has no recipe: neither Debian 12 nor 13 packages it, and npm's package of
// that name is another program. Tests compare its cache and its setting with the table
// like all others, but do not run uv.
var recipes = []recipe{
	{
		"go, a module",
		`printf 'module example\n\ngo 1.21\n\nrequire github.com/rivo/uniseg v0.4.7\n' >go.mod
		printf '%s\n' 'github.com/rivo/uniseg v0.4.7 h1:WUdvkW8uEhrYfLC4ZzdpI2ztxP1I582+49Oc5Mq64VQ=' \
			'github.com/rivo/uniseg v0.4.7/go.mod h1:FN3SvrM+Zdj16jyLfmOkMNblXMcoc8DfTHruCPUcx88=' >go.sum
		printf 'package main\n\nimport "github.com/rivo/uniseg"\n\nfunc main() { println(uniseg.GraphemeClusterCount("ab")) }\n' >main.go
		mkdir -p ~/go/pkg/mod ~/.cache/go-build`,
		`GOPROXY=` + goProxy + ` go build -o a 2>log || cat log; ./a 2>&1`,
		`rm a && GOPROXY=off go build -x -o a 2>steps && ! grep /compile steps && ./a 2>&1`,
		"2\n",
	}, {
		"npm ci and npx",
		npmProject + ` && npm install --silent --package-lock-only` + fromLoopback + `
		rm -rf ~/.npm && mkdir -p ~/.npm/_cacache ~/.npm/_npx`,
		`npm ci --silent` + fromLoopback + ` && node -p 'require("ms")("1m")' && npx --silent --yes` + fromLoopback + ` semver 1.2.3`,
		`npm ci --silent --offline && node -p 'require("ms")("1m")' && npx --silent --yes --offline` + fromLoopback + ` semver 1.2.3`,
		"60000\n1.2.3\n",
	}, {
		"pnpm",
		npmProject + npmTool("pnpm-10.4.0.tgz") + `mkdir -p ~/.local/share/pnpm/store ~/.cache/pnpm`,
		`pnpm install --silent` + fromLoopback + ` && node -p 'require("ms")("1m")' && ls -A | grep store || echo no store here`,
		`rm -r node_modules && pnpm install --silent --offline --frozen-lockfile && node -p 'require("ms")("1m")' && ls -A | grep store || echo no store here`,
		"60000\nno store here\n",
	}, {
		"yarn 1",
		npmProject + npmTool("yarn-1.22.22.tgz") + `mkdir -p ~/.cache/yarn`,
		`yarn install --silent` + fromLoopback + ` 2>log || cat log; node -p 'require("ms")("1m")'`,
		`rm -r node_modules && yarn install --silent --offline 2>log || cat log; node -p 'require("ms")("1m")'`,
		"60000\n",
	}, {
		"yarn 4",
		npmProject + npmTool("yarnpkg-cli-dist-4.6.0.tgz") + `mkdir -p ~/.yarn/berry/cache
		printf 'nodeLinker: node-modules\nenableTelemetry: false\nunsafeHttpWhitelist: ["127.0.0.1"]\nnpmRegistryServer: "` + npmRegistry + `"\n' >.yarnrc.yml
		touch yarn.lock`,
		`yarn install >log || cat log; node -p 'require("ms")("1m")'`,
		`rm -r node_modules && YARN_ENABLE_NETWORK=0 yarn install >log || cat log; node -p 'require("ms")("1m")'`,
		"60000\n",
	}, {
		"cargo, vendored",
		`mkdir -p src vendor/dep/src .cargo ~/.cargo/registry ~/.cargo/bin
		printf '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\ndep = "1"\n' >Cargo.toml
		printf 'fn main() { println!("{}", dep::answer()) }\n' >src/main.rs
		printf '[package]\nname = "dep"\nversion = "1.0.0"\nedition = "2021"\n' >vendor/dep/Cargo.toml
		printf 'pub fn answer() -> u8 { 42 }\n' >vendor/dep/src/lib.rs
		printf '{"files":{}}' >vendor/dep/.cargo-checksum.json
		printf '[source.crates-io]\nreplace-with = "vendored"\n\n[source.vendored]\ndirectory = "vendor"\n' >.cargo/config.toml`,
		`cargo run -q --offline`,
		`rm -r target && cargo run -q --offline`,
		"42\n",
	}, {
		"cargo, a registry on the disk",
		`mkdir -p src registry/index/3/d .cargo dep-1.0.0/src ~/.cargo/registry
		printf '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\ndep = "1"\n' >Cargo.toml
		printf 'fn main() { println!("{}", dep::answer()) }\n' >src/main.rs
		printf '[package]\nname = "dep"\nversion = "1.0.0"\nedition = "2021"\n' >dep-1.0.0/Cargo.toml
		printf 'pub fn answer() -> u8 { 42 }\n' >dep-1.0.0/src/lib.rs
		tar -czf registry/dep-1.0.0.crate dep-1.0.0 && rm -r dep-1.0.0
		printf '{"name":"dep","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}\n' \
			"$(sha256sum <registry/dep-1.0.0.crate | cut -d' ' -f1)" >registry/index/3/d/dep
		printf '[source.crates-io]\nreplace-with = "disk"\n\n[source.disk]\nlocal-registry = "registry"\n' >.cargo/config.toml`,
		`cargo run -q --offline`,
		`rm -r target && test -e ~/.cargo/registry/src/*/dep-1.0.0/src/lib.rs && cargo run -q --offline`,
		"42\n",
	}, {
		"maven, offline",
		warmMaven + `
		mkdir -p src/main/java && printf 'class A {}\n' >src/main/java/A.java
		cat >pom.xml <<-END
			<project><modelVersion>4.0.0</modelVersion>
			<groupId>example</groupId><artifactId>a</artifactId><version>1</version>
			<properties><maven.compiler.release>17</maven.compiler.release>
			<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties></project>
		END`,
		`mvn -o -q -B compile >log 2>&1 || cat log; ls target/classes`,
		`rm -r target && mvn -o -q -B compile >log 2>&1 || cat log; ls target/classes`,
		"A.class\n",
	}, {
		"gradle, offline",
		`mkdir -p src/main/java ~/.gradle/caches && printf 'class A {}\n' >src/main/java/A.java
		printf "apply plugin: 'java'\n" >build.gradle`,
		`gradle --offline --build-cache --quiet classes >log 2>&1 || cat log; ls build/classes/java/main`,
		`rm -r build && gradle --offline --build-cache --console=plain classes >log 2>&1 && grep -q 'compileJava FROM-CACHE' log || cat log
		ls build/classes/java/main`,
		"A.class\n",
	}, {
		"pip, from a wheelhouse into a venv",
		`mkdir -p wheels ~/.cache/pip && python3 -c '
import zipfile
with zipfile.ZipFile("wheels/hello-1.0-py3-none-any.whl", "w") as w:
    w.writestr("hello.py", "print(\"hello\")\n")
    w.writestr("hello-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    w.writestr("hello-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    w.writestr("hello-1.0.dist-info/RECORD", "")'`,
		`python3 -m venv v && v/bin/pip -q install --no-index --find-links wheels hello && v/bin/python -m hello`,
		`v/bin/pip -q install --no-index --find-links wheels --force-reinstall hello && v/bin/python -m hello`,
		"hello\n",
	}, {
		"bundler",
		`mkdir -p lib vendor/cache ~/.local/share/gem/ruby ~/.bundle/cache && printf 'puts "hello"\n' >lib/hello.rb
		printf 'Gem::Specification.new { |s| s.name = "hello"; s.version = "1.0"; s.summary = "x"; s.authors = ["x"]; s.files = ["lib/hello.rb"] }\n' >hello.gemspec
		gem build -q hello.gemspec >/dev/null 2>&1 && mv hello-1.0.gem vendor/cache/ && rm hello.gemspec
		printf 'source "https://nowhere.example"\ngem "hello"\n' >Gemfile`,
		`export BUNDLE_SILENCE_ROOT_WARNING=1
		bundle config set --local path vendor/bundle && bundle install --quiet --local && bundle exec ruby -e 'require "hello"'
		gem install --silent --user-install --local vendor/cache/hello-1.0.gem`,
		`export BUNDLE_SILENCE_ROOT_WARNING=1
		rm -r vendor/bundle && bundle install --quiet --local && bundle exec ruby -e 'require "hello"'
		gem list --installed --exact hello >/dev/null`,
		"hello\n",
	}, {
		"composer",
		`mkdir -p dep served ~/.cache/composer && printf '<?php function answer() { return 42; }\n' >dep/dep.php && tar -cf served/dep.tar -C dep dep.php
		printf '{"packages":{"example/dep":{"1.0.0":{"name":"example/dep","version":"1.0.0","autoload":{"files":["dep.php"]},
			"dist":{"type":"tar","url":"` + servedFiles + `/dep.tar"}}}}}' >served/packages.json
		printf '{"config":{"secure-http":false},"repositories":[{"type":"composer","url":"` + servedFiles + `"},{"packagist.org":false}],
			"require":{"example/dep":"1.0.0"}}' >composer.json`,
		`composer install --quiet --no-interaction && php -r 'require "vendor/autoload.php"; echo answer(), "\n";'`,
		`rm -r vendor && COMPOSER_DISABLE_NETWORK=1 composer install --quiet --no-interaction && php -r 'require "vendor/autoload.php"; echo answer(), "\n";'`,
		"42\n",
	}, {
		"cc, through ccache",
		`printf 'int main(void) { return 0; }\n' >a.c && mkdir -p ~/.cache/ccache`,
		`ccache cc -c a.c && test -s a.o && echo built`,
		`ccache cc -c a.c && ccache --print-stats | grep -q '^direct_cache_hit.*[1-9]' && echo built`,
		"built\n",
	},
}

// TestRecipes runs both commands of a recipe in one machine, in which the
// session's keeper runs.
func TestRecipes(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.serving = true
			if r.name == "go, a module" {
				m.warmGo(t)
			}
			m.host(t, r.host)
			toolchaintest.PlantSecrets(t, m.home, table(t), secret+"\n")
			before := m.snapshot(t)
			const search = "\n! grep -rlsF " + secret + " ~ . /etc /opt /usr/etc /usr/local/etc"
			const twice = `pk() { pk-bwrap --bwrap "$1" --session recipe "${@:3}" -- bash -euc "$2"; }
				pk "$1" "$2"
				echo again
				pk "$1" "$3" --net none`
			out := clitest.Finish(t, m.command("bash", "-euc", twice, "-", m.innerBwrap(), r.first+search, r.again+search))
			assert.Equal(t, clitest.Outcome{Stdout: r.want + "again\n" + r.want}, out)
			require.Equal(t, before, m.snapshot(t), "the home has changed")
		})
	}
}

// TestProfileOfLinks: a profile as Nix has it, a chain of links from the home
// into a store. It is in PATH by the name of its first link.
func TestProfileOfLinks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	store := filepath.Join(filepath.Dir(m.home), "nix")
	for _, dir := range []string{"store/abc-hello/bin", "store/xyz-profile"} {
		require.NoError(t, os.MkdirAll(filepath.Join(store, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(store, "store/abc-hello/bin/hello"), []byte("#!/bin/sh\necho hello\n"), 0o755))
	require.NoError(t, os.Symlink("/nix/store/abc-hello/bin", filepath.Join(store, "store/xyz-profile/bin")))
	m.mount(store, "/nix")
	m.host(t, `mkdir -p ~/.local/state/nix/profiles && cd ~/.local/state/nix/profiles &&
		ln -s /nix/store/xyz-profile profile-1-link && ln -s profile-1-link profile && ln -s .local/state/nix/profiles/profile ~/.nix-profile`)
	out := m.fenced(t, `~/.nix-profile/bin/hello && hello && readlink ~/.nix-profile && ! touch /nix/store/x 2>/dev/null`)
	assert.Equal(t, clitest.Outcome{Stdout: "hello\nhello\n.local/state/nix/profiles/profile\n"}, out)
}
