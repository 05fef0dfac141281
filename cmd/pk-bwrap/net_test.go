package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/gate/gatetest"
	sessiondir "pikuri/lib/session"
)

// Words of the client inside, and its roots, travel in these variables.
const (
	clientWords = "PK_TEST_CLIENT"
	clientRoots = "PK_TEST_ROOTS"
)

// TestClient is the client inside.
func TestClient(t *testing.T) {
	words := os.Getenv(clientWords)
	if words == "" {
		t.Skip("it is started by the tests of the network, in the sandbox")
	}
	gatetest.Client(strings.Split(words, "\n"), os.Getenv(clientRoots), os.Stdout)
	unix.Exit(0) // before the test framework says its part
}

// netBox has the client in its project.
func netBox(t *testing.T, w *gatetest.World) *clitest.Box {
	b := clitest.NewBoxInEveryRow(t)
	for from, to := range map[string]string{"/proc/self/exe": "client", w.Roots: "roots.pem"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.Project+"/"+to, text, 0o755))
	}
	return b
}

// act runs the client with options of pk-bwrap, and returns its lines, and pk-bwrap's
// diagnostics.
func act(t *testing.T, b *clitest.Box, options []string, words ...string) (lines []string, said string) {
	t.Helper()
	args := append(options, "--setenv", clientWords+"="+strings.Join(words, "\n"), "--setenv", clientRoots+"="+b.Project+"/roots.pem",
		"--", "./client", "-test.run=^TestClient$")
	got := b.Run(t, "pk-bwrap", args...)
	assert.Equal(t, 0, got.Status, got.Stderr)
	return strings.Split(strings.TrimSpace(got.Stdout), "\n"), got.Stderr
}

func allow(rules ...string) []string {
	options := []string{"--net", "allow"}
	for _, r := range rules {
		options = append(options, "--allow-host", r)
	}
	return options
}

