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

	"pikuri/lib/cli/clitest"
)

// Work of an hour or a minute in a trial: meanwhile the host's files stay, and once it has
// landed they are the same as after the same work without a trial.
func TestWork(t *testing.T) {
	b := clitest.NewBoxInEveryRow(t)
	goRoot := os.Getenv("PK_TEST_GOROOT")
	if goRoot == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		require.NoError(t, err)
		goRoot = strings.TrimSpace(string(out))
	}
	long := 300
	if os.Getenv("PK_LONG") != "" {
		long = 50_000
	}
	for i, row := range []struct {
		name, before, script, then string
		options                    []string
	}{
		{"make", `
			printf 'all: a.out lib/b.out\n%%.out: %%.in\n\ttr a-z A-Z <$< >$@\n\techo $@ >>log\nclean:\n\trm -f a.out lib/b.out log\n' >Makefile
			mkdir lib; echo one >a.in; echo two >lib/b.in; make -s all`,
			`echo three >a.in; make -s all; make -s all; echo four >lib/b.in; make -s clean all`,
			`make -q all`, nil},
		{"many files", `mkdir -p keep; for n in $(seq 50); do echo $n >keep/$n; done`, fmt.Sprintf(`
			perl -e 'for my $n (1..%[1]d) { my $d = "t/" . ($n %% 97); mkdir "t"; mkdir $d; open(F, ">", "$d/f$n"); print F $n; close(F) }'
			perl -e 'for my $n (1..%[1]d) { unlink("t/" . ($n %% 97) . "/f$n") if $n %% 2 }'
			for n in $(seq 1 2 50); do rm keep/$n; done; for n in $(seq 2 4 50); do echo x >>keep/$n; done`, long), `true`, nil},
		{"a database", `perl -e 1; sqlite3 db 'create table t (n integer primary key, s text); with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000) insert into t select x, hex(x) from c'`,
			`sqlite3 db 'pragma journal_mode=wal; update t set s = s || n where n % 3 = 0; delete from t where n % 5 = 0; vacuum' >/dev/null; sqlite3 new.db 'create table u (x); insert into u values (1)'`,
			`test "$(sqlite3 db 'pragma integrity_check')" = ok; test $(sqlite3 db 'select count(*) from t') = 1600`, nil},
		{"gofmt and go test", `cp GOROOT/src/text/tabwriter/*.go .; printf 'module tabwriter\n\ngo 1.24\n' >go.mod; mkdir ../cache`,
			`export GOCACHE=$PWD/../cache GOFLAGS=-mod=mod GOTOOLCHAIN=local; gofmt -r 'b.minwidth -> b.minimumWidth' -w *.go; gofmt -r 'minwidth -> minimumWidth' -w *.go; go vet . && go test ./... >/dev/null`,
			`export GOCACHE=$PWD/../cache GOTOOLCHAIN=local; go test ./... >/dev/null`, []string{"--writable", "CACHE"}},
	} {
		if !clitest.Turn(i) {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			switch row.name {
			case "a database":
				if _, err := exec.LookPath("sqlite3"); err != nil {
					t.Skip("sqlite3 is not installed") // nor is it in CI
				}
			case "gofmt and go test":
				if os.Getenv("PK_LONG") == "" {
					t.Skip("it compiles a part of Go's library: PK_LONG=1 runs it")
				}
			}
			g := newGround(t, b)
			g.Env = append(g.Env, "PATH="+goRoot+"/bin:"+os.Getenv("PATH"))
			path := "export PATH=" + goRoot + "/bin:$PATH; "
			g.host(t, strings.ReplaceAll(row.before, "GOROOT", goRoot))
			direct := g.copied(t)
			if row.options != nil {
				g.Mkdir(t, filepath.Dir(direct)+"/cache")
				g.options = []string{"--writable", g.dir + "/cache"}
			}
			before := manifest(t, g.Project)
			g.in(t, direct, path+row.script)
			g.trial(t, path+row.script)
			assert.Empty(t, without(manifest(t, g.Project), before), "the host has changed")
			assert.Len(t, manifest(t, g.Project), len(before))
			got := g.apply(t, g.Project)
			assert.Zero(t, got.Status, got.Stderr)
			sameTree(t, tree(t, direct), tree(t, g.Project))
			g.host(t, path+row.then)
		})
	}
}
