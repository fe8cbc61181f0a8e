package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Results are what benchmarks reported: by the benchmark's name, then by unit,
// one value for each time that it ran.
type results map[string]map[string][]float64

// readAll reads all results in a directory. A benchmark that is in several files
// is taken from the last, by name, which is the newest.
func readAll(dir string) (results, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}

	slices.Sort(files)
	all := make(results)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}

		r, err := read(f)
		f.Close()
		if err != nil {
			return nil, err
		}

		for name, units := range r {
			all[name] = units
		}
	}

	return all, nil
}

// cores is the number that the testing package adds to a benchmark's name.
var cores = regexp.MustCompile(`-\d+$`)

// read reads the lines of one run of go test -bench and skips all others.
func read(r io.Reader) (results, error) {
	found := make(results)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}

		name := cores.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		if found[name] == nil {
			found[name] = make(map[string][]float64)
		}

		for i := 2; i+1 < len(fields); i += 2 { // the second field counts iterations
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, err
			}
			found[name][fields[i+1]] = append(found[name][fields[i+1]], value)
		}
	}

	return found, lines.Err()
}

// value returns the median of a benchmark's results in a unit.
func (r results) value(name, unit string) (float64, bool) {
	values := slices.Sorted(slices.Values(r[name][unit]))
	if len(values) == 0 {
		return 0, false
	}
	return values[len(values)/2], true
}

// below returns the last parts of the names of all benchmarks right below one, in
// alphabetical order.
func (r results) below(name string) []string {
	var found []string
	for full := range r {
		if last, ok := strings.CutPrefix(full, name+"/"); ok && !strings.Contains(last, "/") {
			found = append(found, last)
		}
	}
	slices.Sort(found)
	return found
}
