package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pikuri/lib/hostrule"
)

// box is a made-up machine: h is the home, r the prefix of the system's paths, p the
// project, b a directory of programs.
type box struct{ dir string }

func (b box) fill(s string) string {
	return strings.NewReplacer("{h}", b.dir+"/h", "{r}", b.dir+"/r", "{p}", b.dir+"/p", "{b}", b.dir+"/b").Replace(s)
}

// newBox builds a machine from lines: "path: text", in which "|" stands for a newline,
// "path => target", "dir/", or "path!" for a program.
func newBox(t *testing.T, lines ...string) box {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	b := box{dir}
	for _, line := range append([]string{"{h}/", "{r}/", "{p}/", "{b}/"}, lines...) {
		b.add(t, b.fill(line))
	}
	return b
}

func (b box) add(t *testing.T, line string) {
	t.Helper()
	name, text, isFile := strings.Cut(line, ": ")
	link, target, isLink := strings.Cut(line, " => ")
	mode := os.FileMode(0o644)
	if program, ok := strings.CutSuffix(line, "!"); ok {
		name, isFile, mode = program, true, 0o755
	}
	if isLink {
		name = link
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	switch {
	case isLink:
		require.NoError(t, os.Symlink(target, name))
	case isFile:
		require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(text, "|", "\n")), mode))
	default:
		require.NoError(t, os.MkdirAll(line, 0o755))
	}
}

// survey lists "RULE TOOL LEVEL PLACE", and the notes.
func (b box) survey(project bool, env ...string) (lines, notes []string) {
	m := Machine{Home: b.dir + "/h", Project: b.dir + "/p", WithProject: project, root: b.dir + "/r", Environ: []string{"PATH=" + b.dir + "/b"}}
	for _, kv := range env {
		m.Environ = append(m.Environ, b.fill(kv))
	}
	entries, notes := Survey(m, func(string) bool { return true })
	empty := strings.NewReplacer(b.dir+"/h", "{h}", b.dir+"/r", "{r}", b.dir+"/p", "{p}", b.dir+"/b", "{b}")
	for _, e := range entries {
		for _, s := range e.Sources {
			lines = append(lines, empty.Replace(fmt.Sprintf("%s %s %s %s", e.Rule, s.Tool, s.Level, s.Place)))
		}
	}
	for i := range notes {
		notes[i] = empty.Replace(notes[i])
	}
	return lines, notes
}

