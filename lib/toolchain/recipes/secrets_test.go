package recipes

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/cli/clitest"
	"pikuri/lib/toolchain"
	"pikuri/lib/toolchain/toolchaintest"
)

// secret is in every file that must not be seen. scripts/testroot has planted
// some outside the home.
const secret = "PLANTED-SECRET"

func table(t *testing.T) toolchain.Table {
	t.Helper()
	table, err := toolchain.Load()
	require.NoError(t, err)
	return table
}

// TestNothingPlantedIsSeen searches the whole view of a machine on which every
// tool is used and every credential of the table lies where it would.
func TestNothingPlantedIsSeen(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	planted := toolchaintest.Plant(t, m.home, table(t), secret+"\n")
	const search = `grep -rlsF ` + secret + ` / --exclude-dir=proc --exclude-dir=sys || [ $? = 2 ]`
	assert.Equal(t, clitest.Outcome{}, m.fenced(t, search))

	// A masked file is empty and readable: yarn gives up on an existing file that
	// it may not read.
	blank := m.fenced(t, `cat /usr/etc/npmrc ~/.nvm/versions/node/x/etc/npmrc && ! echo x 2>/dev/null >/usr/etc/npmrc`)
	assert.Equal(t, clitest.Outcome{}, blank)

	// The search would find them, and does on the machine itself.
	found := m.host(t, `grep -rlsF `+secret+` ~ /usr/etc /usr/local/etc /etc || [ $? = 2 ]`)
	assert.Greater(t, strings.Count(found, "\n"), len(planted))

	assert.Empty(t, m.host(t, `pk-toolchains --check`))
	m.write(t, ".config/pikuri/toolchains.tsv", "readable\tnvm\t~/.nvm\t-\t-\t-\t-\n")
	assert.Equal(t, m.text("visible\tnvm\t{home}/.nvm/versions/node/x/etc/npmrc\n1\n"), m.host(t, `pk-toolchains --check || echo $?`))
}

// TestPlanStaysSmall: each mount costs every sandbox time.
func TestPlanStaysSmall(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, project string
		without       []string // files that testroot has planted in, unlike a usual machine
	}{
		{"no repository, and credentials in the system", "", nil},
		{"a repository", "git init -q", []string{"/usr/etc", "/usr/local/etc", "/etc/java-17-openjdk/management"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			for _, dir := range test.without {
				m.mounts = append(m.mounts, "--tmpfs", dir)
			}
			m.host(t, test.project+`
				cd && mkdir -p .rustup .cargo/bin .cargo/registry .cargo/git go/bin go/pkg/mod go/pkg/sumdb .cache/go-build \
					.nvm .npm/_cacache .npm/_npx .pyenv .cache/pip .local/share/uv/python .local/share/uv/tools .cache/uv \
					.m2/repository .gradle/caches .gradle/wrapper/dists .gradle/jdks`)
			tools := m.host(t, `pk-toolchains | grep "$HOME" | cut -f2 | sort -u`)
			require.GreaterOrEqual(t, strings.Count(tools, "\n"), 10, tools)
			printed := m.host(t, `pk-bwrap --bwrap `+m.innerBwrap()+` --print --json true`)
			mounts := regexp.MustCompile(`(?m)^.*"op":"(read-only|writable|overlay|empty|mask|proc|dev|protect|pin)".*$`).FindAllString(printed, -1)
			mounts = append(mounts, "/dev/shm")
			assert.LessOrEqual(t, len(mounts), 40, strings.Join(mounts, "\n"))
			assert.Greater(t, len(mounts), 20)
			t.Logf("%d mounts", len(mounts))
		})
	}
}
