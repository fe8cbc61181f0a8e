package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A mutation is one change that breaks a promise.
type mutation struct {
	name     string
	promise  string // "P1" to "P16"
	dir      string // the package's folder, from the root of the module, with slashes
	function string // "(*acquisition).wait", or any declaration; see splitScript for scripts
	what     string // the fault in one sentence
	tests    tests  // the tests that should notice
	why      string // why nothing can notice; "": something must
	change   change
}

// A suite is all tests of one package.
type suite struct {
	race bool   // with the race detector
	pkg  string // "./memstore"
}

// tests are some of a suite.
type tests struct {
	suite
	run string // as for go test -run
}

var (
	heading  = regexp.MustCompile(`^(P[1-9]|P1[0-6]) ([\w-]+): (.+)$`)
	location = regexp.MustCompile(`^([\w./-]+) ([^:]+): (-race )?(?:(\./\S*|\.) )?(\S+)$`)
)

// parse reads a list. See list/README.md for the form.
func parse(text string) (all []mutation, err error) {
	var errs []error
	for _, block := range blocks(text) {
		m, err := parseOne(block)
		if err != nil {
			err = fmt.Errorf("%s: %w", block[0], err)
		}
		all, errs = append(all, m), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// blocks returns the lines of each mutation, without the tab in front.
func blocks(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		rest, indented := strings.CutPrefix(line, "\t")
		switch {
		case indented && len(all) > 0:
			all[len(all)-1] = append(all[len(all)-1], rest)
		case line != "" && line[0] != '#':
			all = append(all, []string{line})
		}
	}
	return all
}

// parseOne reads one mutation: the promise, the place, the change, and why nothing can notice.
func parseOne(lines []string) (m mutation, err error) {
	if last := len(lines) - 1; last > 0 {
		if why, ok := strings.CutPrefix(lines[last], "why: "); ok {
			m.why, lines = why, lines[:last]
		}
	}

	head := heading.FindStringSubmatch(lines[0])
	if head == nil || len(lines) < 3 {
		return m, errors.New("want a line \"P1 name: what is wrong\", one of the place and the tests, and the change")
	}

	where := location.FindStringSubmatch(lines[1])
	if where == nil {
		return m, fmt.Errorf("want \"folder function: tests\", not %q", lines[1])
	}

	m.promise, m.name, m.what = head[1], head[2], head[3]
	m.dir, m.function = where[1], where[2]

	// The tests are in the package of the folder unless the location names another package.
	race, pkg, run := where[3] != "", cmp.Or(where[4], "./"+m.dir), where[5]
	m.tests = tests{suite{race, pkg}, run}
	if m.tests.pkg == "./." {
		m.tests.pkg = "."
	}
	if _, err = regexp.Compile(m.tests.run); err != nil {
		return m, err
	}

	m.change, err = parseChange(strings.Join(lines[2:], "\n"))
	return m, err
}

// id tells changes apart, so that a verdict is never taken for a different change.
func (m *mutation) id() string {
	sum := sha256.Sum256(fmt.Append(nil, m.dir, "\x00", m.function, "\x00", m.change))
	return hex.EncodeToString(sum[:4])
}

// place names the function and where it is.
func (m *mutation) place() string {
	if m.dir == "." {
		return m.function
	}
	return m.dir + " " + m.function
}

// A change is a mutation's edit of one function.
type change struct {
	old, new string // new is "" if the old goes
	which    int    // of the places where the old stands, from 1 on, or 0 if there is only one place
}

var (
	numbered = regexp.MustCompile(`^#(\d+) `)
	arrow    = regexp.MustCompile(`\s->\s`)
)

// parseChange reads "drop: x" or "x -> y", perhaps with a number in front, as in "#2 x -> y".
func parseChange(text string) (c change, err error) {
	if n := numbered.FindStringSubmatch(text); n != nil {
		c.which, err = strconv.Atoi(n[1])
		text = text[len(n[0]):]
	}

	dropped, isDrop := strings.CutPrefix(text, "drop: ")
	at := arrow.FindStringIndex(text)
	switch {
	case isDrop:
		c.old = dropped
	case at != nil:
		c.old, c.new = text[:at[0]], text[at[1]:]
	}

	// There is no old text if the text has neither form, or nothing before the arrow. With two arrows it is ambiguous.
	if strings.TrimSpace(c.old) == "" || arrow.MatchString(c.new) {
		return c, fmt.Errorf("neither drop: x nor x -> y: %q", text)
	}

	return c, err
}
