package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// A trial is the trial of one mutation.
type trial struct {
	mutation
	verdict verdict
	by      string // the test that noticed
	took    time.Duration
}

// try breaks the tree and runs the test that noticed last time, the tests that should notice,
// and then all of their package, until one does.
func (t *bench) try(ctx context.Context, m mutation, last string, sound *sound) (r trial, err error) {
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
		broken, err = t.whole(ctx, m.tests.suite)
	} else {
		broken, err = t.compile(ctx, m.tests.suite, filepath.Join(t.dir, "broken.test"))
	}

	if err != nil {
		return r, err
	}

	// The test that noticed last time is the fastest way to a verdict. The whole package is the slowest.
	if only(last) != "" {
		r.verdict, r.by, err = broken.believed(ctx, m, only(last), sound)
	}
	if errors.Is(err, errNoTest) { // the test was renamed
		err = nil
	}
	if err == nil && (r.verdict == "" || r.verdict == survived) {
		r.verdict, r.by, err = broken.believed(ctx, m, m.tests.run, sound)
	}
	if err == nil && r.verdict == survived {
		r.verdict, r.by, err = broken.tryAll(ctx, m, sound)
	}
	if r.verdict == survived && m.why != "" {
		r.verdict = excused
	}

	return r, err
}

// believed runs some tests. The red test must be green in the tree as it is: it may
// only have been too slow.
func (b binary) believed(ctx context.Context, m mutation, run string, sound *sound) (v verdict, by string, err error) {
	v, by, err = b.test(ctx, run, some)
	if err != nil || v != killed {
		return v, by, err
	}
	if only(by) != "" {
		run = only(by)
	}
	if ok, err := sound.isGreen(ctx, m.tests.suite, run); err != nil || !ok {
		return survived, "", err
	}
	return killed, by, nil
}

// tryAll runs all tests of a package. Nobody expected any of them to notice, so the test
// that does must be red again by itself.
func (b binary) tryAll(ctx context.Context, m mutation, sound *sound) (v verdict, by string, err error) {
	v, by, err = b.test(ctx, "", whole)
	if err != nil || v != killed {
		return v, by, err
	}

	name, _, _ := strings.Cut(by, "/")
	if only(name) == "" {
		return survived, "", fmt.Errorf("%s: no test of %s has the blame", by, b.pkg)
	}

	v, _, err = b.believed(ctx, m, only(name), sound)
	if v != killed {
		by = ""
	}

	return v, by, err
}
