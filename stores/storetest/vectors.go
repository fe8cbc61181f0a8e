package storetest

import (
	"embed"
	"errors"
	"regexp"
	"strings"
	"sync"
	_ "time/tzdata" // zones with summer time, also where the system has none

	"github.com/fleetthrottle/throttle/store"
)

// vectorFiles holds the checks that are lines of text. vectors/README.md describes their language.
//
//go:embed vectors/*.txt
var vectorFiles embed.FS

// vectorLine is a line of a vector as it stands in its file.
type vectorLine struct {
	number int
	text   string
}

// vectorsOf returns the checks of one file. A file with mistakes has no checks, and vectors tells the mistakes.
func vectorsOf(file string) []check {
	all, _ := vectors()
	return all[file]
}

// vectors returns the checks of all files without mistakes, by the files' names, and all mistakes.
var vectors = sync.OnceValues(func() (map[string][]check, error) {
	all := make(map[string][]check)
	files, err := vectorFiles.ReadDir("vectors")
	for _, f := range files {
		text, unread := vectorFiles.ReadFile("vectors/" + f.Name())
		list, wrong := parseVectors(&reader{file: f.Name()}, string(text))
		wrong = errors.Join(unread, wrong)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		name := strings.TrimSuffix(f.Name(), ".txt")
		for _, v := range list {
			all[name] = append(all[name], check{v.name, v.run})
		}
	}
	return all, err
})

var vectorName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*_[A-Z][A-Za-z0-9]*$`)

// parseVectors reads a file of vectors. The error tells all mistakes.
func parseVectors(r *reader, text string) ([]vector, error) {
	var list []vector
	var lines []vectorLine
	end := func() {
		if len(list) > 0 {
			list[len(list)-1].cases = r.cases(lines)
		}
		lines = nil
	}

	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "":
		case strings.HasPrefix(trimmed, "|") && len(lines) > 0:
			lines[len(lines)-1].text += " " + trimmed
		case strings.HasPrefix(line, " "):
			lines = append(lines, vectorLine{i + 1, trimmed})
		default:
			end()
			r.line = i + 1
			if !vectorName.MatchString(trimmed) {
				r.wrong("%q is no name of a vector, like P1_SlidingBurst", trimmed)
			}
			list = append(list, vector{name: trimmed})
		}
	}

	end()
	return list, errors.Join(r.mistakes...)
}

// cases reads the lines of a vector, once for each combination of what its "for" lines say.
func (r *reader) cases(lines []vectorLine) (all [][]move) {
	tables := []map[string]string{{}}
	for _, l := range lines {
		r.line = l.number
		if strings.HasPrefix(l.text, "for ") {
			tables = r.product(tables, strings.TrimPrefix(l.text, "for "))
		}
	}

	for i, values := range tables {
		s := &scope{reader: r, number: i, charges: make(map[string]store.Charge), labels: make(map[string]bool)}
		before := len(r.mistakes)

		for _, l := range lines {
			r.line = l.number
			if !strings.HasPrefix(l.text, "for ") {
				s.read(substitute(l.text, values))
			}
		}

		all = append(all, s.moves)
		if len(r.mistakes) > before {
			break
		}
	}

	return all
}

// product adds to each table each case of a line "for NAMES in CASE | CASE": several names,
// and their values, are set apart by semicolons.
func (r *reader) product(tables []map[string]string, text string) (all []map[string]string) {
	head, list, ok := strings.Cut(text, " in ")
	names := splitTrim(head, ";")
	for _, table := range tables {
		for _, one := range splitTrim(list, "|") {
			values := []string{one}
			if len(names) > 1 {
				values = splitTrim(one, ";")
			}

			if !ok || len(values) != len(names) {
				r.wrong("%d values for %d names in %q", len(values), len(names), one)
				continue
			}

			next := make(map[string]string)
			for name, value := range table {
				next[name] = value
			}

			for i, name := range names {
				next[name] = values[i]
			}

			all = append(all, next)
		}
	}

	return all
}
