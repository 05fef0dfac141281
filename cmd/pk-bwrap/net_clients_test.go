package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/gate/gatetest"
)

// clientsWanted is a variable that is 1 where all clients have to be there.
const clientsWanted = "PK_TEST_CLIENTS"

// netClients are programs as they are: no option, variable or certificate is for the
// gate.
var netClients = []struct {
	name, program, script, want string
}{
	{"curl, HTTP/2", "curl", "curl -sS https://good.test/x", "good.test HTTP/2.0 /x 0"},
	{"curl, HTTP/1.1 over IPv4", "curl", "curl -4 -sS --http1.1 https://good.test/x", "good.test HTTP/1.1 /x 0"},
	{"curl over IPv6", "curl", "curl -6 -sS https://good.test/x", "good.test HTTP/2.0 /x 0"},
	{"curl, an upload in chunks", "curl", "head -c 300000 /dev/zero | curl -sS -T - http://good.test/up", "good.test HTTP/1.1 /up 300000"},
	{"curl, two requests on a connection", "curl", "curl -sS http://good.test/1 http://good.test/2", "good.test HTTP/1.1 /1 0\ngood.test HTTP/1.1 /2 0"},
	{"curl, a name that is refused", "curl", "curl -sS https://other.test/; echo $?", "6"},
	{"wget", "wget", "wget -q -O - https://good.test/x", "good.test HTTP/1.1 /x 0"},
	{"git over HTTPS", "git", "git clone -q https://good.test/files/repo.git /tmp/clone && cat /tmp/clone/file", "content"},
	{"python, urllib", "python3", `python3 -c 'import urllib.request as u; print(u.urlopen("https://good.test/x").read().decode(), end="")'`, "good.test HTTP/1.1 /x 0"},
	{"python, asyncio", "python3", `python3 -c '
import asyncio
async def main():
    r, w = await asyncio.open_connection("good.test", 443, ssl=True)
    w.write(b"GET /x HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
    print((await r.read()).decode().splitlines()[-1])
asyncio.run(main())'`, "good.test HTTP/1.1 /x 0"},
	{"python, half-closed", "python3", `python3 -c '
import socket
c = socket.create_connection(("good.test", 80))
c.sendall(b"GET /x HTTP/1.0\r\nHost: good.test\r\n\r\n")
c.shutdown(socket.SHUT_WR)
print(c.makefile().read().splitlines()[-1])'`, "good.test HTTP/1.0 /x 0"},
	{"python, an upgrade over TLS", "python3", `python3 -c '
import socket, ssl
c = ssl.create_default_context().wrap_socket(socket.create_connection(("good.test", 443)), server_hostname="good.test")
f = c.makefile("rwb")
f.write(b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe\n")
f.flush()
print(f.readline().decode().strip(), end=" ")
while (line := f.readline().strip()) != b"frame": pass
print(line.decode())'`, "HTTP/1.1 101 Switching Protocols frame"},
	{"node, fetch", "node", `NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt node -e 'fetch("https://good.test/x").then(r => r.text()).then(t => process.stdout.write(t))'`, "good.test HTTP/1.1 /x 0"},
	{"node, HTTP/2", "node", `NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt node -e '
const session = require("http2").connect("https://good.test")
session.request({":path": "/x"}).on("end", () => session.close()).pipe(process.stdout)'`, "good.test:443 HTTP/2.0 /x 0"},
	{"node, c-ares, another server", "node", `node -e '
const r = new (require("dns").Resolver)()
r.setServers(["192.0.2.53"])
r.resolve4("good.test", (e, a) => console.log(e || a.length))'`, "1"},
	{"node, c-ares", "node", `node -e 'require("dns").resolve4("good.test", (e, a) => console.log(e || a.length))'`, "1"},
	{"node, c-ares, a name that is refused", "node", `node -e 'require("dns").resolve4("other.test", (e, a) => console.log(e.code))'`, "ENOTFOUND"},
	{"java, HttpClient", "java", `cat >/tmp/C.java <<'EOF'
import java.net.URI;
import java.net.http.*;
class C {
  public static void main(String[] a) throws Exception {
    var request = HttpRequest.newBuilder(URI.create("http://good.test/x")).build();
    System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
  }
}
EOF
java -XX:TieredStopAtLevel=1 /tmp/C.java`, "good.test HTTP/1.1 /x 0"},
	{"getent, IPv4 alone", "getent", "getent ahostsv4 good.test | wc -l", "3"},
	{"getent, both families", "getent", "getent ahosts good.test | grep -c STREAM", "2"},
	{"busybox, static", "busybox", "busybox wget -q -O - http://good.test/x", "good.test HTTP/1.1 /x 0"},
	{"busybox, nslookup", "busybox", "busybox nslookup good.test >/dev/null; echo $?", "0"},
	{"dig, another server", "dig", "dig +short @192.0.2.53 good.test | wc -l; dig +short +tcp @192.0.2.53 good.test AAAA | wc -l; dig +short good.test HTTPS | wc -l", "1\n1\n0"},
}

func TestClientsOfTheNetwork(t *testing.T) {
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		repository := filepath.Join(w.Files, "repo.git")
		git := exec.Command("sh", "-ec", `
			git init -q "$1/work" && cd "$1/work" && echo content >file && git add file
			git -c user.name=n -c user.email=e commit -qm first
			git clone -q --bare . "$2" && git -C "$2" update-server-info`, "sh", t.TempDir(), repository)
		out, err := git.CombinedOutput()
		require.NoError(t, err, string(out))
		for i, c := range netClients {
			if !clitest.Turn(i) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if _, err := exec.LookPath(c.program); err != nil && os.Getenv(clientsWanted) == "1" {
					t.Fatal(err)
				} else if err != nil {
					t.Skipf("%s is not installed", c.program)
				}
				got := b.Run(t, "pk-bwrap", append(allow("good.test"), "--", "bash", "-c", c.script)...)
				assert.Equal(t, c.want, strings.TrimSpace(got.Stdout), got.Stderr)
			})
		}
	})
}