func TestNetworkByName(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		rules := allow("good.test", "*.wild.test", "good.test:22", "private.test:7000,7001 private", "four.test:80", "six.test:443",
			"loop.test", "loop6.test", "mapped.test", "nat64.test", "sixtofour.test", "meta.test", "zero.test", "own.test private", "dead.test:9 private", "absent.test", "mixed.test:80", "hidden.test")
		rows := []struct{ name, do, want, said string }{
			{"a page over TLS", "get https://good.test/page", "200 good.test HTTP/2.0 /page 0", ""},
			{"a page", "get http://good.test/page", "200 good.test HTTP/1.1 /page 0", ""},
			{"64 MiB", "get https://good.test/large", "200 67108864 bytes", ""},
			{"a streamed answer", "get http://good.test/slow", "200 tick", ""},
			{"a name below a wildcard", "get https://www.wild.test/", "200 www.wild.test HTTP/2.0 / 0", ""},
			{"two labels below a wildcard", "get https://a.b.wild.test/", "200 a.b.wild.test HTTP/2.0 / 0", ""},
			{"the apex of a wildcard", "lookup wild.test", "error: no such host", "wild.test was refused: no rule allows it (--allow-host wild.test would)"},
			{"a host with IPv6 alone", "get https://six.test/", "200 six.test HTTP/2.0 / 0", ""},
			{"another port", "tcp good.test:22 ping", `hello from 22\nping`, ""},
			{"a private address that is allowed", "tcp private.test:7000 ping", `hello from 7000\nping`, ""},
			{"an upgrade", `tcp good.test:80 GET /ws HTTP/1.1\r\nHost: good.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nping`, `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nping`, ""},
			{"a server that resets", "tcp good.test:22 reset", "error: reset", ""},
			{"a slow reader", "stalled private.test:7001 https://good.test/", "200 good.test HTTP/2.0 / 0, and 67108864", ""},
			{"many connections", "short good.test:22 " + shortOnes(t), shortOnes(t) + " are right", ""},
			{"a link without loss", "link good.test:22", "reno true", ""},
			{"a server that closes", `tcp good.test:80 GET /close HTTP/1.1\r\nHost: good.test\r\n\r\n`, "Connection: close", ""},
			{"addresses of a name", "lookup good.test", "1 and 1", ""},

			{"a name that no rule allows", "get https://other.test/", "error: no such host", "other.test was refused: no rule allows it (--allow-host other.test would)"},
			{"a port that no rule allows for this name", "tcp four.test:443", "error: reset", "four.test:443 was refused: no rule allows it"},
			{"an address", "tcp " + gatetest.Public + ":443 x", "error: reset", gatetest.Public + ":443 over tcp was refused"},
			{"an address at another port", "tcp " + gatetest.Public + ":25 x", "error: refused", gatetest.Public + ":25 over tcp was refused"},
			{"an IPv6 address", "tcp [" + gatetest.Public6 + "]:443 x", "error: reset", "over tcp was refused"},
			{"UDP", "udp good.test:443", "error: refused", "good.test:443 was refused: it is UDP"},
			{"UDP to an address", "udp 192.0.2.1:123", "error: refused", "192.0.2.1:123 over udp was refused"},
			{"UDP to the port of queries that is none", "udp 192.0.2.1:53 no query of names", "answered", "192.0.2.1:53 over udp was refused: port 53 takes queries"},
			{"TCP to the port of queries that brings none", `tcp 192.0.2.1:53 SSH-2.0-x\r\n`, "error: reset", "192.0.2.1:53 over tcp was refused: port 53 takes queries"},
			{"TLS for another name", "tls good.test:443 other.test", "error: unrecognized name", "good.test:443 was refused: the TLS server name is other.test"},
			{"no TLS at port 443", `tcp good.test:443 GET / HTTP/1.1\r\n\r\n`, "error: reset", "good.test:443 was refused"},
			{"a request for another host", `tcp good.test:80 GET / HTTP/1.1\r\nHost: other.test\r\n\r\n`, "HTTP/1.1 403", "good.test:80 was refused"},
			{"a second request for another host", `tcp good.test:80 GET /1 HTTP/1.1\r\nHost: good.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.test\r\n\r\n`, "HTTP/1.1 403", "good.test:80 was refused"},
			{"another port of the own loopback", "tcp 127.0.0.1:443 x", "error: refused", ""},

			{"a name of the host's loopback", "tcp loop.test:80 x", "error: reset", "loop.test:80 was refused: it resolves to 127.0.0.1"},
			{"the same in IPv6", "tcp loop6.test:80 x", "error: reset", "loop6.test:80 was refused: it resolves to ::1"},
			{"the same, mapped", "tcp mapped.test:80 x", "error: reset", "mapped.test:80 was refused: it resolves to 127.0.0.1"},
			{"the same through NAT64", "tcp nat64.test:80 x", "error: reset", "nat64.test:80 was refused"},
			{"the same through 6to4", "tcp sixtofour.test:80 x", "error: reset", "sixtofour.test:80 was refused"},
			{"a metadata service", "tcp meta.test:80 x", "error: reset", "meta.test:80 was refused: it resolves to 169.254.169.254"},
			{"the unspecified address", "tcp zero.test:80 x", "error: reset", "zero.test:80 was refused"},
			{"an address of this machine", "tcp own.test:80 x", "error: reset", "own.test:80 was refused: it resolves to " + gatetest.Own + ", an address of this machine"},
			{"a public address beside a forbidden one", "get http://mixed.test/", "200 mixed.test HTTP/1.1 / 0", ""},
			{"a server that does not run", "tcp dead.test:9 x", "error: reset", "dead.test:9 could not be reached: connect: connection refused"},
			{"a name that does not exist", "lookup absent.test", "error: no such host", "absent.test could not be reached: "},
		}
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				got, said := act(t, b, rules, row.do)
				assert.Contains(t, got[0], row.want)
				assert.Contains(t, said, row.said)
				if row.said == "" {
					assert.NotContains(t, said, "refused")
				}
				for _, s := range w.Seen() {
					assert.NotContains(t, s, "other.test")
					assert.NotContains(t, s, "/2")
				}
			})
		}
		t.Run("a client that resets", func(t *testing.T) {
			w.Seen()
			got, _ := act(t, b, rules, "reset good.test:22")
			assert.Equal(t, "reset", got[0])
			var seen []string
			assert.EventuallyWithT(t, func(c *assert.CollectT) {
				seen = append(seen, w.Seen()...)
				assert.Contains(c, seen, "reset 22")
			}, 10*time.Second, 10*time.Millisecond)
		})
		t.Run("a private address without the word", func(t *testing.T) {
			got, said := act(t, b, allow("private.test:7000"), "tcp private.test:7000 x")
			assert.Equal(t, "error: reset", got[0])
			assert.Contains(t, said, "private.test:7000 was refused: it resolves to a private address")
			assert.Empty(t, w.Seen())
		})
		t.Run("nothing of the gate is inside", func(t *testing.T) {
			const look = `ls /proc/self/fd; grep Cap /proc/self/status; set -- /proc/[0-9]*; echo $#; grep -c . /proc/net/unix`
			got := b.Run(t, "pk-bwrap", append(rules, "--", "sh", "-c", look)...)
			plain := b.Run(t, "pk-bwrap", "--net", "none", "--", "sh", "-c", look)
			assert.Equal(t, plain.Stdout, got.Stdout)
		})
	})
}

