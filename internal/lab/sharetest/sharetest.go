// Package sharetest has tests of shares that stores run through the callers of package throttle.
package sharetest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// manySharesWarm is for how long nothing is compared: at first the budget is idle, and the callers that come first start at
// once.
const manySharesWarm = 5 * time.Second

// ManyShares checks that n shares, each with some callers that come again as soon as they have started, have equal parts of a budget, or
// parts in proportion to their weights 1 and 2. Over the given seconds no part is off by more than the slack and one start, and at least 97 % of the starts that the
// limit allows is used.
func ManyShares(t *testing.T, newStore func(*testing.T) store.Store, slack float64, shares, callers, rate int, weighted bool, seconds time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiters(throttle.Config{
			Store: newStore(t), MaxWait: time.Hour, Policies: []throttle.Policy{{Name: "model", Limit: store.PerSecond(rate)}},
		})
		if err != nil {
			t.Fatal(err)
		}

		weight := func(i int) int {
			if weighted {
				return 1 + i%2
			}
			return 1
		}

		began := time.Now()
		ctx, stop := context.WithCancel(t.Context()) // a caller with a deadline that cannot be met would be refused

		// Each caller comes again as soon as it has started. Starts count after a warm-up.
		started := make([]int, shares*callers) // by each caller
		for i := range started {
			share := i % shares
			go func() {
				for {
					_, err := l.Acquire(ctx, throttle.Demand{Policy: "model", Share: strconv.Itoa(share), Weight: weight(share)})
					if err != nil {
						return
					}
					if time.Since(began) > manySharesWarm {
						started[i]++
					}
				}
			}()
		}

		time.Sleep(manySharesWarm + seconds*time.Second)
		stop()
		synctest.Wait()

		checkParts(t, started, slack, shares, weight, rate, seconds)
	})
}

// checkParts fails if a share started much more or less than its part, or if all shares together used less than 97 % of what
// the limit allows. started is by caller: the i-th caller is of share i modulo shares.
func checkParts(t *testing.T, started []int, slack float64, shares int, weight func(int) int, rate int, seconds time.Duration) {
	t.Helper()
	all, weights := 0, 0

	parts := make([]float64, shares) // what each got, over its weight
	for i, n := range started {
		all += n
		parts[i%shares] += float64(n) / float64(weight(i%shares))
	}

	for i := range shares {
		weights += weight(i)
	}

	fair := float64(all) / float64(weights)
	least, most, sum, squares := parts[0], parts[0], 0.0, 0.0
	for _, p := range parts {
		least, most, sum, squares = min(least, p), max(most, p), sum+p, squares+p*p
	}

	jain := sum * sum / (float64(len(parts)) * squares)
	t.Logf("%d shares: from %.0f to %.0f of %.1f, Jain's index %.3f, %d starts", shares, least, most, fair, jain, all)

	// Starts are whole: one more or less is no error.
	if least < fair*(1-slack)-1 || most > fair*(1+slack)+1 {
		t.Errorf("P5 (first come, first served) broken: of %d shares one got %.0f and one %.0f, where %.1f are fair", shares, least, most, fair)
	}
	if possible := float64(rate) * float64(seconds) * float64(time.Second) / float64(time.Second+acquire.DefaultJitter); float64(all) < 0.97*possible {
		t.Errorf("P3 (nearly all of the limit is used) broken: %d starts of %.0f", all, possible)
	}
}

// OneByOne plays two shares of a budget of rate starts a second: one of the given weight with a single caller, which comes again as soon as it has started,
// and one of weight 1 with a heap of callers that do the same. It returns how many starts each had in the given seconds, and fails if less than 97 % of
// the limit was used.
func OneByOne(t *testing.T, newStore func(*testing.T) store.Store, rate, weight, heap int, seconds time.Duration) (single, rest int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiters(throttle.Config{
			Store: newStore(t), MaxWait: time.Hour, Policies: []throttle.Policy{{Name: "model", Limit: store.PerSecond(rate)}},
		})
		if err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())

		// The first caller is the single one, and all others are the heap.
		started := make([]int, 1+heap)
		for i := range started {
			d := throttle.Demand{Policy: "model", Share: "heap", Weight: 1}
			if i == 0 {
				d.Share, d.Weight = "single", weight
			}

			go func() {
				for {
					if _, err := l.Acquire(ctx, d); err != nil {
						return
					}
					if time.Since(began) > manySharesWarm {
						started[i]++
					}
				}
			}()
		}

		time.Sleep(manySharesWarm + seconds*time.Second)
		stop()
		synctest.Wait()

		single = started[0]
		for _, n := range started[1:] {
			rest += n
		}
	})

	if possible := float64(rate) * float64(seconds) * float64(time.Second) / float64(time.Second+acquire.DefaultJitter); float64(single+rest) < 0.97*possible {
		t.Errorf("P3 (nearly all of the limit is used) broken: %d/s, a heap of %d: %d starts of %.0f", rate, heap, single+rest, possible)
	}

	return single, rest
}

