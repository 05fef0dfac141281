package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/gate/gatetest"
)

// Ports of servers that others have written.
const (
	sshPort   = 2222
	redisPort = 6379
	psqlPort  = 5432
)

// installed returns the path of a program. Debian keeps servers off the PATH.
func installed(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	places, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	for _, path := range append(places, "/usr/sbin/"+name) {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// runIn runs a program of a Place to its end.
func runIn(p *gatetest.Place, name string, args ...string) error {
	path, err := installed(name)
	if err != nil {
		return err
	}
	if out, err := p.Command(path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// startIn starts a server of a Place, and waits until it listens.
func startIn(p *gatetest.Place, port int, name string, args ...string) error {
	path, err := installed(name)
	if err != nil {
		return err
	}
	cmd := p.Command(path, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return p.Await(port)
}

// sshd has a key that anybody may read: whoever runs pk copies it.
func sshd(p *gatetest.Place) error {
	config := fmt.Sprintf("Port %d\nHostKey %[2]s/host\nAuthorizedKeysFile %[2]s/key.pub\nPidFile none\nStrictModes no\n"+
		"UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel ERROR\n", sshPort, p.Dir)
	for _, key := range []string{"host", "key"} {
		if err := runIn(p, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", p.Dir+"/"+key); err != nil {
			return err
		}
	}
	err := runIn(p, "sh", "-ec", `umask 022; printf '%s' "$1" >config; cp key public-key; chmod 644 public-key; chmod 755 .
		git init -q work && cd work && echo content >file && git add file
		git -c user.name=n -c user.email=e commit -qm first && git clone -q --bare . ../repo.git`, "sh", config)
	if err != nil {
		return err
	}
	return startIn(p, sshPort, "sshd", "-D", "-e", "-f", p.Dir+"/config")
}

func postgres(p *gatetest.Place) error {
	if err := runIn(p, "initdb", "--no-sync", "-A", "trust", "-U", "place", "-D", p.Dir+"/data"); err != nil {
		return err
	}
	if err := runIn(p, "sh", "-c", "echo host all all all trust >>data/pg_hba.conf"); err != nil {
		return err
	}
	return startIn(p, psqlPort, "postgres", "-D", p.Dir+"/data", "-k", p.Dir, "-h", "*", "-F")
}

func redis(p *gatetest.Place) error {
	return startIn(p, redisPort, "redis-server", "--port", fmt.Sprint(redisPort), "--protected-mode", "no", "--save", "", "--dir", p.Dir, "--loglevel", "warning")
}

// page asks for what a browser has of the network, and says it. Its last resource comes
// when all has been said.
const page = `<!DOCTYPE html><body><script>
const said = [
	"online " + navigator.onLine,
	fetch("/x").then(r => r.text()),
	fetch("http://other.test/").catch(e => "other.test " + e.message),
	new Promise(say => { new WebSocket("ws://good.test/ws").onopen = () => say("socket open") }),
]
Promise.all(said).then(all => {
	document.body.append(all.map(text => text.trim() + ";").join(""))
	fetch("/release")
})
</script><img src="/held">`

// repository is one of apt's with a single package, made by hand.
const repository = `
	mkdir -p tree/DEBIAN tree/usr/share/pk-try && echo content >tree/usr/share/pk-try/file
	printf 'Package: pk-try\nVersion: 1\nArchitecture: all\nMaintainer: n <e@example.org>\nDescription: x\n' >tree/DEBIAN/control
	mkdir -p "$1" && dpkg-deb --root-owner-group -Zgzip -b tree "$1/pk-try.deb" >/dev/null && cd "$1"
	{ dpkg-deb -f pk-try.deb; printf 'Filename: ./pk-try.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s pk-try.deb)" "$(sha256sum pk-try.deb | cut -d' ' -f1)"; } >Packages
	printf 'Suite: try\nSHA256:\n %s %s Packages\n' "$(sha256sum Packages | cut -d' ' -f1)" "$(stat -c %s Packages)" >Release`

// registry is one of npm's with a single package.
const registry = `
	mkdir -p package "$1/-" && echo '{"name":"pk-try","version":"1.0.0"}' >package/package.json && echo 'module.exports="content"' >package/index.js
	tar -czf "$1/-/pk-try-1.0.0.tgz" package
	printf '{"name":"pk-try","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"pk-try","version":"1.0.0","dist":{"tarball":"https://good.test/files/npm/-/pk-try-1.0.0.tgz","integrity":"sha512-%s"}}}}' \
		"$(openssl dgst -sha512 -binary "$1/-/pk-try-1.0.0.tgz" | base64 -w0)" >"$1/pk-try"`

// Clients that need servers of their own, or are large. They are not in Debian's base:
// with PK_TEST_CLIENTS=1 all have to be there. As Debian has them: openssh-server, git,
// postgresql, redis-server, redis-tools, chromium, npm, and for TestClientsOfTheNetwork
// busybox-static, bind9-dnsutils, wget and default-jdk-headless.
func TestServersOfOthers(t *testing.T) {
	if os.Getenv(clientsWanted) != "1" {
		t.Skip(clientsWanted + " is not 1: it takes programs that many machines do not have")
	}
	rows := []struct{ name, program, script, want string }{
		{"ssh", "ssh", "$ssh $user@good.test 'echo on the other side; cat' <<<input", "on the other side\ninput"},
		{"ssh, over IPv4, its status", "ssh", "$ssh -4 $user@good.test exit 7; echo $?", "7"},
		{"git over ssh", "git", `GIT_SSH_COMMAND=$ssh git clone -q "ssh://$user@good.test$dir/repo.git" /tmp/clone && cat /tmp/clone/file
			cd /tmp/clone && echo more >>file && git -c user.name=n -c user.email=e commit -qam more && GIT_SSH_COMMAND=$ssh git push -q origin HEAD:pushed-$$ && echo pushed`, "content\npushed"},
		{"psql", "psql", "psql -X -At -h good.test -U place -d postgres -c 'select 6 * 7'", "42"},
		{"redis-cli", "redis-cli", "redis-cli -h good.test set key value; redis-cli -h good.test get key", "OK\nvalue"},
		{"apt", "apt-get", `mkdir -p /tmp/apt/{lists,cache/archives}/partial && cd /tmp/apt && : >status
			echo "deb [trusted=yes] https://good.test/files/apt ./" >sources
			apt="apt-get -qq -o Dir::State=/tmp/apt -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache -o Dir::Etc::sourcelist=/tmp/apt/sources -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::parts=/dev/null -o APT::Sandbox::User= -o Acquire::https::Proxy=DIRECT"
			$apt update && $apt download pk-try && dpkg-deb --fsys-tarfile pk-try_1_all.deb | tar -xO ./usr/share/pk-try/file`, "content"},
		{"npm", "npm", `mkdir /tmp/p && cd /tmp/p && npm init -y >/dev/null &&
			NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt npm install --silent --no-audit --no-fund --registry https://good.test/files/npm/ pk-try >/dev/null && node -p 'require("pk-try")'`, "content"},
		{"chromium, a page", "chromium", "$chromium --dump-dom http://good.test/files/page.html 2>/dev/null | grep -o 'online true.*;' | tr ';' '\n'",
			"online true\ngood.test HTTP/1.1 /x 0\nother.test Failed to fetch\nsocket open"},
		{"chromium over HTTP/2", "chromium", "$chromium --ignore-certificate-errors --dump-dom https://good.test/x 2>/dev/null | grep -o 'good.test HTTP/2.0 /x 0'", "good.test HTTP/2.0 /x 0"},
		{"chromium, a name that is refused", "chromium", "$chromium --dump-dom https://other.test/ 2>/dev/null | grep -o ERR_NAME_NOT_RESOLVED | head -n 1", "ERR_NAME_NOT_RESOLVED"},
	}
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		key, err := os.ReadFile(w.Place.Dir + "/public-key")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.Project+"/key", key, 0o600))
		require.NoError(t, os.WriteFile(w.Files+"/page.html", []byte(page), 0o644))
		for script, to := range map[string]string{repository: "/apt", registry: "/npm"} {
			cmd := exec.Command("sh", "-ec", script, "sh", w.Files+to)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
		}
		const names = `ssh="ssh -p 2222 -i $PWD/key -o IdentitiesOnly=yes -o UserKnownHostsFile=/tmp/known -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR"
chromium="chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking"
`
		options := append(allow("good.test", fmt.Sprintf("good.test:%d,%d,%d", sshPort, redisPort, psqlPort)),
			"--setenv", "user="+w.Place.User, "--setenv", "dir="+w.Place.Dir)
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				_, err := exec.LookPath(row.program)
				require.NoError(t, err)
				got := b.Run(t, "pk-bwrap", append(options, "--", "bash", "-c", names+row.script)...)
				assert.Equal(t, row.want, strings.TrimSpace(got.Stdout), got.Stderr)
			})
		}
	}, sshd, postgres, redis)
}