// shortOnes is the number of short connections: three hundred, or that times PK_ROUNDS.
func shortOnes(t *testing.T) string { return strconv.Itoa(300 * rounds(t, 1)) }

// A session has one network: a command reaches a port that another one opened on loopback.
func TestNetworkOfASession(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		for _, options := range [][]string{{"--net", "none"}, allow("good.test")} {
			t.Run(options[1], func(t *testing.T) {
				options = append(options, "--session", options[1])
				end := serveInside(t, b, options, "127.0.0.1:8080")
				got, _ := act(t, b, options, "get http://127.0.0.1:8080/")
				assert.Equal(t, "200 inside", got[0])
				got, _ = act(t, b, options[:len(options)-2], "tcp 127.0.0.1:8080 x")
				assert.Equal(t, "error: refused", got[0], "without the session it is another loopback")

				other := append(allow("other.test"), "--session", options[len(options)-1])
				refused := b.Run(t, "pk-bwrap", append(other, "--", "true")...)
				assert.Equal(t, 125, refused.Status)
				assert.Contains(t, refused.Stderr, "other commands of the session have another network: ")
				assert.Contains(t, refused.Stderr, "pk-bwrap: hint: wait for their end, give the same network options, or use another session\n")
				end()
				again := b.Run(t, "pk-bwrap", append(other, "--", "true")...)
				assert.Equal(t, 0, again.Status, "nobody uses the first network any more: %s", again.Stderr)
			})
		}
		t.Run("each command has its own records", func(t *testing.T) {
			for i := range 10 {
				got := b.Run(t, "pk-bash", append(allow("good.test:22"), "--session", "r", "-y", "--json", "--", fmt.Sprintf("exec 3<>/dev/tcp/good.test/22; echo %d >&3", i))...)
				var result struct {
					Network []struct{ Name, Verdict string }
				}
				require.NoError(t, json.Unmarshal([]byte(got.Stdout), &result), got.Stdout+got.Stderr)
				require.Len(t, result.Network, 1, got.Stdout)
				assert.Equal(t, "allowed", result.Network[0].Verdict)
			}
		})
		t.Run("a command cannot speak to the gate", func(t *testing.T) {
			options := append(allow("good.test"), "--session", "seen")
			end := serveInside(t, b, options, "127.0.0.1:8080")
			defer end()
			sockets, err := filepath.Glob(b.Home + "/.cache/pikuri/workspace-seen/.gate")
			require.NoError(t, err)
			require.Len(t, sockets, 1)
			got, _ := act(t, b, []string{"--net", "none", "--readable", b.Home + "/.cache"}, "unix "+sockets[0])
			assert.NotEqual(t, "connected", got[0], "the directory of sessions is hidden in every root")
			conn, err := net.Dial("unix", sockets[0]) // as a process beside the session's would
			require.NoError(t, err)
			_, err = conn.Write([]byte("{}\n"))
			require.NoError(t, err)
			answer, err := io.ReadAll(conn)
			assert.Empty(t, answer, "%v", err)
		})
		t.Run("64 commands at once", func(t *testing.T) {
			options := append(allow("good.test"), "--session", "many")
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					got, said := act(t, b, slices.Clone(options), "get https://good.test/")
					assert.Equal(t, "200 good.test HTTP/2.0 / 0", got[0], said)
				})
			}
			all.Wait()
		})
	})
}

