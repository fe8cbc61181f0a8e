package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A page is a Markdown file of the repository.
type page struct{ name, read, text string }

type pages []*page

// readPages reads all pages below a folder but the changelog, which tells of the past.
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
