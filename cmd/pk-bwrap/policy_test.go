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
)

// homeOf is the home in the /etc/passwd of under.
func homeOf(b *clitest.Box) string { return filepath.Join(filepath.Dir(b.Project), "owner") }

// under runs a command on a machine with a policy: in namespaces in which the caller is
// root, and /etc/pikuri has only that. The machine's own /etc stays as it is.
func under(t *testing.T, b *clitest.Box, machine string, env []string, name string, args ...string) clitest.Outcome {
	t.Helper()
	inner := b.Command(name, args...)
	etc := filepath.Join(filepath.Dir(b.Project), "etc")
	require.NoError(t, os.RemoveAll(etc))
	b.Write(t, etc+"/upper/pikuri/policy", machine)
	b.Write(t, etc+"/upper/passwd", "root:x:0:0::"+homeOf(b)+":/bin/sh\n")
	b.Mkdir(t, etc+"/work")
	b.Mkdir(t, homeOf(b)+"/documents")
	const enter = `mount -t overlay -o "userxattr,lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" none /etc && shift && exec "$@"`
	cmd := exec.Command("unshare", append([]string{"-Urm", "sh", "-c", enter, "sh", etc}, inner.Args...)...)
	cmd.Dir, cmd.Env = inner.Dir, append(inner.Env, env...)
	got := clitest.Finish(t, cmd)
	require.NoError(t, exec.Command("chmod", "-R", "u+rwx", etc).Run()) // work/work has no mode
	return got
}

func TestMandatoryPolicy(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/.env", "secret\n")
	b.Mkdir(t, b.Home+"/go/pkg/mod")
	b.Write(t, b.Home+"/secret", "secret\n")
	answers := filepath.Join(filepath.Dir(b.Project), "answers")
	b.Script(t, answers, "touch "+answers+".ran\n")
	defer assert.NoFileExists(t, answers+".ran")
	b.Write(t, b.Project+"/f", "x\n")
	pin := b.Home + "/config/pikuri/confirm"
	b.Write(t, pin, "require command "+answers+"\n")
	require.NoError(t, os.Chmod(pin, 0o600))
	b.Write(t, b.Home+"/other/.gitconfig", "[core]\nexcludesfile = "+b.Home+"/secret\n")
	excludes := []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.excludesfile", "GIT_CONFIG_VALUE_0=" + b.Home + "/secret"}
	const machine = "mandatory\nnet none\ndeny **/.env\nuser-may bwrap\nallow-write **\n"
	for _, row := range []struct {
		name    string
		env     []string
		args    string
		status  int
		refused string // "" if stderr is of no interest
	}{
		{"it holds", nil, "pk-bwrap -- test ! -s .env", 0, ""},
		{"tightened", nil, "pk-bwrap --deny x --net none -- true", 0, ""},
		{"network", nil, "pk-bwrap --net host -- true", 125, `option "--net": the machine's policy is mandatory ("/etc/pikuri/policy", line 1)`},
		{"a readable root", nil, "pk-bwrap --readable /srv -- true", 125, `option "--readable"`},
		{"a further pattern", nil, "pk-bwrap --allow-write x -- true", 125, `option "--allow-write"`},
		{"protection", nil, "pk-bwrap --no-protect -- true", 125, `option "--no-protect"`},
		{"a descriptor", nil, "pk-bwrap --pass-fd 0 -- true", 125, `option "--pass-fd"`},
		{"the environment", nil, "pk-bwrap --env-inherit -- true", 125, `option "--env-inherit"`},
		{"a variable", nil, "pk-bwrap --pass-env X -- true", 125, `option "--pass-env"`},
		{"no sandbox", nil, "pk-bash -y --no-sandbox true", 125, `option "--no-sandbox"`},
		{"another wrapper", nil, "pk-bash -y --wrap env true", 125, `option "--wrap"`},
		{"pk-fs", nil, "pk-fs cat .env", 1, `--deny "**/.env" of "/etc/pikuri/policy", line 3`},
		{"a program", nil, "pk-bash --confirm-command " + answers + " true", 125, `option "--confirm-command"`},
		{"a program in a variable", []string{"PK_CONFIRM_COMMAND=" + answers}, "pk-bash true", 125, `answers" of PK_CONFIRM_COMMAND cannot be used: the machine's policy is mandatory`},
		{"a program in a file that a variable names", []string{"XDG_CONFIG_HOME=" + b.Home + "/config"}, "pk-bash true", 125, "/config/pikuri/confirm cannot be used"},
		{"a log", nil, "pk-bash -y --log " + b.Home + "/log true", 125, `option "--log"`},
		{"records", nil, "pk-bash -y --audit " + b.Home + "/log true", 125, `option "--audit"`},
		{"a log of pk-fs", nil, "pk-fs --violations " + b.Home + "/log cat f", 2, `option "--violations"`},
		{"a file that pk-fs reads", nil, "pk-fs edit --old x --new-from " + b.Home + "/secret f", 2, `option "--new-from"`},
		{"a patch that pk-fs reads", nil, "pk-fs patch --from " + b.Home + "/secret", 2, `option "--from"`},
		{"a list that pk-apply reads", nil, "pk-apply --session s --from " + b.Home + "/secret", 2, `option "--from"`},
		{"sessions that a variable chooses", []string{"XDG_CACHE_HOME=" + b.Home + "/c", "HOME=" + homeOf(b)}, "pk-apply --session s --all", 2, `cannot use the sessions in "` + b.Home + "/c"},
		{"sessions of another home", nil, "pk-apply --session s --all", 2, `cannot use the sessions in "` + b.Home},
		{"sessions of the home", []string{"HOME=" + homeOf(b)}, "pk-apply --session s --all", 2, `there is no session "s"`},
		{"the network of pk-fs", nil, "pk-fs git-clone https://nowhere.test/x d", 1, `cannot git-clone with the network of the host: policy "/etc/pikuri/policy", line 2`},
		{"a directory of the home", []string{"GOMODCACHE=" + homeOf(b) + "/documents"}, "pk-bwrap -- test ! -e " + homeOf(b) + "/documents", 0, ""},
		{"a file that git ignores by", excludes, "pk-bwrap -- test ! -e " + b.Home + "/.gitignore_global", 0, ""},
		{"a home with such a file", []string{"HOME=" + b.Home + "/other"}, "pk-bwrap -- test ! -e " + b.Home + "/other/.gitignore_global", 0, ""},
		{"pk-fs, widened", nil, "pk-fs --writable /srv cat .env", 2, `option "--writable"`},
		{"pk-resolve", nil, "pk-resolve --allow-all .env", 2, `option "--allow-all"`},
		{"pk-mcp", nil, "pk-mcp --no-protect", 2, `option "--no-protect"`},
		{"a tool chain that a variable moves", []string{"GOPATH=" + b.Home + "/go"}, "pk-bwrap -- test ! -e " + b.Home + "/go/pkg/mod", 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := strings.Fields(row.args)
			got := under(t, b, machine, row.env, args[0], args[1:]...)
			assert.Equal(t, row.status, got.Status, got.Stderr)
			assert.Contains(t, got.Stderr, row.refused)
		})
	}
	got := under(t, b, "", []string{"GOPATH=" + b.Home + "/go"}, "pk-bwrap", "--", "test", "-e", b.Home+"/go/pkg/mod")
	assert.Equal(t, 0, got.Status, "without a mandatory policy it is shown: %s", got.Stderr)
	got = under(t, b, "", excludes, "pk-bwrap", "--", "test", "-e", b.Home+"/.gitignore_global")
	assert.Equal(t, 0, got.Status, "and so is that: %s", got.Stderr)
	got = under(t, b, machine, nil, "pk-bwrap", "--explain", "--json")
	assert.Contains(t, got.Stdout, `{"kind":"flag","rule":"policy \"/etc/pikuri/policy\", line 3","text":"deny **/.env"}`+"\n")
}

