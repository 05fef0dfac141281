package bwrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EnvPolicy selects the caller's variables for the sandbox. The zero value passes
// variables that carry neither code nor secrets.
type EnvPolicy struct {
	Usual   []Var    // if the caller does not set them; the first of a name counts
	Caller  []string // NAME=VALUE, as from os.Environ
	Inherit bool     // pass all variables
	Pass    []string // names of variables that are passed whatever they carry
	Set     []string // NAME=VALUE, added last
}

// codeNames are variables that make a program run or load code: the shell's start-up
// files, the dynamic linker, the interpreters' own options.
var codeNames = words(`BASH_ENV ENV SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND CDPATH GLOBIGNORE
	GCONV_PATH GLIBC_TUNABLES NLSPATH LESSOPEN LESSCLOSE
	NODE_OPTIONS NODE_PATH PYTHONSTARTUP PYTHONPATH PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT
	PERL5OPT PERL5LIB PERL5DB PERLLIB RUBYOPT RUBYLIB
	JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH
	RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER MAKEFLAGS MFLAGS GNUMAKEFLAGS
	LUA_INIT PHPRC PHP_INI_SCAN_DIR PYTHONUSERBASE ZDOTDIR npm_config_node_options npm_config_script_shell`)

// hostNames lead to services, terminals and files of the host: they name sockets that are
// missing inside, or secrets.
var hostNames = words(`KUBECONFIG CONTAINER_HOST XAUTHORITY DISPLAY WAYLAND_DISPLAY KRB5CCNAME
	NETRC SSHPASS PGPASSFILE PGSERVICEFILE BOTO_CONFIG CLOUDSDK_CONFIG STY INVOCATION_ID JOURNAL_STREAM NOTIFY_SOCKET
	OLDPWD PWD TMPDIR TMP TEMP XDG_RUNTIME_DIR`)

// droppedPrefixes are families of both kinds.
var droppedPrefixes = words(`LD_ BASH_FUNC_ GIT_ AWS_ AZURE_ DOCKER_ SSH_ DBUS_ GPG_ TMUX VSCODE_
	XDG_SESSION_ SUDO_ LISTEN_ PK_`)

// gitIdentity is the part of GIT_ that names the author and the committer.
var gitIdentity = words(`GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE
	GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE`)

// secretWords mark a secret if they are one of a name's words (between underscores);
// secretParts do so anywhere in the name.
var (
	secretWords = words(`KEYS AUTH AUTHORIZATION BEARER JWT PASS PWD PAT COOKIE COOKIES CREDS DSN SESSION SK`)
	secretParts = words(`TOKEN SECRET PASSW PASSPHRASE PASSCOMMAND PASSCMD PASSCODE PASSFILE CREDENTIAL PRIVATE WEBHOOK
		CONNECTIONSTRING CONNECTION_STRING CONNSTR`)
)

// codeParts mark a value as code, under any name: agents of the Java machine, and
// programs that wrap those of a build.
var codeParts = words(`-javaagent: -agentlib: -agentpath: -toolexec -XX:OnError -XX:OnOutOfMemoryError`)

// secretMarks are the first words of private keys, and their name in JSON.
var secretMarks = []string{"PRIVATE KEY-----", `"private_key"`}

// secretStarts begin the tokens of services that mark theirs, the headers that carry one,
// and JSON Web Tokens (RFC 7519), whose first part begins with {" in base64.
var secretStarts = append(words(`ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glptt- glsa_ npm_ pypi- rubygems_ hf_
	xoxb- xoxp- xoxa- xoxs- xoxe- xoxe. xapp- sk-ant- sk-proj- sk-svcacct- sk-or-v1- sk_live_ rk_live_ sk_test_ rk_test_ whsec_
	AKIA ASIA AIza ya29. eyJ dop_v1_ doo_v1_ dor_v1_ hvs. hvb. hvr. SG. dckr_pat_ dckr_oat_ gsk_ xai- pplx- r8_ nvapi- sbp_ sb_secret_
	shpat_ shpca_ shppa_ shpss_ ATATT3 ATCTT3 ATBB lin_api_ lin_oauth_ tskey- figd_ ops_eyJ AGE-SECRET-KEY- sntrys_ sntryu_
	pscale_tkn_ pscale_pw_ dp.st. dp.pt. pul- PMAK- NRAK- ntn_`), "Bearer ", "Basic ", "FlyV1 ")

