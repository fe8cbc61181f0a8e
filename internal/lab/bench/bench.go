// Package bench lets a program start servers as a test does.
package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// A Bench lets a program start servers as a test does: it collects failures, and cleans up at the end.
type Bench struct {
	folder   string
	cleanups []func()
	failures []error
}

// Run calls f, cleans up after it, and returns the failures. Fatal ends f, as it ends a test. Directories are
// in the folder, or in the folder of temporary files if it is "".
func Run(folder string, f func(*Bench)) error {
	b := &Bench{folder: folder}
	done := make(chan struct{})

	// Fatal ends the goroutine that calls it.
	go func() {
		defer close(done)
		defer b.clean()
		f(b)
	}()
	<-done
	return errors.Join(b.failures...)
}

func (b *Bench) clean() {
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
}

// Helper implements [servers.TB].
func (b *Bench) Helper() {}

// Cleanup implements [servers.TB].
func (b *Bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// TempDir implements [servers.TB].
func (b *Bench) TempDir() string {
	dir, err := os.MkdirTemp(b.folder, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Errorf implements [servers.TB].
func (b *Bench) Errorf(format string, args ...any) {
	b.failures = append(b.failures, fmt.Errorf(format, args...))
}

// Fatal implements [servers.TB].
func (b *Bench) Fatal(args ...any) {
	b.failures = append(b.failures, errors.New(fmt.Sprint(args...)))
	runtime.Goexit()
}

// Fatalf implements [servers.TB].
func (b *Bench) Fatalf(format string, args ...any) {
	b.Errorf(format, args...)
	runtime.Goexit()
}

// Must fails with the error, if there is one.
func (b *Bench) Must(err error) {
	if err != nil {
		b.Fatal(err)
	}
}
