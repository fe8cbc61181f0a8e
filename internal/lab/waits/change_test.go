package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

func perSecond(n int) throttle.Policy {
	return throttle.Policy{Name: "api", Match: "/", Limit: store.PerSecond(n)}
}

// raised doubles the limit while a thousand wait.
func raised(t *testing.T) []row {
	const at = 2 * time.Second
	s := newStage(t)
	visits := crowd(1000)
	tr := newTransport(upstream{stage: s}, memstore.New(), perSecond(20))
	s.at(at, func() { must(0, tr.SetPolicies([]throttle.Policy{perSecond(40)})) })
	s.play(visits, time.Hour, s.transport(tr))
	best := lineOf(20, change{at, 40}).perfect(visits)
	return []row{
		below("20/s raised to 40/s, 1,000 wait: the last one, times perfect", last(visits).Seconds()/last(best).Seconds(), timesRaised).
			also("%v for %v", short(last(visits)), short(last(best))),
	}
}

// keptOrder changes something while a queue of 20 seconds waits and more come.
func keptOrder(t *testing.T) (rows []row) {
	const at = 30 * time.Second
	set := func(n int) func(stage, *throttle.Transport) {
		return func(_ stage, tr *throttle.Transport) { must(0, tr.SetPolicies([]throttle.Policy{perSecond(n)})) }
	}
	for _, c := range []struct {
		name   string
		change func(stage, *throttle.Transport)
	}{
		{"raised to 40/s", set(40)},
		{"raised to 21/s", set(21)},
		{"lowered to 19/s", set(19)},
		{"Pause and Resume after 1 s", func(s stage, tr *throttle.Transport) {
			l := must(tr.Limiter("api"))
			must(0, l.Pause(s.t.Context(), "", 10*time.Second))
			s.at(at+time.Second, func() { must(0, l.Resume(s.t.Context(), "")) })
		}},
	} {
		s := newStage(t)
		visits := join(crowd(100), poisson(30, 0, at+15*time.Second, dice(1)))
		tr := newTransport(upstream{stage: s}, memstore.New(), perSecond(20))
		s.at(at, func() { c.change(s, tr) })
		s.play(visits, time.Hour, s.transport(tr))
		rows = append(rows, atMost(fmt.Sprintf("20/s %s: passed by", c.name), passed(visits), passedChange).
			also("by one that came %v later", short(passedByLater(visits))))
	}
	return rows
}
