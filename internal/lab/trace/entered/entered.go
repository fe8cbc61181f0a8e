// Package entered notes which files a program enters, and in which order. Only code that
// internal/lab/trace has put calls into uses it.
package entered

import (
	"slices"
	"sync"
)

var (
	mu    sync.Mutex
	files []string
)

// File notes that a function of a file begins. Several goroutines may call it.
func File(name string) {
	mu.Lock()
	defer mu.Unlock()
	files = append(files, name)
}

// Take returns the files noted since the last time.
func Take() []string {
	mu.Lock()
	defer mu.Unlock()
	taken := slices.Clone(files)
	files = nil
	return taken
}
