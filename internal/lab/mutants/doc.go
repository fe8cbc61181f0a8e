// Mutants breaks the library on purpose, one function at a time, and sees whether
// the tests notice. Each mutation of list/ says which promise it breaks, which code it
// changes in the syntax of which function, and which tests should be red;
// docs/measurements/mutants.txt has the last verdict on each.
//
//	go run ./internal/lab/mutants                      all of them
//	go run ./internal/lab/mutants -run 'P11|lease' -list some of them, only named
//	go run ./internal/lab/mutants -write               and keep the verdicts
//	go run ./internal/lab/mutants -table               the kept verdicts, by promise
//
// It works in a copy of the tree, so nothing is ever broken where it is run. It
// fails if a mutation survives that is not explained, if one does not compile, or
// if the tests are red before anything is broken.
package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// recordFile keeps the last verdict on each mutation, a line each.
const recordFile = "docs/measurements/mutants.txt"

// A record is one line of recordFile.
type record struct {
	id      string // of the change; see mutation.id
	verdict verdict
	by      string
}

// records returns the kept verdicts by the name of the mutation: none if there is no recordFile.
func records(root string) (map[string]record, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(recordFile)))
	if os.IsNotExist(err) {
		err = nil
	}

	kept := make(map[string]record)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t") // name, id, verdict, time, test
		if len(f) != 5 {
			return nil, fmt.Errorf("%s: a line of %d fields, not 5", recordFile, len(f))
		}
		kept[f[0]] = record{f[1], verdict(f[2]), f[4]}
	}

	return kept, err
}

// table returns what became of every mutation, in Markdown, by promise.
func table(all []mutation, kept map[string]record) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b mutation) int { return cmp.Compare(number(a.promise), number(b.promise)) })
	count := make(map[verdict]int)

	var rows strings.Builder
	for _, m := range all {
		r := kept[m.name]
		if r.id != m.id() {
			r.verdict = unseen
		}

		count[r.verdict]++
		fmt.Fprintf(&rows, "| %s | `%s` | %s | %s |\n", m.promise, m.place(), m.what, outcome(m, r))
	}

	return fmt.Sprintf("%d mutations: %d killed, %d explained, %d survived, %d not run yet as they are now.\n\n"+
		"| promise | in | what is broken | killed by |\n|---|---|---|---|\n%s",
		len(all), count[killed], count[excused], count[survived], count[unseen], rows.String())
}

// unseen is the verdict on a mutation that was not run, or has changed since.
const unseen verdict = "not run yet"

// outcome says what became of a mutation: the test that killed it, why nothing can, or the bare verdict.
func outcome(m mutation, r record) string {
	switch r.verdict {
	case killed:
		return "`" + r.by + "`"
	case excused:
		return "explained: " + m.why
	}
	return string(r.verdict)
}

// number is the number of a promise.
func number(promise string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(promise, "P")) // the list is checked
	return n
}

// keep writes the verdicts that were seen into recordFile, and drops the lines of mutations that are not in all.
func keep(root string, all []mutation, seen ...trial) error {
	path := filepath.Join(root, filepath.FromSlash(recordFile))
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}

	// Old verdicts stay until their mutation is tried anew.
	lines := make(map[string]string)
	for line := range strings.Lines(string(old)) {
		name, _, _ := strings.Cut(line, "\t")
		lines[name] = line
	}

	for _, r := range seen {
		lines[r.name] = fmt.Sprintf("%s\t%s\t%s\t%.1fs\t%s\n", r.name, r.id(), r.verdict, r.took.Seconds(), r.by)
	}

	// In the order of the lists, so that a change is one line of the record.
	var b strings.Builder
	for _, m := range all {
		b.WriteString(lines[m.name])
	}

	return os.WriteFile(path, []byte(b.String()), 0o644)
}

//go:embed list/*.txt
var lists embed.FS

// list returns all mutations, in the order of the files that list them.
func list() (all []mutation, err error) {
	names, err := fs.Glob(lists, "list/*.txt")
	if err != nil {
		return nil, err
	}

	// Names are unique over all lists, because the record goes by them.
	seen := make(map[string]bool)
	var errs []error
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			return nil, err
		}

		some, err := parse(string(text))
		errs = append(errs, err)
		for _, m := range some {
			if seen[m.name] {
				errs = append(errs, fmt.Errorf("%s: two mutations have that name", m.name))
			}
			seen[m.name] = true
		}

		all = append(all, some...)
	}

	return all, errors.Join(errs...)
}

// pick returns the mutations whose promise and name match, as in "P11 lease-ends".
func pick(all []mutation, pattern *regexp.Regexp) (some []mutation) {
	for _, m := range all {
		if pattern.MatchString(m.promise + " " + m.name) {
			some = append(some, m)
		}
	}
	return some
}

// fits returns an error that names every mutation that cannot be made in the tree at root.
func fits(all []mutation, root string) error {
	var errs []error
	for _, m := range all {
		_, _, err := m.broken(root)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
