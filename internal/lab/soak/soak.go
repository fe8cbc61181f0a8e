// Package soak says how much a test does. A test run of a few minutes (go test -short, make
// test) does all that finds mistakes soon; make soak does the rest: more seeds, larger
// bounds, and measurements in real time.
package soak

import (
	"os"
	"strconv"
	"testing"
)

// Only leaves the test to make soak.
func Only(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long, or measures: make soak")
	}
}

// Most returns the first of two for make soak, and otherwise the second.
func Most[T any](soak, quick T) T {
	if testing.Short() {
		return quick
	}
	return soak
}

// Seeds returns how many random cases a test plays: for make soak the first number, times $SOAK if that is set, and otherwise the second.
// A machine with a night to spend raises $SOAK.
func Seeds(soak, quick int) int {
	if testing.Short() {
		return quick
	}
	return soak * factor(os.Getenv("SOAK"))
}

// factor reads $SOAK. Without a value it is 1.
func factor(text string) int {
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic("$SOAK is a whole number from 1, not " + strconv.Quote(text))
	}
	return n
}

// AllocsOf32Bits is how many allocations a booking in memory has beside those elsewhere where an int has 32 bits: the compiler
// takes the address of an atomic int64 there to leave the function.
const AllocsOf32Bits = float64(1 - ^uint(0)>>63)

// WithoutRace is for a long test of arithmetic or of the source, or of what other tests show the race detector:
// the detector finds nothing in it, and makes it three to six times as long. make test-without-race and make
// soak run the test without the detector: scripts/without-race.sh finds it by this call, so the test makes the
// call itself. make test leaves it out, and has a shorter test of the same promise.
func WithoutRace(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("make test-without-race and make soak run it without the race detector")
	}
}
