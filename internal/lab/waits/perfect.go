package waits

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// A line is the rule of a perfect queue: at most n starts in any interval of a
// length. The limit may change.
type line struct {
	n       int
	span    time.Duration // the window and the jitter
	changes []change      // by time
}

// A change is a limit that holds from a time on.
type change struct {
	at time.Duration
	n  int
}

// lineOf returns the line of n a second with the default jitter.
func lineOf(n int, changes ...change) line {
	return line{n, time.Second + acquire.DefaultJitter, changes}
}

// rate is how many starts fit in a second.
func (l line) rate() float64 { return float64(l.n) / l.span.Seconds() }

// at returns the limit at a time and when it changes next.
func (l line) at(t time.Duration) (n int, until time.Duration) {
	n = l.n
	for _, c := range l.changes {
		if c.at > t {
			return n, c.at
		}
		n = c.n
	}
	return n, 1<<63 - 1
}

// perfect returns the visits as a perfect queue serves them: in order of arrival,
// each as early as the line allows. A visit that leaves takes nothing. The visits
// are sorted by arrival.
func (l line) perfect(visits []visit) []visit {
	served := slices.Clone(visits)
	var starts []time.Duration
	for i := range served {
		v := &served[i]
		v.start, v.err = l.next(starts, v.came, v.cost()), nil
		if v.maxWait > 0 && v.start > v.came+v.maxWait {
			v.start = never
			continue
		}

		for range v.cost() {
			starts = append(starts, v.start)
		}
	}

	return served
}

// next returns the earliest start of a cost from t on that comes after all others.
func (l line) next(starts []time.Duration, t time.Duration, cost int) time.Duration {
	last := len(starts)
	if last > 0 {
		t = max(t, starts[last-1])
	}
	for {
		n, until := l.at(t)
		i := last + cost - 1 - n // what must have left the window
		if i < 0 || starts[i]+l.span <= t {
			return t
		}
		t = min(starts[i]+l.span, until)
	}
}

// shared returns the visits as a perfect scheduler serves them that has one line
// for each api and one for all of them: whenever there is room, the first of
// those starts that both of its lines have room for.
func shared(wide, each line, apis int, visits []visit) []visit {
	served := slices.Clone(visits)
	queues, starts := make([][]int, apis), make([][]time.Duration, apis)
	var common []time.Duration

	now, coming := time.Duration(0), 0
	for {
		best, at := -1, time.Duration(0)
		for api, q := range queues {
			if len(q) == 0 {
				continue
			}

			t := max(each.next(starts[api], now, 1), wide.next(common, now, 1))
			if best < 0 || t < at || t == at && q[0] < queues[best][0] {
				best, at = api, t
			}
		}

		switch {
		case coming < len(served) && (best < 0 || served[coming].came <= at):
			now = served[coming].came
			queues[served[coming].api] = append(queues[served[coming].api], coming)
			coming++

		case best < 0:
			return served
		default:
			now = at
			served[queues[best][0]].start = at
			queues[best] = queues[best][1:]
			starts[best], common = append(starts[best], at), append(common, at)
		}
	}
}
