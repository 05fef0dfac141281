// Testlog reads the output of `go test -json` and `go tool test2json`, prints
// that of a plain `go test`, and counts the tests.
//
//	testlog -results FILE [-row ROW] <EVENTS    print a run and append its results to FILE
//	testlog -tally FILE...                      name failures and skips, then print "N passed, N failed, N skipped"
//
// A line of a results file is STATUS<TAB>ROW<TAB>PACKAGE<TAB>TEST, where STATUS
// is pass, fail or skip. A row is one of several runs of the same tests, under
// different circumstances. Scripts append lines of their own.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run returns 0 when everything passed, 1 when something failed and 2 when it
// was called wrongly or could not read or write.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testlog", flag.ContinueOnError)
	flags.SetOutput(stderr)
	tally := flags.Bool("tally", false, "count the results in the given files")
	results := flags.String("results", "", "append results to this `file`")
	row := flags.String("row", "", "what to call this run of the tests")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	var failed bool
	var err error
	switch {
	case *tally && *results == "" && flags.NArg() > 0:
		failed, err = printTally(flags.Args(), stdout)
	case !*tally && *results != "" && flags.NArg() == 0:
		failed, err = printRun(stdin, stdout, *results, *row)
	default:
		err = fmt.Errorf("either -tally FILE... or -results FILE is needed")
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "testlog: %v\n", err)
		return 2
	case failed:
		return 1
	}
	return 0
}

func printRun(stdin io.Reader, stdout io.Writer, file, row string) (failed bool, err error) {
	l := &log{row: row, out: stdout, tests: map[string]*test{}}
	if err := l.read(stdin); err != nil {
		return false, err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return false, err
	}
	for _, r := range l.results {
		fmt.Fprintln(f, r)
		failed = failed || r.status == "fail"
	}
	return failed, f.Close()
}

func printTally(files []string, stdout io.Writer) (failed bool, err error) {
	var all []result
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return false, err
		}
		some, err := parseResults(string(b))
		if err != nil {
			return false, fmt.Errorf("cannot read %q: %w", name, err)
		}
		all = append(all, some...)
	}
	c := count(all)
	for _, line := range c.named {
		fmt.Fprintln(stdout, line)
	}
	_, err = fmt.Fprintln(stdout, c)
	return c.failed > 0, err
}
