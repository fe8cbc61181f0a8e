package main

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
)

// asTest runs f as a test, because package synctest gives virtual time to tests only, and
// ends the program.
func asTest(f func(*testing.T)) {
	testing.Init()
	if err := flag.CommandLine.Parse([]string{"-test.timeout=1h"}); err != nil {
		panic(err) // it is a flag of package testing
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "scale", F: f}}, nil, nil)
}

// played plays a scene in virtual time.
func played(t *testing.T, b *redissim.Backend, s scene) (r *record) {
	t.Helper()
	inBubble(t, fmt.Sprintf("%d nodes, %d upstreams", s.Nodes, s.Upstreams), func() (err error) {
		r, err = s.play(b)
		return err
	})
	return r
}

// inBubble calls f in virtual time, and fails the test if f fails.
func inBubble(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	synctest.Test(t, func(*testing.T) { err = f() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
