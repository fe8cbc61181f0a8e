// Command prose counts the words in comments that stand for a noun of another sentence, and fails where a
// room has too many of them. Make lint runs it.
//
//	go run ./internal/lab/prose             the rooms above a bound, and their worst comments
//	go run ./internal/lab/prose -all        the figures of every room
//	go run ./internal/lab/prose -room store each such comment of a room, with its line
//
// A comment that names its nouns can be read where it stands: "Zero means no limit" needs no sentence before it, which "0: none" does.
// Tests are not counted.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

// Upper bounds of pro-forms per 1,000 words.
const (
	maxVague    = 6 // in all comments of a room
	maxVagueDoc = 3 // in the doc comments of a room's exported names
)

func main() {
	all := flag.Bool("all", false, "print the figures of every room")
	only := flag.String("room", "", "print each pro-form of this `room`")
	flag.Parse()

	if err := run(*all, *only); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(all bool, only string) error {
	files, err := sources()
	if err != nil {
		return err
	}

	rooms := make(map[string]*room)
	for _, file := range files {
		name := roomOf(file)
		if rooms[name] == nil {
			rooms[name] = &room{name: name}
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := rooms[name].read(file, text); err != nil {
			return err
		}
	}

	if only != "" {
		r := rooms[only]
		if r == nil {
			return fmt.Errorf("there is no room %q", only)
		}
		for _, f := range r.found {
			fmt.Println(f)
		}
	}
	return report(rooms, all)
}

// report prints the rooms that are above a bound, or all of them, and fails if there is one above.
func report(rooms map[string]*room, all bool) error {
	names := make([]string, 0, len(rooms))
	above := 0
	for name, r := range rooms {
		if r.isAbove() {
			above++
		}
		if all || r.isAbove() {
			names = append(names, name)
		}
	}
	slices.Sort(names)

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(names) > 0 {
		fmt.Fprintln(table, "room\twords\tvague\twords of exported names' docs\tvague")
	}
	for _, name := range names {
		r := rooms[name]
		fmt.Fprintf(table, "%s\t%d\t%.1f\t%d\t%.1f\n", name, r.words, r.vague(), r.docWords, r.docVague())
	}
	if err := table.Flush(); err != nil {
		return err
	}

	if above > 0 {
		return fmt.Errorf("%d rooms have more than %d pro-forms per 1,000 words of comment, or more than %d in the docs of exported names: go run ./internal/lab/prose -room NAME lists them",
			above, maxVague, maxVagueDoc)
	}
	return nil
}

// sources returns the repository's files of Go and Lua that are no tests.
func sources() ([]string, error) {
	out, err := exec.Command("git", "ls-files", "*.go", "*.lua").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}

	files := strings.Fields(string(bytes.TrimSpace(out)))
	return slices.DeleteFunc(files, func(f string) bool {
		return strings.HasSuffix(f, "_test.go") || strings.Contains("/"+f, "/testdata/")
	}), nil
}

// grouping are the folders whose own folders are rooms.
var grouping = []string{"adapters", "cmd", "internal", "internal/lab", "redisstore/internal", "servers", "stores"}

// roomOf returns the room of a file: its top folder, one below a folder that only groups, or "." for the root package.
func roomOf(file string) string {
	dir := path.Dir(file)
	for parent := dir; parent != "."; parent = path.Dir(parent) {
		up := path.Dir(parent)
		if up == "." && !slices.Contains(grouping, parent) || slices.Contains(grouping, up) {
			return parent
		}
	}
	return dir
}
