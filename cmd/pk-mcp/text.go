package main

// These texts are for the model.

const bashText = `- A command that takes longer than 45 s runs on, and the call comes back with a shell_id: bash_output reads on, bash_kill ends it.
- Start servers and watchers with run_in_background. Only then, or with tty, is there a standard input.
`

const outputText = `Read what a command that still runs, or has ended, has printed since it was last read. Waits for output, or the end.`

const inputText = `Type into a command that was started with run_in_background or tty, and read what it prints then.`

const killText = `End a command and all that it has started, or send it a signal.`

const listJobsText = `List the commands that still run.`

const readText = `Read a text file, with line numbers.`

const writeText = `Write a file: a new one, or in the place of one that is there. Missing directories are made. Readers find the old content or the new.`

const editText = `Replace old_string by new_string in a file. It has to be there exactly as given, and once, unless replace_all is true. The result is the difference.`

const listText = `List a directory, with sizes.`

const globText = `Find files by their paths.`

const grepText = `Search in files. What .gitignore names is left out, as are .git and files that are not text.`

// instructions are for the model, beside the tools.
func (s *server) instructions() string {
	places := ""
	for _, r := range s.roots {
		if r.Writable && !s.isTmp(r) {
			places += r.Path + ", "
		}
	}
	return "Commands and files are fenced in. They can change " + places + "and /tmp, which all tools share, and nothing else. " +
		"Relative paths of the file tools begin at " + s.root + "."
}
