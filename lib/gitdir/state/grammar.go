package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pikuri/lib/internal/gitplace"
	"pikuri/lib/internal/lazy"
)

// check checks the content of a file; old is the host's.
type check func(l *lander, data, old []byte) error

// rebaseMerge are the files of rebase-merge. It omits those that hold options for other
// programs: strategy_opts, gpg_sign_opt, trailer. Git takes an empty one for an option
// too: gpg_sign_opt makes it sign with the default key.
var rebaseMerge = map[string]check{
	"git-rebase-todo":           todo(rebaseCommands, true),
	"git-rebase-todo.backup":    todo(rebaseCommands, false),
	"done":                      todo(rebaseCommands, false),
	"dropped":                   todo(rebaseCommands, false),
	"msgnum":                    number,
	"end":                       number,
	"message":                   text,
	"message-squash":            text,
	"message-fixup":             text,
	"current-fixups":            lines(`(fixup|squash)( -[cC])? ID`),
	"author-script":             authorScript,
	"amend":                     head("commit"),
	"stopped-sha":               lines(`SHORT`),
	"patch":                     anything,
	"rewritten-list":            lines(`ID ID`),
	"rewritten-pending":         lines(`ID`),
	"squash-onto":               head("commit"),
	"refs-to-delete":            refsToDelete,
	"update-refs":               empty, // git would move these branches
	"interactive":               empty,
	"cdate_is_adate":            empty,
	"ignore_date":               empty,
	"orig-head":                 origin(true),
	"head":                      head("commit"),
	"verbose":                   empty,
	"quiet":                     empty,
	"signoff":                   word("--signoff"),
	"head-name":                 headName,
	"onto":                      head("commit"),
	"autostash":                 picked,
	"strategy":                  word("ort", "recursive"), // others are run as git-merge-NAME
	"allow_rerere_autoupdate":   word("--rerere-autoupdate", "--no-rerere-autoupdate"),
	"reschedule-failed-exec":    empty,
	"no-reschedule-failed-exec": empty,
	"drop_redundant_commits":    empty,
	"keep_redundant_commits":    empty,
}

// sequencer are the files of a cherry-pick or revert of several commits.
var sequencer = map[string]check{
	"todo":         todo(map[string]string{"pick": "commit", "p": "commit", "revert": "commit"}, true),
	"head":         origin(false),
	"abort-safety": abortSafety,
	"opts":         options,
}

// anything is a patch: git apply checks its paths, and it shows any bytes.
func anything(*lander, []byte, []byte) error { return nil }

// text is a message. Control characters can affect the user's terminal.
func text(_ *lander, data, _ []byte) error {
	for _, c := range data {
		if c < ' ' && !strings.ContainsRune("\t\n\r\f", rune(c)) || c == 0x7f {
			return fmt.Errorf("control character %#02x", c)
		}
	}
	return nil
}

// empty is for a file that is there, or a list without an entry.
func empty(_ *lander, data, _ []byte) error {
	if len(data) > 0 {
		return errors.New("it is not empty")
	}
	return nil
}

func word(words ...string) check {
	return func(_ *lander, data, _ []byte) error {
		if w := strings.TrimSuffix(string(data), "\n"); !slices.Contains(words, w) {
			return fmt.Errorf("unknown value %.40q", w)
		}
		return nil
	}
}

func number(_ *lander, data, _ []byte) error {
	if _, err := strconv.ParseUint(strings.TrimSuffix(string(data), "\n"), 10, 31); err != nil {
		return fmt.Errorf("no number: %.40q", data)
	}
	return nil
}

// head is one ID of an object that the host has.
func head(kind string) check {
	return func(l *lander, data, _ []byte) error {
		return l.object(strings.TrimSuffix(string(data), "\n"), kind)
	}
}

// origin is the commit to which giving up resets HEAD and its branch: no commit that they
// had when the command started is lost by that.
func origin(rebase bool) check {
	return func(l *lander, data, old []byte) error {
		id := strings.TrimSuffix(string(data), "\n")
		if err := l.object(id, "commit"); err != nil || bytes.Equal(data, old) {
			return err
		}
		if l.Follows == nil || !l.Follows(id, rebase) {
			return fmt.Errorf("commit %s lacks commits of the host's HEAD, which would be reset to it", id)
		}
		return nil
	}
}

// heads are IDs of commits, one on each line.
func heads(l *lander, data, _ []byte) error {
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	return eachLine(data, func(line string) error { return l.object(line, "commit") })
}

// abortSafety is the commit of HEAD, or empty if there was none.
func abortSafety(l *lander, data, _ []byte) error {
	if len(data) == 0 {
		return nil
	}
	return head("commit")(l, data, nil)
}

// commit is object, but also accepts an abbreviated ID, which git writes into the list of
// a cherry-pick. With apply, git will apply its changes, or with back take them back.
func (l *lander) commit(id string, apply, back bool) error {
	if len(id) >= 4 && len(id) < l.HexLen && isHex(id) && l.Whole != nil {
		id = l.Whole(id)
	}
	if err := l.object(id, "commit"); err != nil {
		return err
	}
	if apply && (l.Pick == nil || !l.Pick(id, back)) {
		return fmt.Errorf("commit %s, or the one before, has other versions of files that programs of the host run, or moves or removes a directory", id)
	}
	return nil
}

