package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
)

//go:embed list/*.txt
var lists embed.FS

// list returns all mutations, in the order of the files that list them.
func list() (all []mutation, err error) {
	names, err := fs.Glob(lists, "list/*.txt")
	if err != nil {
		return nil, err
	}

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

// fits reports every mutation that cannot be made in the tree at root.
func fits(all []mutation, root string) error {
	var errs []error
	for _, m := range all {
		_, _, err := m.broken(root)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
