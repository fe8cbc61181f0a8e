package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A verdict is what became of a mutation.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "survived"
	excused  verdict = "explained" // it survived, and the list says why it had to
	invalid  verdict = "invalid"   // it does not compile: a mistake in the list
)

// How long tests may take. A mutant that makes them hang for longer is killed by that.
const (
	mostOfSome = 3 * time.Minute  // the tests that should notice
	mostOfAll  = 10 * time.Minute // all tests of their package
)

// A binary holds the tests of one package, compiled.
type binary struct {
	file string // "": they do not compile
	dir  string // where they run
	pkg  string
}

// compile compiles the tests of a package into a file, without vet and without a symbol table, which only cost time. The
// binary has no file if the tests do not compile, which is no error.
func (t tree) compile(ctx context.Context, what suite, file string) (binary, error) {
	b := binary{file: file, dir: filepath.Join(t.dir, filepath.FromSlash(what.pkg)), pkg: what.pkg}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", file}
	if what.race {
		args = append(args, "-race")
	}

	c := exec.CommandContext(ctx, "go", append(args, ".")...) // in its own folder, whose module may differ
	c.Dir = b.dir
	_, err := c.CombinedOutput()

	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return b, ctx.Err()
	case errors.As(err, &failed):
		b.file = ""
		return b, nil
	}

	return b, err
}

// A bench is a tree with the test binary of the sound code, for mutations of scripts.
type bench struct {
	tree
	binaries map[suite]binary
}

// compiled returns the tests of a package of the sound code, and compiles them the first time.
func (t *bench) compiled(ctx context.Context, what suite) (b binary, err error) {
	b, ok := t.binaries[what]
	if !ok {
		b, err = t.compile(ctx, what, filepath.Join(t.dir, fmt.Sprintf("whole%d.test", len(t.binaries))))
		t.binaries[what] = b
	}
	return b, err
}

// test runs the tests that match run until the first is red, and returns the verdict on the code and the test that was
// red. Tests that take longer than most kill the mutation, too. Tests or scripts that do not compile make it invalid. test
// returns an error if no test matches, or if ctx ends.
func (b binary) test(ctx context.Context, run string, most time.Duration) (verdict, string, error) {
	if b.file == "" {
		return invalid, "", nil
	}

	// A process that its own timeout does not end is killed, and its own children are not awaited for long.
	grace := most / 8
	bounded, stop := context.WithTimeout(ctx, most+grace)
	defer stop()

	c := exec.CommandContext(bounded, b.file, "-test.v", "-test.failfast", "-test.timeout="+most.String(), "-test.run="+run)
	c.Dir = b.dir
	c.WaitDelay = grace
	text, err := c.CombinedOutput()

	out := string(text)
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case bounded.Err() != nil:
		return killed, hanging(out), nil
	case errors.Is(err, exec.ErrWaitDelay): // the tests were green, and a process that they started goes on
		return survived, "", nil
	case err == nil && strings.Contains(out, "testing: warning: no tests to run"):
		return "", "", fmt.Errorf("%w of %s: %s", errNoTest, b.pkg, run)
	case err == nil:
		return survived, "", nil
	case !errors.As(err, &failed):
		return "", "", err
	case uncompiled.MatchString(out):
		return invalid, "", nil
	}

	return killed, noticed(out), nil
}

var errNoTest = errors.New("no such test")

// uncompiled is what Redis says of a script that cannot be compiled.
var uncompiled = regexp.MustCompile(`Error compiling script`)

var (
	red  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hung = regexp.MustCompile(`(?m)^\s*running tests:\n\s+(\S+)`)
	runs = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)
	left = regexp.MustCompile(`(?m)^P15 broken:`)
)

// noticed returns the test that made a run fail, by its output: a red test, the innermost if it is a subtest. A test that
// hangs or crashes ends its process, and is marked so. Without such a test it says what is known.
func noticed(out string) string {
	if by := hung.FindStringSubmatch(out); by != nil {
		return by[1] + " (hangs)"
	}

	by := ""
	for _, r := range red.FindAllStringSubmatch(out, -1) {
		if by == "" || strings.HasPrefix(r[1], by+"/") {
			by = r[1]
		}
	}

	// Without a red test the process has ended early.
	began := runs.FindAllStringSubmatch(out, -1)
	switch {
	case by != "":
		return by
	case left.MatchString(out):
		return "TestMain (goroutines are left)"
	case began != nil:
		return began[len(began)-1][1] + " (crashes)"
	}

	return "a crash"
}

// hanging returns the test that began last before its process had to be killed.
func hanging(out string) string {
	began := runs.FindAllStringSubmatch(out, -1)
	if began == nil {
		return "a hang"
	}
	return began[len(began)-1][1] + " (hangs)"
}

// aTest matches the name of a test, or of one of its subtests.
var aTest = regexp.MustCompile(`^(Test|Fuzz|Example)`)

// only returns the pattern that runs only the test that noticed or hanging has named, or "" if they named no test.
func only(by string) string {
	name, _, _ := strings.Cut(by, " ")
	if !aTest.MatchString(name) || name == "TestMain" {
		return ""
	}

	var parts []string
	for level := range strings.SplitSeq(name, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(level)+"$")
	}
	return strings.Join(parts, "/")
}