// serveInside starts an HTTP server in a sandbox, and returns when it listens. The
// function ends it.
func serveInside(t *testing.T, b *clitest.Box, options []string, at string) (end func()) {
	t.Helper()
	args := append(slices.Clone(options), "--setenv", clientWords+"=serve "+at, "--", "./client", "-test.run=^TestClient$")
	cmd := b.Command("pk-bwrap", args...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "listening\n", line)
	end = sync.OnceFunc(func() {
		stdin.Close()
		assert.NoError(t, cmd.Wait())
	})
	t.Cleanup(end)
	return end
}

// A server of the command's own is at its addresses alone, also at a port of a rule.
func TestOwnServers(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		options := append(allow("good.test:8080"), "--session", "own")
		serveInside(t, b, options, "0.0.0.0:8080")
		got, said := act(t, b, options, "get http://127.0.0.1:8080/", "get http://localhost:8080/", "tcp good.test:8080 x", "tcp 10.0.0.5:8080 x", "tcp [fd00::5]:8080 x")
		assert.Equal(t, []string{"200 inside", "200 inside", "error: reset", "error: reset", "error: reset"}, got)
		assert.Contains(t, said, "good.test:8080 could not be reached: ")
		assert.Contains(t, said, "10.0.0.5:8080 over tcp was refused: hosts are reached by name, not by address")
		for _, host := range []string{"127.0.0.1", "[::1]"} {
			c, err := net.DialTimeout("tcp", host+":8080", 5*time.Second)
			assert.Error(t, err)
			if err == nil {
				c.Close()
			}
		}
	})
}

// Ports of the loopback lead in and out, each by its own option.
func TestPortsOfTheLoopback(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		host := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) { fmt.Fprint(out, "the host") })}
		listener, err := net.Listen("tcp", "127.0.0.1:5432")
		require.NoError(t, err)
		go host.Serve(listener) //nolint:errcheck // it ends with the test
		defer host.Close()
		for _, net := range [][]string{{"--net", "none"}, allow("good.test")} {
			t.Run(net[1], func(t *testing.T) {
				got, _ := act(t, b, append(slices.Clone(net), "--connect", "localhost:5432"), "get http://127.0.0.1:5432/", "tcp 127.0.0.1:5433 x")
				assert.Equal(t, []string{"200 the host", "error: refused"}, got)
				got, _ = act(t, b, slices.Clone(net), "tcp 127.0.0.1:5432 x")
				assert.Equal(t, "error: refused", got[0])

				end := serveInside(t, b, append(slices.Clone(net), "--publish", "3000", "--publish", "3001"), "127.0.0.1:3000")
				assert.Equal(t, "inside", fetch(t, "http://127.0.0.1:3000/"))
				assert.Equal(t, "inside", fetch(t, "http://[::1]:3000/"))
				taken := b.Run(t, "pk-bwrap", append(slices.Clone(net), "--publish", "3000", "--", "true")...)
				assert.Equal(t, 125, taken.Status)
				assert.Contains(t, taken.Stderr, "cannot publish port 3000: ")
				assert.Contains(t, taken.Stderr, "address already in use")
				end()
				for range 3 { // the port is free as soon as the command has ended
					again := b.Run(t, "pk-bwrap", append(slices.Clone(net), "--publish", "3000", "--", "true")...)
					assert.Equal(t, 0, again.Status, again.Stderr)
				}
				_, err := http.Get("http://127.0.0.1:3000/")
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
			})
		}
	})
}

func fetch(t *testing.T, url string) string {
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}

