package shell

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// JoinWords makes a line for a shell of words: SplitWords returns them again.
func JoinWords(words []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,@%"
	quoted := make([]string, len(words))
	for i, word := range words {
		if quoted[i] = word; word == "" || strings.Trim(word, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// SplitWords splits text into words as a shell does, and expands nothing: quotes
// and backslashes keep characters together, and $, *, ~ are themselves. Characters
// that would make more than one command of it in a shell are refused unless quoted.
func SplitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inside := false // a word, which may be empty
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == 0:
			return nil, errors.New("it holds a NUL byte")
		case c == ' ' || c == '\t' || c == '\n':
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
			continue
		case strings.IndexByte(";&|<>()`", c) >= 0:
			return nil, fmt.Errorf("%q has no meaning here: quote it", c)
		case c == '\\' && i+1 == len(text):
			return nil, errors.New("nothing follows the last backslash")
		case c == '\\':
			i++
			if text[i] != '\n' { // as in a shell, the two together are nothing
				word.WriteByte(text[i])
			}
		case c == '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			word.WriteString(text[i+1 : i+1+end])
			i += 1 + end
		case c == '"':
			n, err := doubleQuoted(&word, text[i+1:])
			if err != nil {
				return nil, err
			}
			i += n
		default:
			word.WriteByte(c)
		}
		inside = true
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}

// doubleQuoted writes the text between double quotes, and returns how many bytes
// that was with the second quote. A backslash is one before ", \, $, ` and the
// end of a line only.
func doubleQuoted(word *strings.Builder, text string) (int, error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\' && i+1 < len(text) && strings.IndexByte("\"\\$`\n", text[i+1]) >= 0:
			i++
			if text[i] != '\n' {
				word.WriteByte(text[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, errors.New("a quote is not closed")
}

// Quote returns word as a POSIX shell reads it back.
func Quote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// joiners are programs that join their arguments with blanks, for a shell on the other
// side to split.
var joiners = []string{"ssh", "autossh", "rsh", "remsh"}

// Wrapped prepares bash behind another program: prefix, then bash and its
// arguments. For ssh they are quoted, since a shell reads them there.
func Wrapped(prefix []string, command, dir string) (*exec.Cmd, error) {
	if len(command) > maxArgument {
		return nil, errors.New(tooLong(command, maxArgument))
	}
	path, err := exec.LookPath(prefix[0])
	if err != nil {
		return nil, fmt.Errorf("cannot find %q in PATH", prefix[0])
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	args := Argv(command)
	for _, name := range joiners {
		if filepath.Base(prefix[0]) == name {
			for i := range args {
				args[i] = Quote(args[i])
			}
		}
	}
	return &exec.Cmd{Path: path, Args: append(append([]string(nil), prefix...), args...), Dir: dir, Env: Environ()}, nil
}