// webhooks begin addresses whose rest is a secret.
var webhooks = words(`hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/ discord.com/api/webhooks/
	discordapp.com/api/webhooks/ webhook.office.com/webhookb2/ api.telegram.org/bot`)

// secretFields end the names of secrets in connection strings, addresses, options and JSON,
// and passwordFields those of secrets that people choose, which can be short.
var (
	secretFields   = words(`token secret api_key apikey api-key accesskey accountkey signature sig`)
	passwordFields = words(`password passwd passphrase pwd`)
)

// Least lengths of a secret, without its mark: a shorter one is a placeholder, or a word.
const (
	leastToken    = 20
	leastField    = 8
	leastPassword = 4
)

// bundlerPlain are settings of Bundler with a name of their own. In others "__" stands for a dot: the
// name is a host, and the value its credentials (bundle-config(1)).
var bundlerPlain = words(`BUNDLE_BUILD__ BUNDLE_LOCAL__ BUNDLE_MIRROR__`)

// ownNames are set by pk, and the caller's value is not passed on.
var ownNames = words(`TMPDIR`)

func words(list string) []string { return strings.Fields(list) }

// dropped returns the reason why a variable is dropped, or "".
func dropped(name, value string) string {
	upper := strings.ToUpper(name)
	switch {
	case slices.Contains(gitIdentity, name):
		return ""
	case slices.Contains(codeNames, name):
		return "carries code"
	case slices.Contains(hostNames, name):
		return "leads to the host"
	case begins(name, droppedPrefixes):
		return "carries code, or leads to the host"
	case slices.ContainsFunc(strings.Split(upper, "_"), func(w string) bool { return slices.Contains(secretWords, w) }),
		slices.ContainsFunc(secretParts, func(p string) bool { return strings.Contains(upper, p) }),
		strings.HasSuffix(upper, "KEY"), strings.Contains(upper, "_KEY_"),
		strings.HasPrefix(name, "BUNDLE_") && strings.Contains(name, "__") && !begins(name, bundlerPlain):
		return "is named like a secret"
	case holds(value, codeParts):
		return "carries code"
	case hasPassword(value), hasSecretField(value), holds(value, secretMarks), isToken(value), isWebhook(value):
		return "holds a secret"
	}
	return ""
}

func isToken(value string) bool { return len(value) >= leastToken && begins(value, secretStarts) }

func isWebhook(value string) bool {
	return slices.ContainsFunc(webhooks, func(mark string) bool {
		_, rest, _ := strings.Cut(value, mark)
		return len(rest) >= leastToken
	})
}

func begins(text string, starts []string) bool {
	return slices.ContainsFunc(starts, func(p string) bool { return strings.HasPrefix(text, p) })
}

func holds(value string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(value, p) })
}

// hasPassword finds an address with a user name or password before its host:
// scheme://user:password@host, scheme://token@host, user:password@host. A password may
// hold slashes, so it searches up to the next blank.
func hasPassword(value string) bool {
	for _, word := range strings.Fields(value) {
		before, _, found := strings.Cut(word, "@")
		if !found {
			continue
		}
		_, user, hasScheme := strings.Cut(before, "://")
		name, password, hasPassword := strings.Cut(before, ":")
		if hasScheme && user != "" || hasPassword && name != "" && password != "" && !strings.Contains(name, "/") {
			return true
		}
	}
	return false
}