// Killed at any moment, the gate leaves a command without a network, and a killed
// command leaves no gate.
func TestKilledGate(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		options := append(allow("good.test"), "--session", "s")
		end := serveInside(t, b, options, "127.0.0.1:8080")
		gates := gatesOf(t)
		require.Len(t, gates, 1)
		assertHasNothing(t, gates[0])
		require.NoError(t, syscall.Kill(gates[0], syscall.SIGKILL))
		awaitNoGate(t)
		got, _ := act(t, b, options, "get https://good.test/")
		assert.Equal(t, "200 good.test HTTP/2.0 / 0", got[0], "the next command has a gate of its own")
		end()
		awaitNoGate(t)

		for i := range rounds(t, 8) {
			victim := victims[i%len(victims)]
			cmd := b.Command("pk-bwrap", append(slices.Clone(options), "--", "sleep", "1000")...)
			require.NoError(t, cmd.Start())
			time.Sleep(time.Duration(i*37%41) * time.Millisecond) // any moment of its start
			for _, pid := range victim.of(t, b, cmd.Process.Pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
			if !victim.ends {
				require.NoError(t, cmd.Process.Kill())
			}
			_ = cmd.Wait()
			awaitNoGate(t)
			if i%10 == 9 {
				got, said := act(t, b, options, "get https://good.test/")
				assert.Equal(t, "200 good.test HTTP/2.0 / 0", got[0], "after %s: %s", victim.name, said)
			}
		}
		got, _ = act(t, b, options, "get https://good.test/")
		assert.Equal(t, "200 good.test HTTP/2.0 / 0", got[0])
	})
}

// A sweep ends a gate that is stopped, when its command was killed. The next start does not wait for it.
func TestStoppedGate(t *testing.T) {
	clitest.OneRow(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		cmd := b.Command("pk-bwrap", "--session", "s", "--net", "none", "--", "sh", "-c", "echo started; exec sleep 1000")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		gates := gatesOf(t)
		require.Len(t, gates, 1)
		require.NoError(t, syscall.Kill(gates[0], syscall.SIGSTOP))
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		b.AwaitOrphans(t)
		got := b.Run(t, "pk-sweep", "--session", "s")
		assert.Equal(t, 0, got.Status, got.Stderr)
		awaitNoGate(t)
	})
}

// victims are the processes of a command that may be killed. Without some of them the
// command ends; not if they have not started yet.
var victims = []struct {
	name string
	of   func(t *testing.T, b *clitest.Box, monitor int) []int
	ends bool
}{
	{"the monitor", func(_ *testing.T, _ *clitest.Box, monitor int) []int { return []int{monitor} }, true},
	{"the set-up program", func(_ *testing.T, _ *clitest.Box, monitor int) []int { return childrenOf(monitor) }, false},
	{"the gate", func(t *testing.T, _ *clitest.Box, _ int) []int { return gatesOf(t) }, false},
	{"the keeper", func(_ *testing.T, b *clitest.Box, _ int) []int {
		return processes("pk-keeper: session s\x00--pk-keeper\x00" + b.Home)
	}, false},
}

