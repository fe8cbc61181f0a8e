// Package moments plays random schedules of callers that need several budgets at once, in
// virtual time: lines of every kind, costs, priorities, callers with a bounded patience,
// callers that leave, pauses. It judges what no such schedule may show, whatever store it is
// played on: that a caller asks again and again at one moment, and that a limit is passed.
package moments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// Play plays the schedule of a seed on the stores of some programs, in a bubble, and returns the mistakes.
func Play(ctx context.Context, seed uint64, stores ...throttle.Store) error {
	s := newSchedule(rand.New(rand.NewPCG(seed, 3)))
	j := &judge{policies: s.policies, starts: make(map[string][]start)}

	var programs []throttle.Store
	for _, st := range stores {
		programs = append(programs, &program{Store: st, judge: j})
	}

	var all sync.WaitGroup
	for _, c := range s.callers {
		all.Go(func() { j.note(c.live(ctx, programs[c.program%len(programs)], s.policies, j)) })
	}

	if s.pausedFor > 0 {
		all.Go(func() { j.note(s.pause(ctx, programs[0])) })
	}

	all.Wait()
	j.limits()
	return errors.Join(j.wrong...)
}

// A schedule is policies, and who comes when and wants what.
type schedule struct {
	policies            []throttle.Policy
	callers             []caller
	pausedAt, pausedFor time.Duration
}

// A caller wants one start, and keeps its slots for a while.
type caller struct {
	program                int
	demands                []throttle.Demand
	priority               throttle.Priority
	maxWait                time.Duration // 0 is the default of a Config, a minute
	comes, stays, patience time.Duration
}

var lengths = []time.Duration{time.Second, 100 * time.Second, 1399 * time.Millisecond, 700 * time.Millisecond}

// newSchedule makes two or three policies of mixed kinds, and up to sixty callers.
func newSchedule(r *rand.Rand) *schedule {
	s := new(schedule)
	per := lengths[r.IntN(len(lengths))]
	for i := range 2 + r.IntN(2) {
		length := per
		if r.IntN(4) == 0 {
			length = lengths[r.IntN(len(lengths))]
		}

		p := throttle.Policy{Name: fmt.Sprint("policy ", i), Limit: limit(r, length, i), Keyed: i == 1} // the second has keys
		if k := p.Limit.Kind(); r.IntN(4) == 0 && k != store.KindConcurrency && k != store.KindLeakyBucket {
			p.Headroom = map[throttle.Priority]float64{throttle.PriorityLow: 0.5}
		}

		s.policies = append(s.policies, p)
	}

	// Callers of a few programs and keys, with bounds from none to several windows.
	keys, sameCost := 1+r.IntN(3), r.IntN(2) == 0
	for range 20 + r.IntN(40) {
		c := caller{
			program:  r.IntN(60),
			priority: throttle.Priority(r.IntN(3) - 1),
			maxWait:  []time.Duration{0, 0, per / 3, per, time.Duration(1 + r.Int64N(int64(3*per)))}[r.IntN(5)],
			comes:    time.Duration(r.Int64N(int64(2 * per))),
			stays:    time.Duration(r.Int64N(int64(per / 4))),
			patience: 20 * per,
		}

		// Some callers give up while they wait.
		if r.IntN(5) == 0 {
			c.patience = time.Duration(r.Int64N(int64(per)))
		}

		// Every caller needs all policies, at equal costs or at different ones.
		cost := 1 + r.IntN(4)
		for i, p := range s.policies {
			d := throttle.Demand{Policy: p.Name, Cost: min(cost, max(1, p.Limit.Capacity()/2))}
			if !sameCost {
				d.Cost = 1 + r.IntN(d.Cost)
			}
			if p.Limit.Kind() == store.KindConcurrency {
				d.Cost = 1
			}
			if i == 1 {
				d.Key = fmt.Sprint(r.IntN(keys))
			}

			c.demands = append(c.demands, d)
		}

		s.callers = append(s.callers, c)
	}

	if r.IntN(3) == 0 {
		s.pausedAt, s.pausedFor = time.Duration(r.Int64N(int64(per))), per/2
	}

	return s
}

