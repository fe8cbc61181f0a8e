package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/demo/chart"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// A silence is the effect of a ban on the fleet.
type silence struct {
	outsider int           // calls of the outsider
	answered int           // calls of the fleet that were answered with the ban
	stopped  time.Duration // from the first of them to the last
	from, to time.Time     // the last of them, and the next call that arrived
	back     int           // calls in the second that began then
}

// silenceIn finds the ban's effect in the upstream's log.
func silenceIn(log []dingtalktest.Arrival) (s silence) {
	ours := slices.DeleteFunc(slices.Clone(log), func(a dingtalktest.Arrival) bool { return a.API == outsiderPath })
	s.outsider = len(log) - len(ours)

	var first time.Time
	for _, a := range ours {
		switch {
		case a.Refusal == dingtalktest.Banned:
			if first.IsZero() {
				first = a.At
			}

			s.answered++
			s.from, s.stopped = a.At, a.At.Sub(first)
			s.to, s.back = time.Time{}, 0

		case first.IsZero():
		case s.to.IsZero():
			s.to, s.back = a.At, 1
		case a.At.Before(s.to.Add(time.Second)):
			s.back++
		}
	}

	return s
}

// length is how long nobody called.
func (s silence) length() time.Duration {
	if s.to.IsZero() {
		return 0
	}
	return s.to.Sub(s.from)
}

// gap is the silence as the picture has it: the seconds in which nobody called,
// counted from begin.
func (s silence) gap(begin time.Time) chart.Gap {
	if s.to.IsZero() {
		return chart.Gap{}
	}
	from, to := int(s.from.Sub(begin)/time.Second)+1, int(s.to.Sub(begin)/time.Second)
	return chart.Gap{From: from, To: max(from, to), Name: fmt.Sprintf("silent for %.1f s", s.length().Seconds())}
}

func (s silence) print(w io.Writer) {
	fmt.Fprintf(w, "outsider   %d calls from the same address, without the library\n", s.outsider)
	fmt.Fprintf(w, "banned     %d calls had the ban for an answer, all within %d ms\n", s.answered, s.stopped.Milliseconds())
	fmt.Fprintf(w, "silent     for %.1f s\n", s.length().Seconds())
	fmt.Fprintf(w, "back       with %d calls in the first second\n\n", s.back)
}
