package moments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// asksAlone is how often a caller may ask at one moment while no second caller does: to
// join a line, to come for its turn, and to take a start in place of a lost one. asksInAll is how
// often it may while others do, who change the lines: callers that need slots, too, may send each other
// between two lines and back. It bounds a caller's own questions.
const (
	asksAlone = 3
	asksInAll = 8
)

// A judge sees all that programs ask and all that starts.
type judge struct {
	policies []throttle.Policy
	mu       sync.Mutex
	last     *store.Booking
	at       time.Time
	alone    int
	asks     map[*store.Booking]int // at this moment
	starts   map[string][]start     // by policy and key
	wrong    []error
}

// A start takes its cost of a budget.
type start struct {
	at   time.Time
	cost int
}

// A program is its store.
type program struct {
	throttle.Store
	judge *judge
}

var errAsksAgain = errors.New("a caller asks again and again at one moment")

// Book ends the wait of a caller that asks too often.
func (p *program) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if p.judge.asked(b) {
		return store.Grant{}, errAsksAgain
	}
	g, err := p.Store.Book(ctx, b)
	if err == nil && g.Ready != nil && g.Handle == (store.Handle{}) && g.Wait <= 0 && b.Charges[g.HeldBy].Limit.Kind() != store.KindConcurrency {
		p.judge.note(errors.New("a caller in line is told to wait for no time"))
	}
	return g, err
}

func (j *judge) asked(b *store.Booking) (tooOften bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := time.Now(); !j.at.Equal(now) {
		j.at, j.last, j.asks = now, nil, make(map[*store.Booking]int)
	}
	if j.last != b {
		j.last, j.alone = b, 0
	}
	j.alone++
	j.asks[b]++
	return j.alone > asksAlone || j.asks[b] > asksInAll
}

func (j *judge) note(err error) {
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.wrong = append(j.wrong, err)
	}
}

func (j *judge) started(demands []throttle.Demand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range demands {
		budget := d.Policy + "\n" + d.Key
		j.starts[budget] = append(j.starts[budget], start{time.Now(), d.Cost})
	}
}

// limits looks at the starts of each window: any for a sliding one, the windows of the clock for a
// fixed one.
func (j *judge) limits() {
	for _, p := range j.policies {
		for budget, starts := range j.starts {
			if name, _, _ := strings.Cut(budget, "\n"); name != p.Name {
				continue
			}

			slices.SortFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
			for i := range starts {
				if n := inWindow(p.Limit, starts[i:]); n > p.Limit.N() {
					j.note(fmt.Errorf("%d starts of %s", n, p.Limit))
				}
			}
		}
	}
}

// inWindow sums what starts in the window in which the first one is, from that one on.
func inWindow(l throttle.Limit, starts []start) (n int) {
	first, per := starts[0].at.UnixMicro(), l.Per().Microseconds()
	for _, s := range starts {
		at := s.at.UnixMicro()
		switch {
		case l.Kind() == store.KindSlidingWindow && at-first < per:
		case l.Kind() == store.KindFixedWindow && at/per == first/per:
		default:
			return n
		}
		n += s.cost
	}
	return n
}
