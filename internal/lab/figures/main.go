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
	"os"
)

func main() {
	write := flag.Bool("write", false, "write the sources' figures into the pages")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	pages, err := readPages(".")
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

	var wrong []error
	for _, f := range all {
		value, err := f.value(os.DirFS("."))
		if err != nil {
			wrong = append(wrong, err)
			continue
		}

		fmt.Printf("%s: %s (%s)\n", f.name, value, f.source.file)
		places, err := f.compare(pages, value, write)
		wrong = append(wrong, err)

		for _, p := range places {
			fmt.Println("\t" + p)
		}
	}

	if write {
		wrong = append(wrong, pages.write())
	}

	return errors.Join(wrong...)
}
