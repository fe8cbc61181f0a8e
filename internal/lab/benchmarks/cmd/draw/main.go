// Command draw draws the pictures of the README from the raw results of the
// benchmarks.
//
//	cd internal/lab/benchmarks && go run ./cmd/draw
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	from := flag.String("from", "results", "the directory of the raw results")
	to := flag.String("to", "../docs/pictures", "the directory of the pictures")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

// run draws every picture that there are results for.
func run(from, to string) error {
	r, err := readAll(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}

	all := pictures(r)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if p.empty() {
			fmt.Println(name, "is not drawn: there are no results")
			continue
		}

		path := filepath.Join(to, name+".svg")
		if err := os.WriteFile(path, []byte(p.svg()), 0o644); err != nil {
			return err
		}

		fmt.Println(path)
	}

	return nil
}
