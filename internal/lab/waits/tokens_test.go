package waits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

const (
	tokensPerMinute = 60_000
	tokenSpan       = time.Minute + acquire.DefaultJitter
)

// A guess is what callers think that an answer costs, and what it does cost.
type guess struct{ estimate, real int }

// guesses are ten times too high and too low.
var guesses = []guess{{4000, 400}, {500, 700}}

// possible is the share of the limit that is spent at the most if each start counts as its
// estimate until the answer has come: then the estimates of those on their way, and what the
// others of a window did cost, are the limit.
func (g guess) possible(answer time.Duration) float64 {
	length := tokenSpan.Seconds()
	early := answer.Seconds()
	perSecond := tokensPerMinute / (float64(g.estimate)*early + float64(g.real)*(length-early))
	return perSecond * float64(g.real) * length / tokensPerMinute
}

// tokens lets workers ask in a closed loop for answers that cost other than they
// were guessed to.
func tokens(t *testing.T) (rows []row) {
	for _, g := range guesses {
		for _, answer := range []time.Duration{time.Second, 10 * time.Second} {
			for _, workers := range []int{20, 100, 300} {
				if answer > time.Second && workers == 20 {
					continue // they cannot use it up
				}
				name := fmt.Sprintf("estimate %d, real %d, %d workers, answers in %v: spent", g.estimate, g.real, workers, answer)
				spent := spentTokens(t, g, workers, answer)
				switch {
				case g.estimate < g.real && answer <= time.Second:
					rows = append(rows, within(name, spent, tokensLowLeast, tokensLowMost))
				case g.estimate > g.real && answer <= time.Second:
					rows = append(rows, within(name, spent, tokensHighLeast, tokensHighMost))
				default:
					rows = append(rows, told(name, "%s", percent(spent)))
				}
			}
		}
	}
	return rows
}

// spentTokens returns the share of the limit that is truly spent after the first
// two windows.
func spentTokens(t *testing.T, g guess, workers int, answer time.Duration) float64 {
	return spentBy(newStage(t), []*throttle.Limiter{newLimiter(memstore.New(), store.PerMinute(tokensPerMinute))}, g, workers, answer)
}

// spentBy is spentTokens where the workers use some limiters by turns.
func spentBy(s stage, limiters []*throttle.Limiter, g guess, workers int, answer time.Duration) float64 {
	end := inFull[time.Duration](12, 6) * tokenSpan
	ctx, over := context.WithCancel(s.t.Context())
	defer time.AfterFunc(end, over).Stop()
	var mu sync.Mutex
	var list []spend
	var all sync.WaitGroup
	for i := range workers {
		l := limiters[i%len(limiters)]
		all.Go(func() {
			for {
				at, err := g.spend(ctx, s, l, answer)
				if err != nil {
					require.ErrorIs(s.t, err, context.Canceled)
					return
				}
				mu.Lock()
				list = append(list, at)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return used(list, 2*tokenSpan, end-answer, tokensPerMinute, tokenSpan)
}

// spend lets one caller wait, get its answer and say what it cost.
func (g guess) spend(ctx context.Context, s stage, l *throttle.Limiter, answer time.Duration) (spend, error) {
	p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", g.estimate)
	if err != nil {
		return spend{}, err
	}
	at := s.now()
	if err := pass(ctx, answer); err != nil {
		return spend{}, errors.Join(err, p.Tell(context.Background(), throttle.Answer{}.WithCost(g.real)))
	}
	return spend{at, g.real}, p.Tell(ctx, throttle.Answer{}.WithCost(g.real))
}

// recovery guesses four times too much at half of the load. A pause of a minute
// leaves a queue, which must be gone some time later.
func recovery(t *testing.T) []row {
	const pause, later = 3 * time.Minute, 17 * time.Minute
	g := guess{2000, 500}
	s, l := newStage(t), newLimiter(memstore.New(), store.PerMinute(tokensPerMinute))
	end := pause + time.Minute + later
	visits := poisson(1, 0, end+time.Minute, dice(1))
	s.at(pause, func() { must(0, l.Pause(t.Context(), "", time.Minute)) })
	s.play(visits, end+20*time.Minute, func(ctx context.Context, v *visit) error {
		at, err := g.spend(ctx, s, l, time.Second)
		if err == nil {
			v.start = at.at
		}
		return err
	})
	worst := func(from, to time.Duration) (wait time.Duration) {
		for i := range visits {
			v := &visits[i]
			switch {
			case v.came < from || v.came >= to:
			case v.started():
				wait = max(wait, v.waited())
			default:
				wait = max(wait, s.now()-v.came)
			}
		}
		return wait
	}
	return []row{
		atMost("estimate 4 × too high, half of the load, a pause of a minute: waits 17 min later", worst(end, end+time.Minute), waitRecovered).
			also("before it %v, 5 min later %v", short(worst(2*time.Minute, pause-time.Second)), short(worst(pause+6*time.Minute, pause+7*time.Minute))),
	}
}