// limit returns a random limit for the policy of a number. Policy 0 never has a Concurrency limit.
func limit(r *rand.Rand, per time.Duration, policy int) throttle.Limit {
	n := []int{10, 4, 2 + r.IntN(8)}[policy]
	switch k := r.IntN(10); {
	case k == 0:
		return throttle.LeakyBucket(n, per)
	case k < 3:
		return throttle.SlidingWindow(n, per)
	case k < 5:
		return throttle.TokenBucket(n, per, n)
	case k == 5 && policy > 0:
		return throttle.Concurrency(3)
	}
	return throttle.FixedWindow(n, per)
}

// live comes at the caller's time, acquires, stays and releases. It notes a mistake if the caller waits beyond its MaxWait.
// A refusal, and the end of the caller's patience, are no errors.
func (c *caller) live(ctx context.Context, p throttle.Store, policies []throttle.Policy, j *judge) error {
	time.Sleep(c.comes)
	limiters, err := throttle.NewLimiters(throttle.Config{Store: p, Policies: policies, MaxWait: c.maxWait})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(throttle.WithWaitOnly(throttle.WithPriority(ctx, c.priority)), c.patience)
	defer cancel()
	came := time.Now()
	permit, err := limiters.Acquire(ctx, c.demands...)
	if waited := time.Since(came); c.maxWait > 0 && waited > c.maxWait+grace {
		j.note(fmt.Errorf("a caller with MaxWait %v waited %v", c.maxWait, waited))
	}

	if err != nil {
		if errors.Is(err, throttle.ErrLimited) || errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}

	// The judge counts the start now, and the slots are free after stays.
	j.started(c.demands)
	time.Sleep(c.stays)
	permit.Release()

	return nil
}

// grace is how much longer than its MaxWait a caller may take to be refused.
const grace = 100 * time.Millisecond

// pause closes the first budget for a while, and opens it before that is over.
func (s *schedule) pause(ctx context.Context, p throttle.Store) error {
	time.Sleep(s.pausedAt)
	limiters, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: p, Policies: s.policies})
	if err != nil {
		return err
	}

	l, err := limiters.Limiter(s.policies[0].Name)
	if err != nil {
		return err
	}
	if err := l.Pause(ctx, "", s.pausedFor); err != nil {
		return err
	}

	// Starts that were booked behind the pause are too late when it ends early: callers must move up.
	time.Sleep(s.pausedFor / 2)
	return l.Resume(ctx, "")
}

// asksAlone is how often a caller may ask in a row at one moment: to join a line, to come for its
// turn, and to take a start in place of a lost start. asksInAll is how often a caller may ask at one moment
// if others ask in between, which changes the lines: callers that need slots, too, may send each other
// between two lines and back.
const (
	asksAlone = 3
	asksInAll = 8
)

// A judge sees all that programs ask and all that starts.
type judge struct {
	policies []throttle.Policy
	mu       sync.Mutex
	last     *store.Booking         // who asked last
	at       time.Time              // when that was
	alone    int                    // how often last has asked in a row at that moment
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

	// The wait may be 0 only for slots: nobody knows when a slot comes free.
	inLine := err == nil && g.Ready != nil && g.Handle == (store.Handle{})
	if inLine && g.Wait <= 0 && b.Charges[g.HeldBy].Limit.Kind() != store.KindConcurrency {
		p.judge.note(errors.New("a caller in line is told to wait for no time"))
	}
	return g, err
}

// asked counts a booking, and reports whether callers ask too often at this moment.
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

// note keeps a mistake, unless it is nil.
func (j *judge) note(err error) {
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.wrong = append(j.wrong, err)
	}
}

// started notes a start of each demand.
func (j *judge) started(demands []throttle.Demand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range demands {
		budget := d.Policy + "\n" + d.Key
		j.starts[budget] = append(j.starts[budget], start{time.Now(), d.Cost})
	}
}

// limits notes each window with too many starts: any window of a sliding limit, the windows of the
// clock of a fixed one.
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

// inWindow returns the cost of the starts from the first one to the end of its window, or 0 for a limit without windows.
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
