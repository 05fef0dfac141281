package bwrap

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func plain(_ Access, text string) string { return text }

// described is a plan in which every kind of row occurs.
var described = Plan{
	Mounts: []Mount{
		{Op: OpEmpty, Dest: "/home/me", Rule: "default: empty home"},
		{Op: OpOverlay, Source: "/home/me/.cache/ccache", Dest: "/home/me/.cache/ccache", Rule: "toolchain ccache"},
		{Op: OpWritable, Source: "/home/me/src/app", Dest: "/home/me/src/app", Rule: "project root"},
		{Op: OpWritable, Source: "/home/me/.cache/pikuri/workspace-review/playground", Dest: "/tmp", Rule: "option --session"},
		{Op: OpMask, Dest: "/home/me/src/app/.env", Rule: `--deny "**/.env" of policy "/home/me/policies/app", line 2`},
		{Op: OpProtect, Source: "/home/me/src/app/.git/hooks", Dest: "/home/me/src/app/.git/hooks", Rule: "default: git: git runs them"},
		{Op: OpCopy, Source: "/etc/hosts", Dest: "/etc/hosts", Rule: "default: /etc allowlist"},
		{Op: OpCopy, Source: "/etc/a, b", Dest: "/etc/a, b", Rule: "default: /etc allowlist"},
		{Op: OpCopy, Source: "/etc/services", Dest: "/etc/services", Rule: "default: /etc allowlist"},
		{Op: OpData, Dest: "/etc/passwd", Rule: "default: synthetic accounts"},
		{Op: OpCopy, Source: "/etc/ca-certificates.conf", Dest: "/etc/ca-certificates.conf", Rule: "default: /etc allowlist"},
		{Op: OpReadOnly, Source: "/opt", Dest: "/opt", Rule: "toolchain system"},
		{Op: OpReadOnly, Source: "/usr", Dest: "/usr", Rule: "toolchain system"},
		{Op: OpReadOnly, Source: "/srv", Dest: "/srv", Rule: "toolchain system"},
	},
	Vars: []Var{
		{Name: "AWS_SECRET_ACCESS_KEY", Dropped: true, Rule: "default: it is named like a secret"},
		{Name: "LD_PRELOAD", Dropped: true, Rule: "default: it carries code, or leads to the host"},
		{Name: "GITHUB_TOKEN", Dropped: true, Rule: "default: it is named like a secret"},
	},
}

const description = `Can be written:
  scratch    /home/me                       default: empty home
  overlay    /home/me/.cache/ccache         toolchain ccache
  writable   /home/me/src/app               project root
  writable   /tmp (/home/me/.cache/pikuri/workspace-review/playground)
                                            option --session
Cannot, though it lies there:
  hidden     /home/me/src/app/.env          --deny "**/.env" of policy
                                            "/home/me/policies/app", line 2
  read-only  /home/me/src/app/.git/hooks    default: git: git runs them
Can be read:
  read-only  /etc: hosts, services,         default: /etc allowlist
             ca-certificates.conf
  read-only  "/etc/a, b"                    default: /etc allowlist
  synthetic  /etc/passwd                    default: synthetic accounts
  read-only  /opt                           toolchain system
  read-only  /usr                           toolchain system
  read-only  /srv                           toolchain system
Variables the command does not get:
  AWS_SECRET_ACCESS_KEY, GITHUB_TOKEN       default: it is named like a secret
  LD_PRELOAD                                default: it carries code, or leads
                                            to the host
And:
`

func TestAPlanReadsAtAGlance(t *testing.T) {
	lines := described.Describe(plain)
	assert.True(t, strings.HasPrefix(strings.Join(lines, "\n"), description), strings.Join(lines, "\n"))
	for _, line := range lines {
		if !strings.Contains(line, "playground") { // paths are never broken
			assert.LessOrEqual(t, len(line), width, line)
		}
	}
}

func TestPaintKeepsTheColumns(t *testing.T) {
	marked := func(what Access, text string) string { return "<" + string(what) + ">" + text + "</>" }
	lines := described.Describe(marked)
	assert.Equal(t, "<title>Can be written:</>", lines[0])
	assert.Equal(t, "  <scratch>scratch  </>  /home/me                       default: empty home", lines[1])
	unmark := strings.NewReplacer("</>", "", "<title>", "", "<scratch>", "", "<overlay>", "", "<writable>", "", "<hidden>", "", "<read-only>", "", "<synthetic>", "")
	assert.Equal(t, strings.Join(described.Describe(plain), "\n"), unmark.Replace(strings.Join(lines, "\n")))
}

func TestAVerdictReadsAtAGlance(t *testing.T) {
	for _, test := range []struct {
		name    string
		verdict Verdict
		want    string
	}{
		{"short", Verdict{Path: "/usr", Place: "/usr", Access: ReadOnly, Host: "/usr", Mount: "/usr", Rule: "toolchain system"},
			"read-only  /usr\n           toolchain system"},
		{"by a link", Verdict{Path: "main", Place: "/p/src/main.c", Access: Writable, Host: "/p/src/main.c", Mount: "/p", Rule: "project root"},
			"writable   main -> /p/src/main.c\n           project root, at /p"},
		{"elsewhere on the host, too long for a line", Verdict{Path: "/tmp/x", Place: "/tmp/y/with/quite/a/long/name/that/goes", Access: Writable,
			Host: "/home/me/.cache/pikuri/workspace-review/playground/y", Mount: "/tmp", Rule: "option --session"},
			"writable   /tmp/x -> /tmp/y/with/quite/a/long/name/that/goes,\n           on the host /home/me/.cache/pikuri/workspace-review/playground/y\n           option --session, at /tmp"},
		{"a long reason", Verdict{Path: ".env", Place: "/home/me/src/app/.env", Access: Hidden, Mount: "/home/me/src/app/.env",
			Rule: `--deny "**/.env" of policy "/home/me/policies/for/the/application", line 2`},
			"hidden     .env -> /home/me/src/app/.env\n           --deny \"**/.env\" of policy \"/home/me/policies/for/the/application\",\n           line 2"},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, test.verdict.Describe(plain)) })
	}
}

func TestJSONKeepsBytes(t *testing.T) {
	const name = "/\xff"
	line := Verdict{Path: name, Place: name, Host: name, Mount: name, Access: Writable}.JSON()
	assert.Equal(t, `{"kind":"verdict","access":"writable","path_base64":"L/8=","place_base64":"L/8=","host_base64":"L/8=","mount_base64":"L/8="}`, line)
	plan := &Plan{Vars: []Var{{Name: "A\xff", Value: "\xff"}}}
	assert.Contains(t, plan.JSON(), `{"kind":"variable","name_base64":"Qf8=","value_base64":"/w=="}`)
}
