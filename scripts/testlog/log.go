package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one line of `go test -json`, as described by `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// log turns the events of one run into lines and results.
type log struct {
	row     string
	out     io.Writer
	tests   map[string]*test // by package and name
	results []result
}

// test is a test that has not ended yet.
type test struct{ output strings.Builder }

// read prints the run and collects its results. A line that is no event is
// passed on as it is: a program that could not start printed it.
func (l *log) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprintln(l.out, strings.TrimSuffix(line, "\n"))
		default:
			l.add(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *log) add(e event) {
	switch {
	case e.Action == "output" && e.Test != "":
		l.test(e).output.WriteString(e.Output)
	case e.Action == "output" || e.Action == "build-output":
		l.printPackageLine(e)
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
	case e.Test != "":
		l.endTest(e)
	default:
		l.endPackage(e)
	}
}

func (l *log) test(e event) *test {
	key := e.Package + "\t" + e.Test
	if l.tests[key] == nil {
		l.tests[key] = &test{}
	}
	return l.tests[key]
}

// printPackageLine prints output outside of tests. The bare PASS is dropped,
// as `go test` does.
func (l *log) printPackageLine(e event) {
	if e.Output != "PASS\n" {
		fmt.Fprint(l.out, e.Output)
	}
}

// endTest shows the output of a failed test; that of the others is dropped.
func (l *log) endTest(e event) {
	if e.Action == "fail" {
		fmt.Fprint(l.out, withoutProgress(l.test(e).output.String()))
	}
	delete(l.tests, e.Package+"\t"+e.Test)
	l.results = append(l.results, result{e.Action, l.row, e.Package, e.Test})
}

// withoutProgress drops the lines that only name the running test.
func withoutProgress(output string) string {
	var kept strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "=== ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// endPackage shows the output of tests that never ended, and counts a
// package that failed without a failing test (it did not compile, or crashed)
// as one failure.
func (l *log) endPackage(e event) {
	for key, t := range l.tests {
		if strings.HasPrefix(key, e.Package+"\t") {
			fmt.Fprint(l.out, withoutProgress(t.output.String()))
			delete(l.tests, key)
		}
	}
	if e.Action == "fail" && !l.hasFailure(e.Package) {
		l.results = append(l.results, result{"fail", l.row, e.Package, ""})
	}
	// Under a row it is a bare test binary that ran, and the line that
	// `go test` ends with is missing.
	if l.row != "" {
		word := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "ok  "}[e.Action]
		fmt.Fprintf(l.out, "%s\t%s\t%.3fs\t[%s]\n", word, e.Package, e.Elapsed, l.row)
	}
}

func (l *log) hasFailure(pkg string) bool {
	for _, r := range l.results {
		if r.status == "fail" && r.pkg == pkg {
			return true
		}
	}
	return false
}