// picked is the ID of a commit whose changes git will apply.
func picked(l *lander, data, _ []byte) error {
	return l.commit(strings.TrimSuffix(string(data), "\n"), true, false)
}

// object checks that an ID is well formed and names an object of the host.
func (l *lander) object(id, kind string) error {
	if !l.isID(id) {
		return fmt.Errorf("no object ID: %.80q", id)
	}
	if l.Kind == nil || l.Exists == nil || !l.Exists(id) {
		return fmt.Errorf("the host has no object %s that it may check out", id)
	}
	if is, err := l.Kind(id); err != nil {
		return fmt.Errorf("object %s: %w", id, err)
	} else if is != kind {
		return fmt.Errorf("%s is a %s, not a %s", id, is, kind)
	}
	return nil
}

func (l *lander) isID(s string) bool { return len(s) == l.HexLen && isHex(s) }

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

// eachLine calls fn for each line. The last one may lack its newline.
func eachLine(data []byte, fn func(line string) error) error {
	if err := text(nil, data, nil); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		if err := fn(line); err != nil {
			return err
		}
	}
	return nil
}

// lines is a pattern for each line. ID is an object ID, SHORT the beginning of one.
// The object need not exist: git only passes the ID on to hooks of the host.
func lines(pattern string) check {
	pattern = strings.ReplaceAll(pattern, "ID", `([0-9a-f]{40}|[0-9a-f]{64})`)
	pattern = strings.ReplaceAll(pattern, "SHORT", `[0-9a-f]{4,64}`)
	re := lazy.Regexp(`^(?:` + pattern + `)$`)
	return func(_ *lander, data, _ []byte) error {
		return eachLine(data, func(line string) error {
			if !re().MatchString(line) {
				return fmt.Errorf("unknown line %.80q", line)
			}
			return nil
		})
	}
}

// rebaseCommands are the commands of a todo list that run no program, with the kind
// of their argument. Not among them: label, reset, merge and update-ref, which take any
// reference.
var rebaseCommands = map[string]string{
	"pick": "commit", "p": "commit",
	"revert": "commit",
	"reword": "commit", "r": "commit",
	"edit": "commit", "e": "commit",
	"squash": "commit", "s": "commit",
	"fixup": "fixup", "f": "fixup",
	"drop": "commit", "d": "commit",
	"noop": "", "break": "", "b": "",
}

// comments are the characters of which git chooses one to begin a comment with (core.commentChar). To a git that takes
// another one such a line is no command.
const comments = "#;@!$%^&|:"

// todo checks a list of commands. Git allows spaces before a command; git itself
// writes none. With apply, git will run them.
func todo(commands map[string]string, apply bool) check {
	return func(l *lander, data, _ []byte) error {
		return eachLine(data, func(line string) error {
			if line == "" || strings.IndexByte(comments, line[0]) >= 0 {
				return nil
			}
			command, rest, _ := strings.Cut(line, " ")
			kind, ok := commands[command]
			if !ok {
				return fmt.Errorf("the command %.40q", command)
			}
			if err := l.argument(kind, rest, apply, command == "revert"); err != nil {
				return fmt.Errorf("%.80q: %w", line, err)
			}
			return nil
		})
	}
}

// argument checks the argument of a command of a todo list.
func (l *lander) argument(kind, rest string, apply, back bool) error {
	first, more, _ := strings.Cut(rest, " ")
	switch kind {
	case "":
		if rest != "" {
			return errors.New("an argument")
		}
		return nil
	case "commit":
		return l.commit(first, apply, back)
	case "fixup":
		if first == "-C" || first == "-c" {
			first, _, _ = strings.Cut(more, " ")
		}
		return l.commit(first, apply, false)
	}
	return fmt.Errorf("internal error: an argument of kind %q", kind)
}

// label is a name below refs/rewritten.
func label(name string) error {
	if !gitplace.IsBranch(name) {
		return fmt.Errorf("bad label %q", name)
	}
	return nil
}

// branch is the full name of a branch.
func branch(ref string) error {
	name, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok || !gitplace.IsBranch(name) {
		return fmt.Errorf("%.80q is no branch", ref)
	}
	return nil
}

// headName is the branch that git moves when the rebase ends: the host has checked it out, or
// does not have it.
func headName(l *lander, data, old []byte) error {
	name := strings.TrimSuffix(string(data), "\n")
	if name == "detached HEAD" && l.Branch == "" {
		return nil
	}
	if err := branch(name); err != nil {
		return err
	}
	if name != l.Branch && !bytes.Equal(data, old) && (l.Fresh == nil || !l.Fresh(name)) {
		return fmt.Errorf("the host has not checked out %q", name)
	}
	return nil
}

// refsToDelete are refs that git deletes when the rebase ends.
func refsToDelete(_ *lander, data, _ []byte) error {
	return eachLine(data, func(line string) error {
		name, ok := strings.CutPrefix(line, "refs/rewritten/")
		if !ok {
			return fmt.Errorf("%.80q is no label", line)
		}
		return label(name)
	})
}

