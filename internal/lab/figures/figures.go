// Command figures compares the figures that pages repeat with their sources: constants in the code
// and committed raw results. A figure has one source; every page that has the figure must agree.
//
//	go run ./internal/lab/figures          # print each figure, its source and its pages; fail if a page differs
//	go run ./internal/lab/figures -write   # write the sources' figures into the pages
//
// figures.txt lists them: a name, then, indented, the file of the source and a pattern that finds
// the figure there, then the patterns that find the figure on pages. The first group of a pattern
// is the figure. Each pattern for pages must find it somewhere.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A figure is a number that pages repeat.
type figure struct {
	name   string
	source source
	found  []*regexp.Regexp // find it on pages
}

// A source is where a figure comes from.
type source struct {
	file string
	at   *regexp.Regexp
}

// parse reads the list, and reports all of its mistakes.
func parse(text string) (all []figure, err error) {
	var wrong []error
	for n, line := range strings.Split(text, "\n") {
		mistake := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("line %d: %w", n+1, fmt.Errorf(format, args...)))
		}

		// The first pattern of a figure is its source, and the rest are its places.
		pattern, indented := strings.CutPrefix(line, "\t")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case !indented:
			all = append(all, figure{name: line})
		case len(all) == 0:
			mistake("a pattern without a figure")
		default:
			f := &all[len(all)-1]
			file := ""
			if f.source.at == nil {
				file, pattern, _ = strings.Cut(pattern, ": ")
			}

			// The group of the pattern is the number.
			p, err := regexp.Compile(pattern)
			switch {
			case err != nil:
				mistake("%w", err)
			case p.NumSubexp() != 1:
				mistake("%q has not one group", pattern)
			case f.source.at == nil:
				f.source = source{file, p}
			default:
				f.found = append(f.found, p)
			}
		}
	}

	for _, f := range all {
		if len(f.found) == 0 {
			wrong = append(wrong, fmt.Errorf("%s has no source, or no pattern for pages", f.name))
		}
	}

	return all, errors.Join(wrong...)
}

// value returns the figure as its source has it.
func (f figure) value(root fs.FS) (string, error) {
	text, err := fs.ReadFile(root, f.source.file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.name, err)
	}
	m := f.source.at.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s: %s has no %s", f.name, f.source.file, f.source.at)
	}
	return string(m[1]), nil
}

// compare returns where pages have the figure, and an error for each place that differs and for
// each pattern that finds nothing. With write it changes the places that differ, which is no error.
func (f figure) compare(all pages, value string, write bool) (places []string, err error) {
	var wrong []error
	for _, pattern := range f.found {
		// A pattern that finds nothing is a mistake, too: its page has changed.
		before := len(places)
		for _, p := range all {
			for _, at := range pattern.FindAllStringSubmatchIndex(p.text, -1) {
				said := p.text[at[2]:at[3]]
				place := fmt.Sprintf("%s:%d", p.name, 1+strings.Count(p.text[:at[0]], "\n"))
				places = append(places, place)
				if plain(said) != plain(value) && !write {
					wrong = append(wrong, fmt.Errorf("%s says %s, but %s is %s (%s)", place, said, f.name, value, f.source.file))
				}
			}

			if write {
				p.replace(pattern, value)
			}
		}

		if len(places) == before {
			wrong = append(wrong, fmt.Errorf("%s: no page has %s", f.name, pattern))
		}
	}

	return places, errors.Join(wrong...)
}

func main() {
	write := flag.Bool("write", false, "write the sources' figures into the pages")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// run prints each figure with its places, and returns an error for each place that differs from the figure's source. With
// write it changes these places instead.
func run(write bool) error {
	docs, err := readPages(".")
	if err != nil {
		return err
	}

	text, err := os.ReadFile("internal/lab/figures/figures.txt")
	if err != nil {
		return err
	}

	all, err := parse(string(text))
	if err != nil {
		return err
	}

	// Report all figures, and not only the first that differs.
	var wrong []error
	for _, f := range all {
		value, err := f.value(os.DirFS("."))
		if err != nil {
			wrong = append(wrong, err)
			continue
		}

		fmt.Printf("%s: %s (%s)\n", f.name, value, f.source.file)
		places, err := f.compare(docs, value, write)
		wrong = append(wrong, err)

		for _, p := range places {
			fmt.Println("\t" + p)
		}
	}

	if write {
		wrong = append(wrong, docs.write())
	}

	return errors.Join(wrong...)
}

// A page is a Markdown file of the repository.
type page struct{ name, read, text string }

type pages []*page

// readPages reads all pages below a folder, without those in testdata, and without the changelog, which tells of the past.
func readPages(root string) (all pages, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(name) != ".md" || d.Name() == "CHANGELOG.md":
			return nil
		}

		text, err := os.ReadFile(name)
		all = append(all, &page{name, string(text), string(text)})
		return err
	})

	return all, err
}

// replace writes a value in the place of each figure that a pattern finds, with commas as the page
// has them.
func (p *page) replace(pattern *regexp.Regexp, value string) {
	var b strings.Builder
	last := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(p.text, -1) {
		b.WriteString(p.text[last:at[2]])
		if said := p.text[at[2]:at[3]]; plain(said) == plain(value) {
			b.WriteString(said)
		} else {
			b.WriteString(value)
		}
		last = at[3]
	}
	p.text = b.String() + p.text[last:]
}

// write writes the pages that have changed.
func (all pages) write() error {
	var failed []error
	for _, p := range all {
		if p.text != p.read {
			failed = append(failed, os.WriteFile(p.name, []byte(p.text), 0o644))
		}
	}
	return errors.Join(failed...)
}

// plain leaves out what separates thousands.
func plain(number string) string { return strings.NewReplacer(",", "", "_", "").Replace(number) }
