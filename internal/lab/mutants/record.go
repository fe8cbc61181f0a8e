package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recordFile keeps the last verdict on each mutation, a line each.
const recordFile = "docs/measurements/mutants.txt"

// A record is one line of it.
type record struct {
	id      string // of the change; see mutation.id
	verdict verdict
	by      string
}

// records returns the kept verdicts, by name.
func records(root string) (map[string]record, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(recordFile)))
	if os.IsNotExist(err) {
		err = nil
	}

	kept := make(map[string]record)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%s: a line of %d fields, not 5", recordFile, len(f))
		}
		kept[f[0]] = record{f[1], verdict(f[2]), f[4]}
	}

	return kept, err
}
