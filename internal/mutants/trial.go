package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
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

// A trial is one mutation's.
type trial struct {
	mutation
	verdict verdict
	by      string // the test that noticed
	took    time.Duration
}

// some and whole are how long the tests that should notice may take, and all of
// their package. A mutant that hangs for longer is noticed by that.
const (
	some  = 3 * time.Minute
	whole = 10 * time.Minute
)

// try breaks the tree and runs the tests that should notice. If they do not, it
// runs all of their package.
func (t tree) try(ctx context.Context, m mutation) (r trial, err error) {
	begin := time.Now()
	mend, err := t.breakIt(m)
	if err != nil {
		return r, err
	}
	r.mutation = m
	defer func() {
		r.took = time.Since(begin)
		err = errors.Join(err, mend())
	}()
	r.verdict, r.by, err = t.test(ctx, m.tests, some)
	if err == nil && r.verdict == survived {
		r.verdict, r.by, err = t.tryAll(ctx, m.tests.all(), mend)
	}
	if r.verdict == survived && m.why != "" {
		r.verdict = excused
	}
	return r, err
}

// tryAll runs all tests of a package. Nobody expected any of them to notice, so
// the one that does must be red again, and green when the tree is mended: it may
// only have been too slow.
func (t tree) tryAll(ctx context.Context, all tests, mend func() error) (v verdict, by string, err error) {
	v, by, err = t.test(ctx, all, whole)
	if err != nil || v != killed {
		return v, by, err
	}
	name, _, _ := strings.Cut(by, " ")
	name, _, _ = strings.Cut(name, "/")
	alone := tests{race: all.race, pkg: all.pkg, run: "^" + name + "$"}
	again, _, err := t.test(ctx, alone, some)
	if err != nil || again != killed {
		return survived, "", err
	}
	if err := mend(); err != nil {
		return "", "", err
	}
	if mended, _, err := t.test(ctx, alone, some); err != nil || mended != survived {
		return survived, "", err
	}
	return killed, by, nil
}

// test runs some tests. It returns an error if there are none, or if go test could
// not do its work.
func (t tree) test(ctx context.Context, what tests, most time.Duration) (verdict, string, error) {
	// Without what only costs time: vet, and a symbol table.
	args := []string{"test", "-v", "-count=1", "-failfast", "-vet=off", "-ldflags=-s -w", "-timeout=" + most.String()}
	if what.race {
		args = append(args, "-race")
	}
	c := exec.CommandContext(ctx, "go", append(args, "-run="+what.run, what.pkg)...)
	c.Dir = t.dir
	text, err := c.CombinedOutput()
	out := string(text)
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case err == nil && strings.Contains(out, "[no tests to run]"):
		return "", "", fmt.Errorf("%s has no test %s", what.pkg, what.run)
	case err == nil:
		return survived, "", nil
	case !errors.As(err, &failed):
		return "", "", err
	case unbuilt.MatchString(out):
		return invalid, "", nil
	}
	return killed, noticed(out), nil
}

// unbuilt is what go test says of a package, and Redis of a script, that cannot
// be compiled.
var unbuilt = regexp.MustCompile(`\[(build|setup) failed\]|Error compiling script`)

var (
	red  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hung = regexp.MustCompile(`(?m)^running tests:\n\s+(\S+)`)
	runs = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)
	left = regexp.MustCompile(`(?m)^P15 broken:`)
)

// noticed returns the test that was red, a subtest if there was one. A test that
// crashes or hangs takes the others with it.
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
