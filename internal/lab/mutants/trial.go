package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// A trial is what became of one mutation when it was tried.
type trial struct {
	mutation
	verdict verdict
	by      string // the test that noticed
	took    time.Duration
}

// try makes a mutation in the tree and takes it back at the end. It runs the test that noticed last time, then the tests
// that should notice, then all tests of their package, until one of them is red. A mutation that survives is excused if
// the list says why.
func (t *bench) try(ctx context.Context, m mutation, last string, asIs *sound) (r trial, err error) {
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

	// Scripts are read when the tests begin, so a broken script needs no compilation.
	var broken binary
	if m.dir == scripts+"/lua" {
		broken, err = t.compiled(ctx, m.tests.suite)
	} else {
		broken, err = t.compile(ctx, m.tests.suite, filepath.Join(t.dir, "broken.test"))
	}

	if err != nil {
		return r, err
	}

	// The test that noticed last time is the fastest way to a verdict. The whole package is the slowest.
	if only(last) != "" {
		r.verdict, r.by, err = broken.believed(ctx, m, only(last), asIs)
	}
	if errors.Is(err, errNoTest) { // the test was renamed
		err = nil
	}
	if err == nil && (r.verdict == "" || r.verdict == survived) {
		r.verdict, r.by, err = broken.believed(ctx, m, m.tests.run, asIs)
	}
	if err == nil && r.verdict == survived {
		r.verdict, r.by, err = broken.tryAll(ctx, m, asIs)
	}
	if r.verdict == survived && m.why != "" {
		r.verdict = excused
	}

	return r, err
}

// believed runs the tests that match run, and believes a red one only if it is green in the tree without the mutation.
// Otherwise the test may only have been too slow, and the mutation has survived.
func (b binary) believed(ctx context.Context, m mutation, run string, asIs *sound) (v verdict, by string, err error) {
	v, by, err = b.test(ctx, run, mostOfSome)
	if err != nil || v != killed {
		return v, by, err
	}
	if only(by) != "" {
		run = only(by)
	}
	if ok, err := asIs.isGreen(ctx, m.tests.suite, run); err != nil || !ok {
		return survived, "", err
	}
	return killed, by, nil
}

// tryAll runs all tests of a package. Nobody expected them to notice, so the test that is red must be red again when it runs
// alone. It is an error if something is red and no test is to blame.
func (b binary) tryAll(ctx context.Context, m mutation, asIs *sound) (v verdict, by string, err error) {
	v, by, err = b.test(ctx, "", mostOfAll)
	if err != nil || v != killed {
		return v, by, err
	}

	name, _, _ := strings.Cut(by, "/")
	if only(name) == "" {
		return survived, "", fmt.Errorf("%s: no test of %s is to blame", by, b.pkg)
	}

	v, _, err = b.believed(ctx, m, only(name), asIs)
	if v != killed {
		by = ""
	}

	return v, by, err
}
