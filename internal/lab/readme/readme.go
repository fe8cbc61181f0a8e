// Package readme tests the programs on pages that readers copy.
package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

var program = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```")

// Vet requires that the program of README.md in the test's folder passes VetProgram as it stands.
func Vet(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := program.FindSubmatch(text)
	if m == nil {
		t.Fatal("README.md has no program")
	}
	if err := VetProgram(t, string(m[1])); err != nil {
		t.Fatal(err)
	}
}

// VetProgram compiles a program that consists of one file, and in make soak runs go vet on it. The file lies outside of the
// module, so that it is part of no package; its imports are packages of the module.
func VetProgram(t *testing.T, text string) error {
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}

	// go vet checks every imported package. go list compiles only the program, since tests have compiled the packages.
	look := soak.Most([]string{"vet", file}, []string{"list", "-export", file})
	if out, err := exec.CommandContext(t.Context(), "go", look...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", look[0], err, out)
	}
	return nil
}
