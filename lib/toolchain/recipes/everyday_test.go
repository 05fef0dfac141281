package recipes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"pikuri/lib/cli/clitest"
)

// warmMaven fills the cache with Debian's own packages: every description, and
// the jars that a compilation needs.
const warmMaven = `mkdir -p ~/.m2/repository && cd /usr/share/maven-repo
	find . -name '*.pom' -exec cp -L --parents -t ~/.m2/repository {} +
	cp -rL --parents -t ~/.m2/repository com/thoughtworks/qdox commons-io org/apache/commons org/apache/maven \
		org/codehaus/plexus org/ow2/asm org/sonatype org/slf4j javax/inject
	cd - >/dev/null`

// TestEveryday: common commands work in the sandbox.
func TestEveryday(t *testing.T) {
	for _, test := range []struct{ name, host, inside, want string }{
		{
			"git commits as whoever the host says",
			`git config --global user.name 'Ada Lovelace'
			git config --global user.email ada@build.example
			git init -q -b main && git commit -q --allow-empty -m first`,
			`echo x >f && git add f && git commit -qm second && git log --format='%an <%ae> %s'`,
			"Ada Lovelace <ada@build.example> second\nAda Lovelace <ada@build.example> first\n",
		}, {
			"git clones over file://, branches, and fetches",
			`git config --global user.email ada@build.example && git config --global user.name Ada
			git init -q -b main && git commit -q --allow-empty -m first`,
			`git clone -q "file://$PWD" /tmp/clone
			git checkout -q -b topic && git commit -q --allow-empty -m second
			cd /tmp/clone && git fetch -q origin topic && git log --format=%s FETCH_HEAD`,
			"second\nfirst\n",
		}, {
			"cc and make",
			`printf '#include <stdio.h>\nint main(void) { return puts("made") < 0; }\n' >hello.c
			printf 'hello: hello.c\n\tcc -o $@ $<\n' >Makefile`,
			`make -s && ./hello`,
			"made\n",
		}, {
			"python knows the user",
			"",
			`env -u USER -u LOGNAME -u HOME python3 -c '
import getpass, os, pathlib, pwd
me = pwd.getpwuid(os.getuid())
assert getpass.getuser() == me.pw_name, getpass.getuser()
assert str(pathlib.Path.home()) == me.pw_dir
print(pathlib.Path(me.pw_dir, "project").samefile("."))'`,
			"True\n",
		}, {
			"python makes a venv",
			"",
			`python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix, sys.prefix != sys.base_prefix)'`,
			"{home}/project/v True\n",
		}, {
			"node knows the user, and npm installs a package",
			"",
			`node -e 'const os = require("os"); console.log(os.userInfo().homedir === os.homedir())'
			npm install --registry=http://127.0.0.1:4873/npm/ --no-audit --no-fund ms >/dev/null && node -p 'require("ms")("2 days")'`,
			"true\n172800000\n",
		}, {
			"java compiles, and finds the user's home",
			`printf 'class A { public static void main(String[] a) { System.out.println(System.getProperty("user.home")); } }\n' >A.java`,
			`javac A.java && java A && keytool -list -cacerts -storepass changeit 2>&1 | grep -c '^Your keystore contains 1[0-9][0-9] entries'`,
			"{home}\n1\n",
		}, {
			"awk, vi and a pager are links in /etc/alternatives",
			`printf 'a b\n' >f`,
			`awk '{ print $2 }' f && vi -es -c 's/a/c/' -c wq f && pager f && echo "$(readlink /usr/bin/awk)"`,
			"b\nc b\n/etc/alternatives/awk\n",
		}, {
			"ssh starts, and names are known",
			"",
			`ssh -V 2>&1 | cut -c1-7
			ssh -TG nowhere.example | grep -c '^user '
			[ "$(id -un)" = "$(stat -c %U .)" ] && [ "$(eval echo "~$(id -un)")" = "$HOME" ] && id -un`,
			"OpenSSH\n1\n{user}\n",
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
			"A.class\n",
		}, {
			"go builds with a warm cache, and no network",
			`printf 'module example\n\ngo 1.21\n\nrequire github.com/rivo/uniseg v0.4.7\n' >go.mod
			printf 'package main\n\nimport "github.com/rivo/uniseg"\n\nfunc main() { println(uniseg.GraphemeClusterCount("ab")) }\n' >main.go
			go env -w GOPROXY=http://127.0.0.1:4873/go GONOSUMDB='*' GOFLAGS=-modcacherw && go mod tidy 2>/dev/null && go build -o /dev/null`,
			`export GOPROXY=off; go build -o a && ./a 2>&1`,
			"2\n",
		}, {
			"cargo, offline",
			`printf '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml
			mkdir src && printf 'fn main() { println!("built") }\n' >src/main.rs`,
			`cargo run -q --offline`,
			"built\n",
		}, {
			"time zones",
			"",
			`date -d @0 +%Z && TZ=America/New_York date -d @0 +%H:%M`,
			"NZST\n19:00\n",
		}, {
			"names from /etc/hosts",
			"",
			`getent hosts build.example && python3 -c 'import socket; print(socket.gethostbyname("build.example"))'`,
			"192.0.2.7       build.example\n192.0.2.7\n",
		}, {
			"trusted certificates",
			"",
			`python3 -c 'import ssl; print(ssl.create_default_context().cert_store_stats()["x509_ca"] > 100)'
			node --use-openssl-ca -e 'require("tls").createSecureContext(); console.log(require("fs").readFileSync("/etc/ssl/certs/ca-certificates.crt").length > 1e5)'`,
			"True\ntrue\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.serving = true
			if strings.HasPrefix(test.name, "go ") {
				m.warmGo(t)
			}
			m.host(t, test.host)
			before := m.snapshot(t)
			assert.Equal(t, clitest.Outcome{Stdout: m.text(test.want)}, m.fenced(t, test.inside))
			assert.Equal(t, before, m.snapshot(t), "the home has changed")
		})
	}
}