func childrenOf(pid int) (list []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range threads {
		text, _ := os.ReadFile(name)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// processes lists those with a text in their command line.
func processes(text string) (list []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// assertHasNothing looks at a gate that was started with open files of its caller.
func assertHasNothing(t *testing.T, gate int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", gate))
	require.NoError(t, err)
	for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		assert.Contains(t, string(status), line+"\n")
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", gate))
	require.NoError(t, err)
	for _, f := range files {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", gate, f.Name()))
		require.NoError(t, err)
		kind, _, _ := strings.Cut(to, ":")
		assert.True(t, slices.Contains([]string{"/dev/null", "socket", "net", "anon_inode"}, kind) || strings.HasPrefix(to, "/sys/fs/cgroup/"), to)
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", gate))
	require.NoError(t, err)
	assert.Empty(t, environment)
}

// gatesOf lists the gate processes of this test's world: those in its user namespace
// or below.
func gatesOf(t *testing.T) (list []int) {
	t.Helper()
	for _, pid := range processes("\x00--pk-gate\x00") {
		if isBelow(pid) {
			list = append(list, pid)
		}
	}
	return list
}

// isBelow reports whether a process runs in a user namespace whose parent is this one.
func isBelow(pid int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	up, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return false
	}
	defer unix.Close(up)
	var parent, own unix.Stat_t
	return unix.Fstat(up, &parent) == nil && unix.Stat("/proc/self/ns/user", &own) == nil && parent.Ino == own.Ino
}

// awaitNoGate waits for the end of all gates.
func awaitNoGate(t *testing.T) {
	t.Helper()
	for _, pid := range gatesOf(t) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		assert.True(t, sessiondir.AwaitEnd(fd, 10*time.Second), "gate %d still runs", pid)
		unix.Close(fd)
	}
}

// The gate connects through the caller's own proxy, and gives it the name.
func TestNetworkThroughAProxy(t *testing.T) {
	clitest.TwoRows(t)
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		asked := make(chan string, 10)
		proxy := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			asked <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
			there, err := net.Dial("tcp", r.Host)
			if err != nil {
				http.Error(out, err.Error(), http.StatusBadGateway)
				return
			}
			out.WriteHeader(http.StatusOK)
			c, buffered, err := out.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(there, buffered); there.Close() }()
			_, _ = io.Copy(c, there)
			c.Close()
		})}
		listener, err := net.Listen("tcp", "127.0.0.1:3128")
		require.NoError(t, err)
		go proxy.Serve(listener) //nolint:errcheck // it ends with the test
		defer proxy.Close()
		b.Env = []string{"HTTPS_PROXY=http://me:secret@127.0.0.1:3128", "NO_PROXY=.wild.test"}
		got, said := act(t, b, allow("good.test", "*.wild.test", "nowhere.test private", "unknown.test", "loop.test:3128", "meta.test private"),
			"get https://good.test/", "get https://www.wild.test/", "get https://nowhere.test/", "get https://unknown.test/", "tcp loop.test:3128 x", "tcp meta.test:80 GET")
		assert.Equal(t, []string{"200 good.test HTTP/2.0 / 0", "200 www.wild.test HTTP/2.0 / 0", "error: reset", "error: reset", "error: reset", "error: reset"}, got)
		address := <-asked
		assert.True(t, address == "CONNECT "+gatetest.Public+":443 Basic bWU6c2VjcmV0" || address == "CONNECT ["+gatetest.Public6+"]:443 Basic bWU6c2VjcmV0", address)
		assert.Equal(t, "CONNECT nowhere.test:443 Basic bWU6c2VjcmV0", <-asked)
		assert.Empty(t, asked, "the proxy is asked for what the gate has judged, or for names of rules that say private")
		assert.Contains(t, said, "unknown.test:443 was refused: it does not resolve here")
		assert.Contains(t, said, "loop.test:3128 was refused: it resolves to 127.0.0.1")
		assert.Contains(t, said, "meta.test:80 was refused: it resolves to 169.254.169.254")
		printed := b.Run(t, "pk-bwrap", append(allow("good.test"), "--print", "--", "true")...)
		assert.Equal(t, 0, printed.Status)
		assert.NotContains(t, printed.Stdout, "secret")
		assert.Contains(t, printed.Stderr, "the proxy of HTTPS_PROXY")
		var environment []string
		for _, line := range strings.Split(b.Run(t, "pk-bwrap", append(allow("good.test"), "--", "env")...).Stdout, "\n") {
			if strings.Contains(strings.ToLower(line), "_proxy=") {
				environment = append(environment, line)
			}
		}
		assert.Empty(t, environment, "programs that ask a proxy would find none inside")
		assert.Contains(t, said, `nowhere.test:443 could not be reached: the proxy does not connect: it answers "HTTP/1.1 502 Bad Gateway"`)
	})
}

// TestNetworkSpeed prints figures for scripts/bench: throughput and time to the first
// byte, in the sandbox and beside it.
func TestNetworkSpeed(t *testing.T) {
	if os.Getenv("PK_BENCH") == "" {
		t.Skip("it measures: scripts/bench network")
	}
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		words := []string{"bulk private.test:7001", "upload private.test:7002", "greetings private.test:7000"}
		for range 8 {
			ours, _ := act(t, b, allow("private.test:7000,7001,7002 private"), words...)
			cmd := exec.Command("./client", "-test.run=^TestClient$")
			cmd.Dir = b.Project
			cmd.Env = append(os.Environ(), clientWords+"="+strings.Join(words, "\n"))
			theirs, err := cmd.Output()
			require.NoError(t, err)
			fmt.Printf("speed\t%s\t%s\n", strings.Join(ours, "\t"), strings.Join(strings.Fields(string(theirs)), "\t"))
		}
	})
}

