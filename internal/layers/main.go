// Command layers looks at the files of packages: each file should name only what is declared
// in itself or in files below it, so that there is an order to read them in.
//
//	go run ./internal/layers . ./redisstore/...   # print the order
//	go run ./internal/layers -check               # all modules: fail if files refer to each other in a cycle
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cyclic are the packages whose files still refer to each other in cycles.
var cyclic = []string{
	"github.com/fleetthrottle/throttle/internal/chaos",
	"github.com/fleetthrottle/throttle/storetest",
}

func main() {
	check := flag.Bool("check", false, "print only cycles, in all modules below this folder, and fail if there is one")
	flag.Parse()
	run := order
	if *check {
		run = noCycles
	}
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
}

// order prints the files of the packages that the patterns name.
func order(patterns []string) error {
	all, err := packages(".", patterns...)
	for _, p := range all {
		fmt.Printf("%s: %s\n", p.path, strings.Join(p.files, " "))
		p.printCycle()
	}
	return err
}

// noCycles prints the cycles of all modules, and fails if there is one in a package that is not known for it.
func noCycles([]string) error {
	dirs, err := modules(".")
	cycles := 0
	for _, dir := range dirs {
		all, err := packages(dir, "./...")
		if err != nil {
			return err
		}
		for _, p := range all {
			if len(p.cycle) > 0 && !slices.Contains(cyclic, p.path) {
				p.printCycle()
				cycles++
			}
		}
	}
	if err == nil && cycles > 0 {
		err = errors.New("files refer to each other in a cycle")
	}
	return err
}

func (p pkg) printCycle() {
	for _, r := range p.cycle {
		fmt.Printf("%s: cycle: %s\n", p.path, r)
	}
}

// modules returns the folders of all modules below a folder but tools, which has no package.
func modules(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if dir := filepath.Dir(path); err == nil && d.Name() == "go.mod" && dir != "tools" {
			dirs = append(dirs, dir)
		}
		return err
	})
	return dirs, err
}
