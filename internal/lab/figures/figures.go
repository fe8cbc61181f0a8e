package main

import (
	"errors"
	"fmt"
	"io/fs"
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
// each pattern that finds nothing. With write it mends the pages.
func (f figure) compare(all pages, value string, write bool) (places []string, err error) {
	var wrong []error
	for _, pattern := range f.found {
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