// TestNetworkPeers prints figures of other programs that give a command a network for
// scripts/compare: the time of a start in ms, MB/s from and to a server, and the time to
// the first byte in us. A peer may fail.
func TestNetworkPeers(t *testing.T) {
	peers := os.Getenv("PK_PEERS")
	if peers == "" {
		t.Skip("it measures: scripts/compare")
	}
	gatetest.Run(t, func(t *testing.T, w *gatetest.World) {
		b := netBox(t, w)
		b.Write(t, b.Home+"/.srt-settings.json", `{"network": {"allowedDomains": ["good.test"], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}`)
		const words = "pull good.test:7001\npush good.test:7002\ngreetings good.test:7000"
		pk := b.Command("pk-bwrap", append(allow("good.test:7000,7001,7002"), "--setenv", clientWords+"="+words, "--")...)
		fences := [][]string{{"env"}, pk.Args, {peers + "/srt/run"}, {peers + "/pasta/run"}}
		run := func(fence []string, line ...string) []string {
			cmd := exec.Command(fence[0], append(slices.Clone(fence[1:]), line...)...)
			cmd.Dir = b.Project
			cmd.Env = append(os.Environ(), clientWords+"="+words, "HOME="+b.Home, "PATH="+filepath.Dir(b.Bwrap)+":"+os.Getenv("PATH"))
			begin := time.Now()
			out, err := cmd.Output()
			took := time.Since(begin)
			if err != nil {
				t.Logf("%q: %v: %s", fence, err, out)
			}
			return append([]string{fmt.Sprintf("%.1f", took.Seconds()*1000)}, strings.Split(strings.TrimSpace(string(out)), "\n")...)
		}
		for range 5 {
			for i, name := range []string{"none", "pk", "srt", "pasta"} {
				start := run(fences[i], "true")
				figures := run(fences[i], "./client", "-test.run=^TestClient$")
				fmt.Printf("peer\t%s\t%s\t%s\n", name, start[0], strings.Join(figures[1:], "\t"))
			}
		}
	})
}

// Options of the network that contradict each other, or cannot be done.
func TestNetworkOptions(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/hosts", "good.test\n")
	b.Write(t, b.Home+"/hosts", "# none\nbad host\n")
	rows := []struct {
		name    string
		options []string
		said    string
	}{
		{"hosts without allow", []string{"--net", "host", "--allow-host", "a.test"}, "--allow-host needs --net allow"},
		{"allow without hosts", []string{"--net", "allow"}, "--net allow needs --allow-host NAME, or --allow-host-from FILE"},
		{"ports of the host's network", []string{"--publish", "80"}, "--publish and --connect need --net none or --net allow"},
		{"a port both ways", []string{"--net", "none", "--publish", "80", "--connect", "80"}, "port 80 is in --publish and in --connect"},
		{"no port", []string{"--net", "none", "--connect", "db.test:80"}, `"db.test:80" is no port of the loopback`},
		{"port 0", []string{"--net", "none", "--publish", "0"}, `"0" is no port of the loopback`},
		{"the gate's own port", []string{"--net", "allow", "--allow-host", "a.test:53"}, "port 53 cannot be allowed"},
		{"no network", []string{"--net", "some"}, `"some" is not one of host, none and allow`},
		{"a URL", []string{"--net", "allow", "--allow-host", "https://a.test/"}, `cannot allow "https://a.test/"`},
		{"no set", []string{"--net", "allow", "--allow-host", "@npm"}, `there is no set "@npm"`},
		{"a list with a bad line", []string{"--net", "allow", "--allow-host-from", b.Home + "/hosts"}, "line 2: "},
		{"a list that a command can write", []string{"--net", "allow", "--allow-host-from", b.Project + "/hosts"}, "writable root"},
		{"a guarantee", append(allow("a.test"), "--require", "network"), `cannot promise "network"`},
		{"the host's network, and the other guarantee", []string{"--require", "net-allow"}, `cannot promise "net-allow"`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := b.Run(t, "pk-bwrap", append(row.options, "--", "true")...)
			assert.Equal(t, 125, got.Status)
			assert.Contains(t, got.Stderr, row.said)
		})
	}
	for _, options := range [][]string{append(allow("a.test"), "--require", "net-allow"), {"--allow-host", "a.test", "--require", "net-allow"}, {"--net", "none", "--require", "net-allow,network"}} {
		got := b.Run(t, "pk-bwrap", append(options, "--", "true")...)
		assert.Equal(t, 0, got.Status, got.Stderr)
	}
}
