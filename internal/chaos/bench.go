package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// A bench is what a program needs to start servers as a test does: it cleans up
// in the end, and fails.
type bench struct {
	cleanups []func()
	failures []error
}

// onBench calls f and cleans up after it. A failure ends f, as it ends a test.
func onBench(f func(*bench)) error {
	b := &bench{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.clean()
		f(b)
	}()
	<-done
	return errors.Join(b.failures...)
}

func (b *bench) clean() {
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
}

// Helper implements [redistest.TB].
func (b *bench) Helper() {}

// Cleanup implements [redistest.TB].
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// TempDir implements [redistest.TB].
func (b *bench) TempDir() string {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Errorf implements [redistest.TB].
func (b *bench) Errorf(format string, args ...any) {
	b.failures = append(b.failures, fmt.Errorf(format, args...))
}

// Fatal implements [redistest.TB].
func (b *bench) Fatal(args ...any) {
	b.failures = append(b.failures, errors.New(fmt.Sprint(args...)))
	runtime.Goexit()
}

// Fatalf implements [redistest.TB].
func (b *bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}
