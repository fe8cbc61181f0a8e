package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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
		fmt.Fprintf(&rows, "| %s | `%s` | %s | %s |\n", m.promise, m.place(), m.what, end(m, r))
	}

	return fmt.Sprintf("%d mutations: %d killed, %d explained, %d survived, %d not run yet as they are now.\n\n"+
		"| promise | in | what is broken | killed by |\n|---|---|---|---|\n%s",
		len(all), count[killed], count[excused], count[survived], count[unseen], rows.String())
}

// unseen is the verdict on a mutation that was not run, or has changed since.
const unseen verdict = "not run yet"

// end says what became of a mutation.
func end(m mutation, r record) string {
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

// keep adds verdicts to the record, and drops mutations that have left the list.
func keep(root string, all []mutation, seen ...trial) error {
	path := filepath.Join(root, filepath.FromSlash(recordFile))
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}

	lines := make(map[string]string)
	for line := range strings.Lines(string(old)) {
		name, _, _ := strings.Cut(line, "\t")
		lines[name] = line
	}

	for _, r := range seen {
		lines[r.name] = fmt.Sprintf("%s\t%s\t%s\t%.1fs\t%s\n", r.name, r.id(), r.verdict, r.took.Seconds(), r.by)
	}

	var b strings.Builder
	for _, m := range all {
		b.WriteString(lines[m.name])
	}

	return os.WriteFile(path, []byte(b.String()), 0o644)
}
