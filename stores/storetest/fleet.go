package storetest

import (
	"testing"
	"testing/synctest"
)

// RunVectors plays vectors of a store's own, in the language of vectors/README.md, each in a
// subtest, and each case in a bubble with a fleet of its own.
func RunVectors(t *testing.T, file, text string, newFleet func(*testing.T) Fleet) {
	list, err := parseVectors(&reader{file: file, fleet: true}, text)
	if err != nil {
		t.Fatal(err)
	}

	for _, v := range list {
		t.Run(v.name, func(t *testing.T) {
			for i, moves := range v.cases {
				synctest.Test(t, func(t *testing.T) {
					fleet := newFleet(t)
					b := newBench(t, fleet.Program(""), v.name)
					p := &play{bench: b, known: make(map[string][]*caller), fleet: &fleet, programs: map[string]*bench{"": b}}
					p.play(moves, i)
				})
			}
		})
	}
}
