package gitconfig

import (
	"bytes"
	"strings"
)

// splitKey takes the key of an entry apart. A section without a name in quotes has no
// sub.
func splitKey(key string) (section, sub, name string, hasSub bool) {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return "", "", key, false
	}
	if first == last {
		return key[:first], "", key[last+1:], false
	}
	return key[:first], key[first+1 : last], key[last+1:], true
}

// sectionOf is the key without the name: "remote.origin".
func sectionOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// Format writes entries, whose keys are variables, so that git and Parse read the same
// back.
func Format(entries []Entry) []byte {
	var b bytes.Buffer
	section := ""
	for _, e := range entries {
		if s := sectionOf(e.Key); s != section {
			section = s
			b.WriteString(formatHeader(e.Key))
		}
		b.WriteString(formatLine(e))
	}
	return b.Bytes()
}

func formatHeader(key string) string {
	section, sub, _, hasSub := splitKey(key)
	if !hasSub {
		return "[" + section + "]\n"
	}
	return "[" + section + ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(sub) + "\"]\n"
}

func formatLine(e Entry) string {
	_, _, name, _ := splitKey(e.Key)
	if e.NoValue {
		return "\t" + name + "\n"
	}
	return "\t" + name + " = " + quote(e.Value) + "\n"
}

// quote leaves a plain value as it is, also for the tools that read git's files with
// a pattern.
func quote(value string) string {
	plain := strings.Trim(value, " ") == value
	for i := range len(value) {
		plain = plain && value[i] >= ' ' && value[i] != 0x7f && strings.IndexByte("\"\\#;", value[i]) < 0
	}
	if plain {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value) + `"`
}