func TestSurvey(t *testing.T) {
	for _, test := range []struct {
		name  string
		tree  []string
		env   []string
		want  []string
		notes []string // beginnings
	}{
		{"nothing", nil, nil, nil, nil},

		{"go: variables before files", []string{"{h}/.config/go/env: GOPROXY=https://b.test|GOSUMDB=sum.test+1a+k https://me:pw@c.test/x|"},
			[]string{"GOPROXY=https://u:secret@a.test:8443/go|http://b.test,direct,off,file:///x"},
			[]string{"a.test:8443 go environment $GOPROXY", "b.test:80 go environment $GOPROXY", "c.test:443 go user {h}/.config/go/env"}, nil},
		{"go: defaults of the installation", []string{"{b}/go => ../h/sdk/bin/go", "{h}/sdk/bin/go!", "{h}/sdk/go.env: # a comment|GOPROXY=https://a.test,direct|GOSUMDB=s.test|"}, nil,
			[]string{"a.test:443 go default {h}/sdk/go.env", "s.test:443 go default {h}/sdk/go.env"}, nil},
		{"go: GOROOT, GOENV, and no database", []string{"{h}/root/go.env: GOPROXY=https://a.test|GOSUMDB=s.test|", "{h}/e: GOSUMDB=off|"},
			[]string{"GOROOT={h}/root", "GOENV={h}/e"}, []string{"a.test:443 go default {h}/root/go.env"}, nil},
		{"go: no file at all", []string{"{h}/.config/go/env: GOPROXY=https://a.test|"}, []string{"GOENV=off"}, nil, nil},
		{"go: no defaults", []string{"{b}/go!"}, nil, nil, []string{"go: no GOPROXY is configured: its built-in default is not known here"}},
		{"go: private modules", nil, []string{"GOPROXY=off", "GOPRIVATE=git.a.test/team,*.b.test, c.test,[cd].test/x,none,*.test,localhost:80/x"},
			[]string{"*.b.test:443 go environment $GOPRIVATE", "c.test:443 go environment $GOPRIVATE", "git.a.test:443 go environment $GOPRIVATE"},
			[]string{`go: "$GOPRIVATE": cannot allow "[cd].test:443"`, `go: "$GOPRIVATE": cannot allow "*.test:443"`, `go: "$GOPRIVATE": "localhost:80" is no pattern of a host`}},
		{"go: GONOPROXY before GOPRIVATE", nil, []string{"GOPRIVATE=a.test", "GONOPROXY=none", "GONOSUMDB=b.test"}, nil, nil},

		{"npm: all levels, with scopes", []string{
			"{h}/.npmrc: ; mine|registry = \"https://a.test/\"|@s:registry=https://b.test:444/x|//a.test/:_authToken=secret|always-auth=true|",
			"{b}/node => ../h/n/bin/node", "{h}/n/bin/node!", "{h}/n/etc/npmrc: registry=https://hidden.test/|@g:registry=http://c.test/|"}, nil,
			[]string{"a.test:443 npm user {h}/.npmrc", "b.test:444 npm user {h}/.npmrc", "c.test:80 npm system {h}/n/etc/npmrc"}, nil},
		{"npm: variables, in any case", []string{"{h}/.npmrc: registry=https://hidden.test|", "{h}/g: @g:registry=https://c.test/|", "{h}/u: @u:registry=https://d.test/|"},
			[]string{"NPM_CONFIG_REGISTRY=https://a.test", "npm_config_@s:registry=https://b.test", "npm_config_globalconfig={h}/g", "NPM_CONFIG_USERCONFIG={h}/u"},
			[]string{"a.test:443 npm environment $NPM_CONFIG_REGISTRY", "b.test:443 npm environment $npm_config_@s:registry", "c.test:443 npm system {h}/g", "d.test:443 npm user {h}/u"}, nil},
		{"npm: variables in values", []string{"{h}/.npmrc: registry=https://${USER}:${TOKEN}@${HOST}/|@s:registry=https://${NONE}/|@t:registry=https://${|"},
			[]string{"HOST=a.test", "TOKEN=secret", "USER=me"}, []string{"a.test:443 npm user {h}/.npmrc"},
			[]string{`npm: "{h}/.npmrc": cannot allow "${NONE}:443"`, `npm: "{h}/.npmrc": cannot allow "${:443"`}},
		{"npm: default of the installation", []string{"{b}/npm => ../h/lib/npm/bin/npm-cli.js", "{h}/lib/npm/bin/npm-cli.js!",
			"{h}/lib/npm/node_modules/@npmcli/config/lib/definitions/definitions.js: x: new Definition('x', {|default: 'https://b.test',|}),|registry: new Definition('registry', {|    default: 'https://a.test/',|}),|"}, nil,
			[]string{"a.test:443 npm default {h}/lib/npm/node_modules/@npmcli/config/lib/definitions/definitions.js"}, nil},
		{"npm: default, modules side by side, older form", []string{"{b}/npm => ../h/lib/npm/bin/npm-cli.js", "{h}/lib/npm/bin/npm-cli.js!",
			"{h}/lib/@npmcli/config/lib/definitions/definitions.js: define('registry', {|  default: 'https://a.test/',|})|"}, nil,
			[]string{"a.test:443 npm default {h}/lib/@npmcli/config/lib/definitions/definitions.js"}, nil},
		{"npm: a wrapper", []string{"{b}/npm!"}, nil, nil, []string{"npm: no registry is configured"}},

		{"yarn", []string{"{h}/.yarnrc.yml: npmScopes:|  s:|    npmRegistryServer: 'https://b.test'|npmRegistryServer: \"https://a.test:444\" # mine|npmAuthToken: x|"},
			[]string{"YARN_NPM_REGISTRY_SERVER=https://c.test"},
			[]string{"b.test:443 yarn-berry user {h}/.yarnrc.yml", "c.test:443 yarn-berry environment $YARN_NPM_REGISTRY_SERVER"}, nil},
		{"yarn: a publishing registry", []string{"{b}/yarn!", "{h}/.yarnrc.yml: npmPublishRegistry: https://b.test|npmRegistryServer: https://a.test:444|"}, nil,
			[]string{"a.test:444 yarn-berry user {h}/.yarnrc.yml", "b.test:443 yarn-berry user {h}/.yarnrc.yml"}, nil},
		{"yarn without", []string{"{b}/yarn!"}, nil, nil, []string{"yarn-berry: no npmRegistryServer is configured"}},

		{"pip: levels", []string{
			"{r}/etc/pip.conf: [global]|index-url = https://hidden.test/simple|find-links = /srv/wheels|",
			"{h}/.config/pip/pip.conf: [global]|; c|Index_URL = https://me:pw@a.test/simple|extra-index-url =|    https://b.test/simple|    http://c.test:8080/simple|[install]|find-links: x|trusted-host = d.test|"}, nil,
			[]string{"a.test:443 pip user {h}/.config/pip/pip.conf", "b.test:443 pip user {h}/.config/pip/pip.conf", "c.test:8080 pip user {h}/.config/pip/pip.conf"}, nil},
		{"pip: variables", []string{"{h}/.pip/pip.conf: [global]|index-url=https://hidden.test|extra-index-url=https://hidden.test|"},
			[]string{"PIP_INDEX_URL=https://a.test", "PIP_EXTRA_INDEX_URL=https://b.test https://c.test", "PIP_FIND_LINKS=https://d.test/x file:///y"},
			[]string{"a.test:443 pip environment $PIP_INDEX_URL", "b.test:443 pip environment $PIP_EXTRA_INDEX_URL", "c.test:443 pip environment $PIP_EXTRA_INDEX_URL", "d.test:443 pip environment $PIP_FIND_LINKS"}, nil},
		{"pip: default of the installation", []string{"{r}/usr/lib/python3/dist-packages/pip/_internal/models/index.py: class X: pass|PyPI = PackageIndex(|  'https://a.test/', file_storage_domain='files.a.test'|)|TestPyPI = PackageIndex('https://t.test/', 'x')|"}, nil,
			[]string{"a.test:443 pip default {r}/usr/lib/python3/dist-packages/pip/_internal/models/index.py", "files.a.test:443 pip default {r}/usr/lib/python3/dist-packages/pip/_internal/models/index.py"}, nil},
		{"pip: no files", []string{"{b}/pip3!", "{h}/.pip/pip.conf: [global]|index-url=https://hidden.test|"}, []string{"PIP_CONFIG_FILE=/dev/null"}, nil, []string{"pip: no index-url is configured"}},

		{"apt: both forms", []string{
			"{r}/etc/apt/sources.list: # deb http://no.test x main|deb http://a.test/debian stable main|deb-src [ arch=amd64 signed-by=/k ] https://b.test:444/x s m|deb cdrom:[Debian] x main|deb file:/srv x main|deb mirror+https://m.test/l x main|deb tor+http://o.test x main|",
			"{r}/etc/apt/sources.list.d/x.list: deb\t[a=b]\thttp://u:p@c.test s m|", "{r}/etc/apt/sources.list.d/x.list.save: deb http://no.test s m|",
			"{r}/etc/apt/sources.list.d/y.sources: # c|Types: deb|URIs: http://d.test/x http://e.test|  https://f.test|Suites: s|  http://no.test||Enabled: no|URIs: http://no.test||URIs: http://g.test|"}, nil,
			[]string{"a.test:80 apt system {r}/etc/apt/sources.list", "b.test:444 apt system {r}/etc/apt/sources.list", "c.test:80 apt system {r}/etc/apt/sources.list.d/x.list",
				"d.test:80 apt system {r}/etc/apt/sources.list.d/y.sources", "e.test:80 apt system {r}/etc/apt/sources.list.d/y.sources", "f.test:443 apt system {r}/etc/apt/sources.list.d/y.sources",
				"g.test:80 apt system {r}/etc/apt/sources.list.d/y.sources", "m.test:443 apt system {r}/etc/apt/sources.list"}, nil},

		{"cargo: registries and sources", []string{"{b}/cargo!",
			"{h}/.cargo/config.toml: [registries]|mine = { index = \"sparse+https://a.test/i/\", token = \"secret\" }|[registries.\"o.x\"]|index = 'ssh://git@b.test/x.git' # c|[source.crates-io]|replace-with = \"m\"|[source.m]|registry = \"https://c.test/\"|[source.d]|directory = \"/x\"|[source]|g.git = \"https://d.test/\"|[net]|x = [1, \"a]\", { index = \"https://no.test\" }]|s = \"\"\"|index = \"https://no.test\"|\"\"\"|"}, nil,
			[]string{"a.test:443 cargo user {h}/.cargo/config.toml", "b.test:22 cargo user {h}/.cargo/config.toml", "c.test:443 cargo user {h}/.cargo/config.toml", "d.test:443 cargo user {h}/.cargo/config.toml"}, nil},
		{"cargo: config before config.toml, CARGO_HOME, variables", []string{"{h}/c/config: registry.index = \"https://a.test\"|", "{h}/c/config.toml: registry.index = \"https://hidden.test\"|", "{h}/.cargo/config: registry.index = \"https://hidden.test\"|"},
			[]string{"CARGO_HOME={h}/c", "CARGO_REGISTRIES_MY_REG_INDEX=sparse+https://b.test/", "CARGO_REGISTRIES_MY_REG_TOKEN=secret"},
			[]string{"a.test:443 cargo user {h}/c/config", "b.test:443 cargo environment $CARGO_REGISTRIES_MY_REG_INDEX"}, nil},
		{"cargo: broken", []string{"{b}/cargo!", "{h}/.cargo/config.toml: registry.index = \"https://a.test\"|[x|"}, nil,
			[]string{"a.test:443 cargo user {h}/.cargo/config.toml"}, []string{`cargo: "{h}/.cargo/config.toml": line 2: a table's name does not end`, "cargo: no replacement of the default registry"}},

		{"maven", []string{"{b}/mvn => ../h/m/bin/mvn", "{h}/m/bin/mvn!",
			"{h}/m/conf/settings.xml: <settings xmlns=\"x\"><mirrors><mirror><url>http://0.0.0.0/</url><mirrorOf>external:http:*</mirrorOf><blocked>true</blocked></mirror></mirrors></settings>",
			"{h}/.m2/settings.xml: <settings><servers><server><password>secret</password></server></servers><mirrors><mirror><url>https://${env.U}:${env.P}@a.test/r</url><mirrorOf>x, *</mirrorOf></mirror></mirrors><profiles><profile><repositories><repository><url>http://b.test</url></repository></repositories><pluginRepositories><pluginRepository><url>file:///x</url></pluginRepository><pluginRepository><url>|https://c.test|</url></pluginRepository></pluginRepositories></profile></profiles></settings>"},
			[]string{"U=me", "P=secret"},
			[]string{"a.test:443 maven user {h}/.m2/settings.xml", "b.test:80 maven user {h}/.m2/settings.xml", "c.test:443 maven user {h}/.m2/settings.xml"}, nil},
		{"maven: no mirror, and no XML", []string{"{b}/mvn!", "{h}/.m2/settings.xml: <settings>|&x;"}, nil, nil,
			[]string{`maven: "{h}/.m2/settings.xml": `, "maven: no mirror of the central repository is configured"}},

		{"gem", []string{"{h}/.gemrc: ---|:backtrace: false|:sources:|- https://a.test/|- \"http://me:pw@b.test:81\"|:update: x|- https://no.test|", "{r}/etc/gemrc: :sources: [https://hidden.test]|"}, nil,
			[]string{"a.test:443 rubygems user {h}/.gemrc", "b.test:81 rubygems user {h}/.gemrc"}, nil},
		{"gem: system's, and the default", []string{"{r}/etc/gemrc: gem: --no-document|sources: [https://a.test, 'https://b.test']|"}, nil,
			[]string{"a.test:443 rubygems system {r}/etc/gemrc", "b.test:443 rubygems system {r}/etc/gemrc"}, nil},
		{"gem: default of the installation", []string{"{r}/usr/lib/ruby/vendor_ruby/rubygems/defaults.rb: module Gem|  def self.default_sources|    %w[https://a.test/]|  end|"}, nil,
			[]string{"a.test:443 rubygems default {r}/usr/lib/ruby/vendor_ruby/rubygems/defaults.rb"}, nil},
		{"gem: no default", []string{"{b}/gem!"}, nil, nil, []string{"rubygems: no source is configured"}},

		{"two tools, one host; sorted", nil, []string{"GOPROXY=https://b.test,https://B.test.:443", "PIP_INDEX_URL=https://b.test/x", "PIP_FIND_LINKS=https://a.test http://a.test"},
			[]string{"a.test:80 pip environment $PIP_FIND_LINKS", "a.test:443 pip environment $PIP_FIND_LINKS", "b.test:443 go environment $GOPROXY", "b.test:443 pip environment $PIP_INDEX_URL"}, nil},
		{"addresses and localhost", nil, []string{"PIP_FIND_LINKS=http://127.0.0.1:3141/x http://[::1]:3141 https://localhost/x http://me:secret@2130706433/"}, nil,
			[]string{`pip: "$PIP_FIND_LINKS": cannot allow "127.0.0.1:3141": it is an address: type the host's name; a port of this machine takes --connect; left out`,
				`pip: "$PIP_FIND_LINKS": cannot allow "[::1]:3141": it is an address`, `pip: "$PIP_FIND_LINKS": cannot allow "localhost:443": it is this machine: --connect`, `pip: "$PIP_FIND_LINKS": cannot allow "2130706433:80"`}},
		{"words of rules in a URL", []string{"{h}/.npmrc: registry=https://a.test:443 private/|@a:registry=https://*.b.test/|@b:registry=https://c.test:80,443/|"}, nil, nil,
			[]string{`npm: "{h}/.npmrc": "*.b.test:443" is no host; left out`, `npm: "{h}/.npmrc": "c.test:80,443" is no host`, `npm: "{h}/.npmrc": "a.test:443 private" is no host`}},
		{"odd URLs", nil, []string{`PIP_FIND_LINKS=https:// https://a.test\@b.test https://c.test#@d.test https://e.test: HTTPS://f.test?x ftp://g.test https://u@v@h.test`},
			[]string{"a.test:443 pip environment $PIP_FIND_LINKS", "c.test:443 pip environment $PIP_FIND_LINKS", "e.test:443 pip environment $PIP_FIND_LINKS", "f.test:443 pip environment $PIP_FIND_LINKS", "h.test:443 pip environment $PIP_FIND_LINKS"},
			[]string{`pip: "$PIP_FIND_LINKS": cannot allow ":443"`}},
		{"files that cannot be read", []string{"{h}/.npmrc/"}, nil, nil, []string{`npm: cannot read "{h}/.npmrc"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines, notes := newBox(t, test.tree...).survey(false, test.env...)
			assert.Equal(t, test.want, lines)
			require.Len(t, notes, len(test.notes), strings.Join(notes, "\n"))
			for i, want := range test.notes {
				assert.Contains(t, notes[i], want)
			}
			assert.NotContains(t, strings.Join(append(lines, notes...), "\n"), "secret")
			for _, line := range lines {
				rule, _, _ := strings.Cut(line, " ")
				r, err := hostrule.Parse(rule)
				require.NoError(t, err)
				assert.Len(t, r.Ports, 1)
			}
		})
	}
}

// The files by which git recognizes a repository.
var repository = []string{"{p}/.git/HEAD: ref: refs/heads/main|", "{p}/.git/objects/", "{p}/.git/refs/"}

func TestProject(t *testing.T) {
	for _, test := range []struct {
		name        string
		tree        []string
		env         []string
		want, notes []string // with --project
	}{
		{"npm adds to the user's", []string{"{p}/.npmrc: registry=https://b.test|", "{h}/.npmrc: registry=https://a.test|"}, nil,
			[]string{"a.test:443 npm user {h}/.npmrc", "b.test:443 npm project {p}/.npmrc"}, nil},
		{"npm, a variable of the user's", []string{"{p}/.npmrc: registry=https://${TOKEN}.b.test|"}, []string{"TOKEN=secret"}, nil, []string{`npm: "{p}/.npmrc": cannot allow "${TOKEN}.b.test:443"`}},
		{"yarn", []string{"{p}/.yarnrc.yml: npmRegistryServer: https://a.test|"}, nil, []string{"a.test:443 yarn-berry project {p}/.yarnrc.yml"}, nil},
		{"Gemfile", []string{"{p}/Gemfile: # source 'https://no.test'|source 'https://a.test'|source(\"https://b.test\") do|  source \"https://c.test\"|gem 'x', source: 'https://d.test'|"}, nil,
			[]string{"a.test:443 rubygems project {p}/Gemfile", "b.test:443 rubygems project {p}/Gemfile", "c.test:443 rubygems project {p}/Gemfile"}, nil},
		{"cargo", []string{"{p}/.cargo/config.toml: registries.a.index = 'https://a.test'|", "{p}/../.cargo/config: registries.b.index = 'https://b.test'|", "{h}/.cargo/config.toml: registries.a.index = 'https://c.test'|"}, nil,
			[]string{"a.test:443 cargo project {p}/.cargo/config.toml", "b.test:443 cargo project {p}/../.cargo/config", "c.test:443 cargo user {h}/.cargo/config.toml"}, nil},
		{"git remotes", append([]string{
			"{p}/.git/config: [remote \"a\"]|url = https://me:secret@a.test/x|pushurl = ssh://git@b.test:2222/x|[remote \"b\"]|url = git@c.test:x/y.git|url = d.test:x|url = /srv/x|url = ./x:y|url = ext::ssh e.test|url = file:///x|url = git://f.test/x|url = ssh://git@g.test/x|[branch \"m\"]|remote = h.test:x|",
		}, repository...), nil,
			[]string{"a.test:443 git project {p}/.git/config", "b.test:2222 git project {p}/.git/config", "c.test:22 git project {p}/.git/config", "d.test:22 git project {p}/.git/config", "f.test:9418 git project {p}/.git/config", "g.test:22 git project {p}/.git/config"}, nil},
		{"git remotes, addresses", append([]string{"{p}/.git/config: [remote \"a\"]|url = git@192.0.2.1:x|url = git@[::1]:x|url = [c.test:2200]:x|"}, repository...), nil,
			[]string{"c.test:2200 git project {p}/.git/config"}, []string{`git: "{p}/.git/config": cannot allow "192.0.2.1:22"`, `git: "{p}/.git/config": cannot allow "[::1]:22"`}},
		{"git rewrites URLs", append([]string{"{p}/.git/config: [remote \"a\"]|url = w:x|url = https://a.test/x|", "{h}/.gitconfig: [url \"ssh://git@b.test/\"]|insteadOf = w:|[url \"https://no.test/\"]|insteadOf = https://|[url \"https://c.test/\"]|insteadOf = https://a.test/|"}, repository...), nil,
			[]string{"b.test:22 git project {p}/.git/config", "c.test:443 git project {p}/.git/config"}, nil},
		{"git, broken", append([]string{"{p}/.git/config: [remote \"a\"]|url = a.test:x|=|"}, repository...), nil,
			[]string{"a.test:22 git project {p}/.git/config"}, []string{`git: bad config line 3 in "{p}/.git/config"; what follows is left out`}},
		{"a file of the user's that lies in the project", []string{"{p}/e: GOPROXY=https://a.test|"}, []string{"GOENV={p}/e"}, []string{"a.test:443 go project {p}/e"}, nil},
		{"the same through a link", []string{"{p}/n: registry=https://a.test|", "{h}/.npmrc => ../p/n"}, nil, []string{"a.test:443 npm project {h}/.npmrc"}, nil},
		{"the same through a link in the project", []string{"{h}/n: registry=https://a.test|", "{p}/l => ../h", "{h}/.npmrc => ../p/l/n"}, nil, []string{"a.test:443 npm project {h}/.npmrc"}, nil},
		{"a tool that lies in the project", []string{"{p}/go/bin/go!", "{b}/go => ../p/go/bin/go", "{p}/go/go.env: GOPROXY=https://a.test|"}, nil,
			[]string{"a.test:443 go project {p}/go/go.env"}, []string{"go: no GOPROXY is configured"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBox(t, test.tree...)
			lines, notes := b.survey(true, test.env...)
			slices.Sort(lines)
			want := slices.Clone(test.want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "{p}/../", filepath.Dir(b.fill("{p}"))+"/")
			}
			assert.Equal(t, want, lines)
			require.Len(t, notes, len(test.notes), strings.Join(notes, "\n"))
			for i, want := range test.notes {
				assert.Contains(t, notes[i], want)
			}
			assert.NotContains(t, strings.Join(append(lines, notes...), "\n"), "secret")

			lines, _ = b.survey(false, test.env...)
			for _, line := range lines {
				assert.NotContains(t, line, " project ")
			}
			own := slices.DeleteFunc(want, func(line string) bool { return strings.Contains(line, " project ") })
			assert.ElementsMatch(t, own, lines, "without --project")
		})
	}
}

func TestWhatLiesInTheProjectIsNoted(t *testing.T) {
	_, notes := newBox(t, "{p}/e: GOPROXY=https://a.test|").survey(false, "GOENV={p}/e")
	assert.Equal(t, []string{`go: "{p}/e" lies in the project: --project prints what it names`}, notes)
}

// A home in the project does not make the home's files the project's: pk refuses such a root.
func TestHomeAsProject(t *testing.T) {
	b := newBox(t, "{h}/.npmrc: registry=https://a.test|")
	entries, notes := Survey(Machine{Home: b.fill("{h}"), Project: b.fill("{h}"), root: b.fill("{r}")}, func(string) bool { return true })
	assert.Empty(t, notes)
	require.Len(t, entries, 1)
	assert.Equal(t, User, entries[0].Sources[0].Level)
}

func TestToolsAreChosen(t *testing.T) {
	b := newBox(t)
	m := Machine{Home: b.fill("{h}"), root: b.fill("{r}"), Environ: []string{"GOPROXY=https://a.test", "PIP_INDEX_URL=https://b.test"}}
	entries, _ := Survey(m, func(tool string) bool { return tool == "pip" })
	require.Len(t, entries, 1)
	assert.Equal(t, "b.test", entries[0].Rule.Name)
	assert.True(t, slices.IsSorted(Tools()))
}

// TestBounds: the output for a hostile file is bounded.
func TestBounds(t *testing.T) {
	var many, wrong strings.Builder
	for i := range hostrule.MaxRules + 100 {
		fmt.Fprintf(&many, "@s%d:registry=https://h%d.test\n", i, i)
		fmt.Fprintf(&wrong, "@s%d:registry=https://%d\n", i, i)
	}
	b := newBox(t)
	require.NoError(t, os.WriteFile(b.fill("{h}/.npmrc"), []byte(many.String()), 0o644))
	lines, notes := b.survey(false)
	assert.Len(t, lines, hostrule.MaxRules)
	assert.Equal(t, []string{fmt.Sprintf(`npm: "{h}/.npmrc": more than %d hosts; left out`, hostrule.MaxRules)}, notes)

	require.NoError(t, os.WriteFile(b.fill("{h}/.npmrc"), []byte(wrong.String()), 0o644))
	lines, notes = b.survey(false)
	assert.Empty(t, lines)
	assert.Len(t, notes, maxNotes+1)
	assert.Equal(t, fmt.Sprintf("%d more, which are not printed", hostrule.MaxRules+100-maxNotes), notes[maxNotes])

	require.NoError(t, os.Truncate(b.fill("{h}/.npmrc"), maxFile+1))
	_, notes = b.survey(false)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], `npm: cannot read "{h}/.npmrc"`)
}

// FuzzParsers: the readers of other tools' files end, and their results are rules
// with one port.
func FuzzParsers(f *testing.F) {
	f.Add("[a]\nb = { c = \"https://a.test\" }\nd = [1, [2], { e = 1 }]\n")
	f.Add(":sources:\n- https://a.test\nURIs: http://b.test\n c\ndeb [x] http://d.test y\n")
	f.Add("a = \"\"\"\nx\n\"\"\"\n[[b.c]]\n'd e'.f = 'g' # h\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseTOML(text)
		deb822(text)
		pairs(text, true)
		gemSources(text)
		for line := range strings.Lines(text) {
			aptLine(line)
			s := &survey{found: map[string]*Entry{}}
			s.url(setting{value: line})
			s.remote(setting{value: line})
			s.module(setting{value: line})
			for _, e := range s.found {
				require.Len(t, e.Rule.Ports, 1)
				require.False(t, e.Rule.Private)
			}
		}
	})
}