// ManyCallers is a number at which some callers of each share always stand in line: a share without a waiting caller gets no credit. A row of a
// database has 512 places.
const ManyCallers = 420

// FairBound plays random shares, see Unfairness, and checks the bound of start-time fair queueing. A store that deals room out ahead may exceed the
// bound by the given windows' worth of the limit.
func FairBound(t *testing.T, newStore func(*testing.T) store.Store, seed uint64, maxCost int, windows float64) {
	t.Helper()
	if excess := Unfairness(t, newStore, seed, maxCost, ManyCallers); excess > windows {
		t.Errorf("P5 (first come, first served) broken: shares differ by %.2f windows' worth more than the bound of start-time fair queueing, where %.2f are allowed", excess, windows)
	}
}

// Unfairness plays random shares of a limit of 40 a second, with equal numbers of callers, weights of 1 to 9 and costs of 1 to maxCost. It returns by how
// much they exceed the bound of start-time fair queueing (Goyal, Vin and Cheng, 1996, theorem 1), in windows' worth of the limit over the sum of all
// weights. By that bound the costs that two shares f and g start in any interval, each divided by the share's weight w, differ by at most
// L_f/w_f + L_g/w_g, where L is the largest cost of a share's callers.
func Unfairness(t *testing.T, newStore func(*testing.T) store.Store, seed uint64, maxCost, callers int) float64 {
	t.Helper()
	const rate, seconds = 40, 20
	r := rand.New(rand.NewPCG(seed, 7))
	shares := make([]fairShare, 2+r.IntN(6))
	callersOfEach := callers / len(shares)

	weights := 0
	for i := range shares {
		shares[i] = fairShare{weight: 1 + r.IntN(9), maxCost: 1 + r.IntN(maxCost)}
		weights += shares[i].weight
	}

	var starts []fairStart
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiters(throttle.Config{
			Store: newStore(t), MaxWait: time.Hour, Policies: []throttle.Policy{{Name: "model", Limit: store.PerSecond(rate)}},
		})
		if err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())

		// Each caller asks again at once, so that each share always has callers. Starts of the first moments do not count.
		var mu sync.Mutex
		for i := range len(shares) * callersOfEach {
			share, random := i%len(shares), rand.New(rand.NewPCG(seed, uint64(100+i)))
			go func() {
				for {
					cost := 1 + random.IntN(shares[share].maxCost)
					_, err := l.Acquire(ctx, throttle.Demand{Policy: "model", Share: strconv.Itoa(share), Weight: shares[share].weight, Cost: cost})
					if err != nil {
						return
					}

					if time.Since(began) > manySharesWarm {
						mu.Lock()
						starts = append(starts, fairStart{time.Since(began), share, cost})
						mu.Unlock()
					}
				}
			}()
		}

		time.Sleep(manySharesWarm + seconds*time.Second)
		stop()
		synctest.Wait()
	})

	excess := float64(unfairness(shares, starts)) * float64(weights) / (weightMultiple * rate)
	t.Logf("seed %d: %d shares, %v, %d starts, %.2f windows' worth above the bound", seed, len(shares), shares, len(starts), excess)
	return excess
}

// A fairShare is a share of FairBound, whose callers cost from 1 to maxCost.
type fairShare struct{ weight, maxCost int }

// A fairStart is the start of one caller of a share.
type fairStart struct {
	at          time.Duration
	share, cost int
}

// weightMultiple is a multiple of all weights from 1 to 9. Starts are counted in whole parts of it: sums of fractions are rounded, and shares that
// reach the bound exactly would seem to exceed it.
const weightMultiple = 2520

// unfairness returns how far the starts exceed the bound of start-time fair queueing, in units of 1/weightMultiple, or 0 if they keep it. The service
// of a share is the cost of its starts over its weight. For each two shares unfairness takes the largest difference of their service over any interval,
// less the bound. It returns the largest excess of all pairs.
func unfairness(shares []fairShare, starts []fairStart) (excess int) {
	// got is the service of each share, and low and high are the extremes of the difference of two shares.
	n := len(shares)
	got, low, high := make([]int, n), make([]int, n*n), make([]int, n*n)
	for i, s := range starts {
		got[s.share] += s.cost * weightMultiple / shares[s.share].weight
		if i+1 < len(starts) && starts[i+1].at == s.at {
			continue // starts of one moment have no order
		}

		for f := range n {
			for g := range f {
				// The difference over an interval is its value at the end less its value at the beginning, so high - low is the largest.
				d := got[f] - got[g]
				low[f*n+g], high[f*n+g] = min(low[f*n+g], d), max(high[f*n+g], d)
			}
		}
	}

	for f := range n {
		for g := range f {
			bound := shares[f].maxCost*weightMultiple/shares[f].weight + shares[g].maxCost*weightMultiple/shares[g].weight
			excess = max(excess, high[f*n+g]-low[f*n+g]-bound)
		}
	}

	return excess
}
