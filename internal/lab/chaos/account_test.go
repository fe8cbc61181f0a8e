package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

const ms = time.Millisecond

// The scene of all tests here: a calm time until 3 s, harm until 5 s, an end at
// 10 s.
func aScene() *scene {
	return &scene{fault: &fault{name: "test"}, from: time.Second, harm: 3 * time.Second, back: 5 * time.Second, end: 10 * time.Second}
}

// steady is a record of a fleet that is at work all the time, but for the harm:
// 40 a second, a member each time, and always something in flight.
func steady() *record {
	r := &record{limits: []limit{{0, 40}}, calls: map[string][]call{}, naps: map[string][]fleet.Stall{}}
	for at := time.Millisecond; at < 10*time.Second; at += 25*ms + 1 {
		if at < 3*time.Second || at >= 5*time.Second {
			r.arrivals = append(r.arrivals, arrival{at, []string{"0", "1", "2", "3"}[len(r.arrivals)%4]})
			r.flights = append(r.flights, flight{from: at, to: at + 20*ms})
		}
	}
	return r
}

func sortArrivals(all []arrival) {
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}

func TestPromisesKept(t *testing.T) {
	a := steady().account(aScene())
	require.Empty(t, a.broken())
	require.Equal(t, crowd{count: 40, limit: 40}, a.worst)
	require.Equal(t, 1, a.flying)
	require.InDelta(t, 2000, a.gap/ms, 30)
	require.Zero(t, a.during)
	require.Less(t, a.resumed, 25*ms)
}

func TestPromisesBroken(t *testing.T) {
	burst := func(r *record, at time.Duration) {
		r.arrivals = append(r.arrivals, arrival{at, "0"})
		sortArrivals(r.arrivals)
	}
	away := func(r *record, from, to time.Duration) {
		var left []arrival
		for _, a := range r.arrivals {
			if a.at < from || a.at > to {
				left = append(left, a)
			}
		}
		r.arrivals = left
	}
	for _, c := range []struct {
		name string
		play func(*record, *scene)
		want string
	}{
		{"one too many", func(r *record, _ *scene) { burst(r, 7*time.Second) }, "test: 41 arrivals within a second, 1 too many"},
		{"a limit that was lowered", func(r *record, _ *scene) {
			r.limits = append(r.limits, limit{8 * time.Second, 20})
		}, "test: 40 arrivals within a second, 20 too many"},
		{"too many in flight", func(r *record, _ *scene) {
			for range 4 {
				r.flights = append(r.flights, flight{from: 7 * time.Second, to: 7*time.Second + 30*ms})
			}
		}, "test: 5 in flight, 4 are allowed"},
		{"back late", func(r *record, _ *scene) { away(r, 5*time.Second, 8500*ms) }, "test: the fleet went back to work 3.501s after the return"},
		{"never back", func(r *record, _ *scene) { away(r, 6*time.Second, 10*time.Second) }, "test: the fleet did not go back to work"},
		{"a member never back", func(r *record, s *scene) {
			s.hit = "4"
		}, "test: the fleet did not go back to work"},
		{"nothing in flight", func(r *record, _ *scene) { r.flights = nil }, "test: nothing was in flight any more"},
		{"a penalty that was not kept", func(r *record, s *scene) {
			s.closed, s.opens = 5500*ms, 5600*ms
		}, "test: 4 arrivals while a penalty lasted"},
		{"a caller that is late", func(r *record, _ *scene) {
			r.calls["0"] = []call{{ID: "0/1/2", Kind: dated, Asked: 4 * time.Second, By: 6 * time.Second, Returned: 6101 * ms, Err: "deadline"}}
		}, "test: a caller came back 101ms after its deadline: call 0/1/2, deadline after 2.101s"},
		{"a caller that waits and fails", func(r *record, _ *scene) {
			r.calls["0"] = []call{{Kind: patient, Returned: 6 * time.Second, Err: "store"}}
		}, "test: 1 callers without a deadline failed"},
		{"an unknown error", func(r *record, _ *scene) {
			r.calls["0"] = []call{{Kind: dated, Returned: 6 * time.Second, Err: "other"}}
		}, "test: 1 errors of no known kind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := steady(), aScene()
			c.play(r, s)
			a := r.account(s)
			a.unsure = s.end
			require.Equal(t, []string{c.want}, a.broken())
		})
	}
}

// A stall of the machine excuses what it can have caused, and no more.
func TestStallsExcuse(t *testing.T) {
	r := steady()
	r.stalls = []fleet.Stall{{From: 6500 * ms, To: 6600 * ms}}
	for range 5 {
		r.arrivals = append(r.arrivals, arrival{6600 * ms, "0"})
	}
	sortArrivals(r.arrivals)
	a := r.account(aScene())
	require.Empty(t, a.broken())
	require.Equal(t, "45 of 40 + 5 for a stall", a.worst.String())

	r.arrivals = append(r.arrivals, arrival{6600 * ms, "0"})
	sortArrivals(r.arrivals)
	require.Len(t, r.account(aScene()).broken(), 1)

	late := call{Kind: dated, Asked: 4 * time.Second, By: 6550 * ms, Returned: 6690 * ms, Err: "deadline"}
	r = steady()
	r.calls["0"] = []call{late}
	require.Len(t, r.account(aScene()).broken(), 1)
	r.naps["0"] = []fleet.Stall{{From: 6500 * ms, To: 6600 * ms}}
	a = r.account(aScene())
	require.Empty(t, a.broken())
	require.Equal(t, 90*ms, a.late)

	late.Where = "goroutine 7 [runnable]:\nsomewhere()"
	r = steady()
	r.calls["0"] = []call{late}
	require.Empty(t, r.account(aScene()).broken())
	late.Where = "goroutine 7 [select]:\nsomewhere()"
	r.calls["0"] = []call{late}
	require.Len(t, r.account(aScene()).broken(), 1)
}

// A machine that stood still for long says nothing of times, but all of counts.
func TestBusyMachine(t *testing.T) {
	r := steady()
	r.stalls = []fleet.Stall{{From: 4 * time.Second, To: 4251 * ms}}
	r.arrivals = r.between(0, 8*time.Second)
	a := r.account(aScene())
	require.Negative(t, a.resumed)
	require.Empty(t, a.broken())
	require.Contains(t, a.row(), "too busy to judge times")

	// All lines of the table have as many columns: otherwise it is none in Markdown.
	for line := range strings.SplitSeq(head, "\n") {
		require.Equal(t, strings.Count(a.row(), "|"), strings.Count(line, "|"), line)
	}

	// The verdict on the whole run claims no more than the scenes do.
	var out strings.Builder
	(&program{}).report(&out, []*account{a}, nil)
	require.Contains(t, out.String(), "In 1 of 1 scenes the machine was too busy to judge times.\nEvery promise that was judged was kept.")

	r.stalls[0].To -= 2 * ms
	require.Equal(t, []string{"test: the fleet did not go back to work"}, r.account(aScene()).broken())
}

// What no living member can have known of may come on top, once.
func TestUnreplicatedStartsMayComeOnTop(t *testing.T) {
	r, s := steady(), aScene()
	s.lost = span{2900 * ms, 3 * time.Second}
	for range 3 {
		r.arrivals = append(r.arrivals, arrival{7 * time.Second, "0"})
	}
	sortArrivals(r.arrivals)
	a := r.account(s)
	require.Empty(t, a.broken())
	require.Equal(t, "43 of 40 + 4 lost", a.worst.String())
}