// hasSecretField finds the value of a secret by its name before "=", or in quotes before ":":
// Server=db;Password=hunter2, https://host/?token=0123abcd, {"api_key": "0123abcd"}.
func hasSecretField(value string) bool {
	lower := strings.ToLower(value)
	for i := range len(lower) {
		if lower[i] != '=' && lower[i] != ':' {
			continue
		}
		name := strings.TrimRight(lower[:i], " ")
		quoted := strings.TrimRight(name, `"'`)
		if lower[i] == ':' && quoted == name {
			continue
		}
		least := 0
		switch {
		case ends(quoted, passwordFields):
			least = leastPassword
		case ends(quoted, secretFields):
			least = leastField
		default:
			continue
		}
		rest := strings.TrimLeft(lower[i+1:], " ")
		stops := ";&\"'\n"
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
			rest, stops = rest[1:], rest[:1]
		}
		if end := strings.IndexAny(rest, stops); end >= 0 {
			rest = rest[:end]
		}
		if len(rest) >= least {
			return true
		}
	}
	return false
}

func ends(text string, ends []string) bool {
	return slices.ContainsFunc(ends, func(p string) bool { return strings.HasSuffix(text, p) })
}

// CarriesCode tells whether a variable can make programs load code, run it, or find other
// programs than the intended ones: PATH does the last.
func CarriesCode(name, value string) bool {
	return name == "PATH" || strings.HasPrefix(dropped(name, value), "carries code")
}

// Environ applies the policy for a command outside a sandbox. The list is sorted by name,
// and never nil: with nil, os/exec passes the whole environment.
func (p EnvPolicy) Environ() ([]string, error) {
	vars, err := p.environ(nil)
	env := []string{}
	for _, v := range vars {
		if !v.Dropped {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env, err
}

// environ applies the policy. Variables that pk sets (the home, the scratch
// directory, the committer) come before those that the caller sets by option.
func (p EnvPolicy) environ(own []string) ([]Var, error) {
	for _, name := range p.Pass {
		if name == "" || strings.ContainsAny(name, "=, \t\n") {
			return nil, &Refusal{Reason: fmt.Sprintf("cannot pass %q of the environment: it is no name", name), Advice: "write --pass-env NAME, once for each variable"}
		}
	}
	env := map[string]Var{}
	for _, v := range p.Usual {
		if _, said := env[v.Name]; !said {
			env[v.Name] = v
		}
	}
	for _, kv := range p.Caller {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			v := p.judge(name, value)
			if _, usual := env[name]; !usual || !v.Dropped {
				env[name] = v
			}
		}
	}
	for _, kv := range own {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = Var{Name: name, Value: value, Rule: "default: set by pk"}
	}
	for _, kv := range p.Set {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, &Refusal{Reason: fmt.Sprintf("cannot set %q in the environment", kv), Advice: "write --setenv NAME=VALUE"}
		}
		env[name] = Var{Name: name, Value: value, Rule: "option --setenv"}
	}
	list := slices.Collect(maps.Values(env))
	slices.SortFunc(list, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// callers is the rule by which most variables are passed.
const (
	callers   = "default: the caller's"
	inherited = "option --env-inherit"
)

// isProxy reports whether programs use a variable as the address of a proxy, or as the
// hosts to reach without one.
func isProxy(name string) bool {
	return slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"}, strings.ToUpper(name))
}

// judge decides about one variable of the caller's.
func (p EnvPolicy) judge(name, value string) Var {
	why := dropped(name, value)
	switch {
	case why == "":
		return Var{Name: name, Value: value, Rule: callers}
	case slices.Contains(p.Pass, name):
		return Var{Name: name, Value: value, Rule: "option --pass-env"}
	case p.Inherit:
		return Var{Name: name, Value: value, Rule: inherited}
	}
	return Var{Name: name, Dropped: true, Rule: "default: it " + why}
}

// lookupEnv returns the value of name in a list of NAME=VALUE.
func lookupEnv(env []string, name string) string {
	for _, kv := range env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			return value
		}
	}
	return ""
}
