package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// A mutation is one change that breaks a promise.
type mutation struct {
	name    string
	promise string // "P1" to "P15"
	file    string // from the root of the module, with slashes
	what    string // what is wrong then: one sentence
	tests   tests  // those that should notice
	why     string // why nothing can notice; "": something must
	from    string // text that the file has once
	to      string
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

// parse reads a list: mutations with blank lines between, comments with a # in
// front. See list/README.md for the form.
func parse(text string) (all []mutation, err error) {
	var errs []error
	for _, block := range strings.Split(text, "\n\n") {
		m, err := parseOne(block)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cmp.Or(m.name, "a mutation without a name"), err))
		} else if m.name != "" {
			all = append(all, m)
		}
	}
	return all, errors.Join(errs...)
}

// parseOne reads one mutation; one without a name is nothing but comments.
func parseOne(block string) (m mutation, err error) {
	var from, to []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			from = append(from, strings.TrimPrefix(line[1:], " "))
		case line[0] == '+':
			to = append(to, strings.TrimPrefix(line[1:], " "))
		default:
			err = errors.Join(err, m.set(line))
		}
	}
	m.from, m.to = strings.Join(from, "\n"), strings.Join(to, "\n")
	if m != (mutation{}) {
		err = errors.Join(err, m.check())
	}
	return m, err
}

// set reads one field.
func (m *mutation) set(line string) error {
	field, value, _ := strings.Cut(line, ": ")
	switch field {
	case "name":
		m.name = value
	case "promise":
		m.promise = value
	case "file":
		m.file = value
	case "what":
		m.what = value
	case "why":
		m.why = value
	case "tests":
		words := strings.Fields(value)
		if m.tests.race = words[0] == "-race"; m.tests.race {
			words = words[1:]
		}
		if len(words) != 2 {
			return errors.New("tests: want a package and a pattern")
		}
		m.tests.pkg, m.tests.run = words[0], words[1]
	default:
		return fmt.Errorf("a line that means nothing: %q", line)
	}
	return nil
}

var promises = regexp.MustCompile(`^P([1-9]|1[0-5])$`)

func (m *mutation) check() error {
	_, err := regexp.Compile(m.tests.run)
	switch {
	case err != nil:
		return err
	case m.name == "" || m.file == "" || m.what == "" || m.tests.run == "":
		return errors.New("name, promise, file, what and tests are all needed")
	case !promises.MatchString(m.promise):
		return fmt.Errorf("no promise: %q", m.promise)
	case m.from == "" || m.from == m.to:
		return errors.New("it changes nothing")
	}
	return nil
}

// apply returns the file's text with the change.
func (m *mutation) apply(text string) (string, error) {
	if n := strings.Count(text, m.from); n != 1 {
		return "", fmt.Errorf("%s: %s has the old text %d times, not once", m.name, m.file, n)
	}
	return strings.Replace(text, m.from, m.to, 1), nil
}

// id tells changes apart, so that nobody takes what was seen of one for another.
func (m *mutation) id() string {
	sum := sha256.Sum256([]byte(m.file + "\x00" + m.from + "\x00" + m.to))
	return hex.EncodeToString(sum[:4])
}