// quoted is a word in single quotes, as git's sq_quote writes it.
const quoted = `'(?:[^']|'\\['!]')*'`

var (
	authorPattern = lazy.Regexp(`^GIT_AUTHOR_NAME=` + quoted + "\n" + `GIT_AUTHOR_EMAIL=` + quoted + "\n" + `GIT_AUTHOR_DATE='[-+@:,A-Za-z0-9 ]*'` + "\n?$")
	namesPattern  = lazy.Regexp(`^(?: ` + quoted + `)*\n?$`)
	logPattern    = lazy.Regexp(`^git[ -]bisect ([A-Za-z0-9._-]+)( (` + quoted + `|[-=A-Za-z0-9._/]+))*$`)
	termPattern   = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	fetchPattern  = lazy.Regexp(`^([0-9a-f]+)\t(?:not-for-merge)?\t.*$`)
	optionPattern = lazy.Regexp(`^\t([a-z-]+) = ([a-z0-9]+)$`)
)

// authorScript has the form of a shell script, but git parses it by itself.
func authorScript(_ *lander, data, _ []byte) error {
	if err := text(nil, data, nil); err != nil {
		return err
	}
	if !authorPattern().Match(data) {
		return errors.New("it is not what git writes")
	}
	return nil
}

// flags are the options of a cherry-pick or revert with a boolean value. Not among
// them: strategy, strategy-option and gpg-sign, which name programs or keys.
var flags = []string{
	"no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "keep-redundant-commits",
	"signoff", "record-origin", "allow-ff", "allow-rerere-auto",
}

// options is a file that git reads as configuration.
func options(_ *lander, data, _ []byte) error {
	return eachLine(data, func(line string) error {
		if line == "[options]" {
			return nil
		}
		m := optionPattern().FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("unknown line %.80q", line)
		}
		key, value := m[1], m[2]
		_, err := strconv.ParseUint(value, 10, 31)
		switch {
		case slices.Contains(flags, key) && (err == nil || value == "true" || value == "false"):
			return nil
		case key == "mainline" && err == nil:
			return nil
		case key == "default-msg-cleanup" && slices.Contains([]string{"verbatim", "whitespace", "strip", "scissors"}, value):
			return nil
		}
		return fmt.Errorf("unknown option %.80q", line)
	})
}

// bisectStart is the branch or commit that `git bisect reset` checks out: that of the host's
// HEAD.
func bisectStart(l *lander, data, old []byte) error {
	name := strings.TrimSuffix(string(data), "\n")
	switch {
	case len(old) > 0 && bytes.Equal(data, old):
		return nil
	case l.isID(name) && l.Follows != nil && l.Follows(name, true):
		return l.object(name, "commit")
	case l.Branch != "refs/heads/"+name:
		return fmt.Errorf("the host has not checked out %.80q", name)
	}
	return branch(l.Branch)
}

// bisectTerms are the words for bad and good. They must not be commands of git bisect.
func bisectTerms(_ *lander, data, _ []byte) error {
	var terms []string
	err := eachLine(data, func(line string) error {
		if terms = append(terms, line); !termPattern().MatchString(line) || slices.Contains(bisectCommands, line) {
			return fmt.Errorf("bad term %.40q", line)
		}
		return nil
	})
	if err == nil && (len(terms) != 2 || terms[0] == terms[1]) {
		err = errors.New("they are not two terms")
	}
	return err
}

var bisectCommands = []string{"help", "start", "skip", "next", "reset", "visualize", "view", "replay", "log", "run", "terms", "state"}

// bisectNames are quoted pathspecs.
func bisectNames(_ *lander, data, _ []byte) error {
	if err := text(nil, data, nil); err != nil {
		return err
	}
	if !namesPattern().Match(data) {
		return errors.New("it is not what git writes")
	}
	return nil
}

// bisectLog are commands for `git bisect replay`, except run, which takes a program.
func bisectLog(_ *lander, data, _ []byte) error {
	return eachLine(data, func(line string) error {
		if line == "" || line[0] == '#' {
			return nil
		}
		m := logPattern().FindStringSubmatch(line)
		if m == nil || slices.Contains([]string{"run", "replay", "reset", "visualize", "view"}, m[1]) {
			return fmt.Errorf("unknown line %.80q", line)
		}
		return nil
	})
}

func fetchHead(l *lander, data, _ []byte) error {
	return eachLine(data, func(line string) error {
		m := fetchPattern().FindStringSubmatch(line)
		if m == nil || !l.isID(m[1]) {
			return fmt.Errorf("unknown line %.80q", line)
		}
		// It is the work of others, so the host may have it if it is not clean, too.
		if l.Kind == nil {
			return errors.New("the host has no objects")
		}
		if kind, err := l.Kind(m[1]); err != nil || kind == "" {
			return fmt.Errorf("the host has no object %s", m[1])
		}
		if l.Fetched != nil {
			if why := l.Fetched(m[1]); why != "" {
				return errors.New(why)
			}
		}
		return nil
	})
}
