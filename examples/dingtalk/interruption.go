package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/demo/chart"
	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// An interruption is what a ban did to the fleet.
type interruption struct {
	outsiders int           // calls of the outsider
	answered  int           // calls of the fleet that were answered with the ban
	from      time.Time     // when the first of them arrived
	stopped   time.Duration // until the last of them
	to        time.Time     // the next call that arrived; zero: none did
	back      int           // calls in the second that began then
}

// isOutsiders reports whether an arrival is the outsider's.
func isOutsiders(a fake.Arrival) bool { return a.API == outsiderPath }

// interruptionIn finds the ban in the log of an upstream; nil if the fleet met none.
func interruptionIn(log []fake.Arrival) *interruption {
	ours := slices.DeleteFunc(slices.Clone(log), isOutsiders)
	met := func(a fake.Arrival) bool { return a.Refusal == fake.Banned }
	first := slices.IndexFunc(ours, met)
	if first < 0 {
		return nil
	}
	i := &interruption{outsiders: len(log) - len(ours), from: ours[first].At}
	for _, a := range ours[first:] {
		switch {
		case met(a):
			i.answered++
			i.stopped = a.At.Sub(i.from)
			continue
		case a.At.Before(i.from.Add(i.stopped)):
			continue
		case i.to.IsZero():
			i.to = a.At
		}
		if a.At.Before(i.to.Add(time.Second)) {
			i.back++
		}
	}
	return i
}

// silence is how long nobody called.
func (i *interruption) silence() time.Duration {
	if i.to.IsZero() {
		return 0
	}
	return i.to.Sub(i.from.Add(i.stopped))
}

// parts are the moments before and after the silence; all of them without one.
func (i *interruption) parts(moments []time.Time) [][]time.Time {
	if i == nil || i.to.IsZero() {
		return [][]time.Time{moments}
	}
	n, _ := slices.BinarySearchFunc(moments, i.to, time.Time.Compare)
	return [][]time.Time{moments[:n], moments[n:]}
}

// gap is the silence as the picture has it: the seconds in which nobody called,
// counted from begin.
func (i *interruption) gap(begin time.Time) chart.Gap {
	second := func(t time.Time) int { return int(t.Sub(begin) / time.Second) }
	g := chart.Gap{From: second(i.from.Add(i.stopped)) + 1, To: second(i.to), Name: "silent for " + seconds(i.silence())}
	g.To = max(g.From, g.To) // less than a second is none
	return g
}

func (i *interruption) print(w io.Writer) {
	fmt.Fprintf(w, "outsider   %s calls from the same address, without the library\n", thousands(i.outsiders))
	fmt.Fprintf(w, "stopped    %d ms after the first answer with the ban; %s had it\n",
		i.stopped.Milliseconds(), plural(i.answered, "call"))
	if i.to.IsZero() {
		return
	}
	fmt.Fprintf(w, "silent     for %s\n", seconds(i.silence()))
	fmt.Fprintf(w, "back       with %s in the first second\n", plural(i.back, "call"))
}
