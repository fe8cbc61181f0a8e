// Command layers prints the files of packages in the order to read them in: each file
// names only what is declared in itself or in files before it.
//
//	go run ./internal/layers . ./redisstore/...
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	all, err := packages(".", os.Args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
	for _, p := range all {
		fmt.Printf("%s: %s\n", p.path, strings.Join(p.files, " "))
		for _, r := range p.cycle {
			fmt.Printf("\tcycle: %s\n", r)
		}
	}
}
