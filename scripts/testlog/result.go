package main

import (
	"fmt"
	"strings"
)

// result is the result of one test in one row. A test without a name is a package
// that failed as a whole.
type result struct{ status, row, pkg, test string }

func (r result) String() string {
	return strings.Join([]string{r.status, r.row, r.pkg, r.test}, "\t")
}

func parseResults(text string) ([]result, error) {
	var all []result
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("not a result: %q", line)
		}
		switch f[0] {
		case "pass", "fail", "skip":
			all = append(all, result{f[0], f[1], f[2], f[3]})
		default:
			return nil, fmt.Errorf("not a status: %q", f[0])
		}
	}
	return all, nil
}

// counts is the tally, with the failures and skips by name.
type counts struct {
	passed, failed, skipped int
	named                   []string
}

func (c counts) String() string {
	s := fmt.Sprintf("%d passed, %d failed", c.passed, c.failed)
	if c.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return s
}

// count counts every pass and every failure of a test in a row. A test that is
// made of subtests is not counted beside them, unless it failed by itself. A
// test counts as skipped, once, when no row ran it.
func count(all []result) counts {
	parents, blamed, ran := map[result]bool{}, map[result]bool{}, map[result]bool{}
	for _, r := range all {
		for _, p := range above(r) {
			parents[p] = true
			blamed[p] = blamed[p] || r.status == "fail"
		}
		if r.status != "skip" {
			ran[r.anywhere()] = true
		}
	}
	var c counts
	for _, r := range all {
		switch where := (result{row: r.row, pkg: r.pkg, test: r.test}); {
		case r.status == "fail" && !blamed[where]:
			c.failed++
			c.named = append(c.named, "failed: "+r.name())
		case parents[where]:
		case r.status == "pass":
			c.passed++
		case r.status == "skip" && !ran[r.anywhere()]:
			ran[r.anywhere()] = true // once is enough
			c.skipped++
			c.named = append(c.named, "skipped: "+r.anywhere().name())
		}
	}
	return c
}

// anywhere is the test, in any row and with any result.
func (r result) anywhere() result { return result{pkg: r.pkg, test: r.test} }

// name is the name of the test in the tally.
func (r result) name() string {
	name := strings.TrimSpace(r.pkg + " " + r.test)
	if r.row != "" {
		name += " [" + r.row + "]"
	}
	return name
}

// above names the tests that r is a subtest of, in its row.
func above(r result) []result {
	var tests []result
	for i := range len(r.test) {
		if r.test[i] == '/' {
			tests = append(tests, result{row: r.row, pkg: r.pkg, test: r.test[:i]})
		}
	}
	return tests
}