func TestProjectPolicyInASandbox(t *testing.T) {
	b := clitest.NewBox(t)
	b.Write(t, b.Project+"/.env", "secret\n")
	b.Write(t, b.Project+"/.pk/policy", "deny .env\nnet none\n")
	got := b.Run(t, "pk-bwrap", "--trust-project")
	require.Equal(t, clitest.Outcome{Stdout: "deny .env\nnet none\n"}, got)
	b.Write(t, b.Project+"/.pk/policy", "deny .env\nnet none\n") // the same again
	got = b.Run(t, "pk-bash", "-y", "--raw", "cat .env || echo no; rm -f .pk/policy || echo no; echo x >.pk/policy || echo no; mv .pk p || echo no")
	assert.Equal(t, "no\nno\nno\nno\n", got.Stdout)
	assert.Equal(t, 1, b.Run(t, "pk-fs", "cat", ".env").Status)
	assert.Equal(t, 1, b.Run(t, "pk-fs", "rm", ".pk/policy").Status)
	got = b.Run(t, "pk-bwrap", "--net", "allow", "--allow-host", "example.test", "--explain", "--json")
	assert.Contains(t, got.Stdout, `/project/.pk/policy\", line 2","text":"net none"}`+"\n")
	assert.NotContains(t, got.Stdout, "--share-net")
	b.Write(t, b.Project+"/.pk/policy", "deny other\n")
	got = b.Run(t, "pk-bwrap", "--", "true")
	assert.Equal(t, 125, got.Status)
	assert.Contains(t, got.Stderr, "has changed since you trusted it")
}
