package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// shop is a policy whose windows are exactly as long as they say.
var shop = throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerSecond(3), Jitter: -1}

// newLimiters returns limiters that a process watches.
func newLimiters(t *testing.T, p *Process, policies ...throttle.Policy) *throttle.Limiters {
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: p, Observe: p.Observe, Policies: policies})
	require.NoError(t, err)
	return l
}

// readOnce returns what a page reads now.
func readOnce(t *testing.T, page reader) *reading {
	r, err := page.read(t.Context(), false)
	require.NoError(t, err)
	return r
}

// TestProcess: what one program uses, how long its requests wait, and what it has started in a second.
func TestProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, shop)
		require.Empty(t, readOnce(t, page).Budgets)
		ctx, leave := context.WithCancel(t.Context())
		for range 10 {
			go func() {
				permit, err := l.Acquire(ctx, throttle.Demand{Policy: "shop"})
				if err == nil {
					permit.Release()
				}
			}()
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		r := readOnce(t, page)
		require.Len(t, r.Budgets, 1)
		b := r.Budgets[0]
		require.Equal(t, "shop", b.Policy)
		require.Equal(t, "example.com", b.Upstream)
		require.Equal(t, store.BudgetOf("shop", "").String(), b.ID)
		require.Equal(t, []string{"3/s"}, b.Limits)
		require.Equal(t, [3]int{3, 3, 7}, [3]int{b.Used, b.Capacity, b.Callers})
		require.Equal(t, int64(2999), b.Wait) // two windows are booked, or waited for
		require.Equal(t, &waits{}, b.Waits)

		time.Sleep(10 * time.Second)
		b = readOnce(t, page).Budgets[0]
		require.Equal(t, 7, b.Waits.Count)
		require.InDelta(t, 2000, b.Waits.Half, 400) // a bucket is a fifth wide
		require.InDelta(t, 3000, b.Waits.Most, 600)
		require.Equal(t, 0.7, b.Starts) // seven in ten seconds
		require.Equal(t, "self", readOnce(t, page).Nodes[0].ID)
		leave()
		synctest.Wait()
	})
}

// TestProcessRates: starts that are given back are no starts.
func TestProcessRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(100)}, throttle.Policy{Name: "bytes", Limit: throttle.PerSecond(1000)})
		acquire := func() {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"}, throttle.Demand{Policy: "bytes", Cost: 50})
			require.NoError(t, err)
		}
		acquire()
		require.Equal(t, float64(unknown), readOnce(t, page).Budgets[0].Starts)
		for range 8 {
			acquire()
		}
		time.Sleep(2 * time.Second)
		r := readOnce(t, page)
		costs := map[string]float64{}
		for _, b := range r.Budgets {
			require.Equal(t, float64(4), b.Starts)
			costs[b.Policy] = b.Cost
		}
		require.Equal(t, map[string]float64{"shop": 4, "bytes": 200}, costs)
		require.Equal(t, float64(4), r.Nodes[0].Starts)

		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop", Cost: 100})
		require.NoError(t, err)
		time.Sleep(900 * time.Millisecond) // the next start is so soon that it is booked at once
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, err := l.Acquire(ctx, throttle.Demand{Policy: "shop"})
			require.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		for _, b := range readOnce(t, page).Budgets {
			if b.Policy == "shop" {
				require.Equal(t, float64(1), b.Starts)
				require.Equal(t, float64(100), b.Cost)
			}
		}
	})
}

// TestProcessRates_Watched: a page that nobody views is read every ten seconds and a moment, and its history has the rates.
func TestProcessRates_Watched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(100)})
		for range 2 {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)
			_ = readOnce(t, page)
			time.Sleep(seldom + time.Millisecond)
		}
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		r := readOnce(t, page)
		require.Equal(t, []float64{0.1, 0.1}, []float64{r.Budgets[0].Starts, r.Nodes[0].Starts})
	})
}

// TestProcessPause: an operator's pause holds callers, whose errors say who and why; it ends, and stands in the audit.
func TestProcessPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, shop)
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		id := readOnce(t, page).Budgets[0].ID
		var open *fleet.NotPausedError
		require.ErrorAs(t, p.resume(t.Context(), id, "ann", "x"), &open)
		require.NoError(t, p.pause(t.Context(), id, time.Minute, "ann", "the shop moves"))
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), throttle.Demand{Policy: "shop"})
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Contains(t, err.Error(), `paused by ann: "the shop moves"`)
		var longer *fleet.LongerError
		require.ErrorAs(t, p.pause(t.Context(), id, time.Second, "bob", "shorter"), &longer)

		r := readOnce(t, page)
		require.Equal(t, time.Now().Add(time.Minute).UnixMilli(), r.Budgets[0].Until)
		require.Equal(t, "ann", r.Budgets[0].By)
		time.Sleep(5 * time.Second)
		require.NoError(t, p.resume(t.Context(), id, "bob", "it has moved"))
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		r = readOnce(t, page)
		require.Zero(t, r.Budgets[0].Until)
		require.Equal(t, []string{"resume", "pause"}, []string{r.Acts[0].Act, r.Acts[1].Act})
		require.Equal(t, "it has moved", r.Acts[0].Reason)
		require.Equal(t, int64(60_000), r.Acts[1].For)

		var target *fleet.TargetError
		require.ErrorAs(t, p.pause(t.Context(), "shop/none", time.Minute, "ann", "x"), &target)
	})
}

// TestProcessBans: what an answer closed while nobody looked is a band all the same.
func TestProcessBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, shop)
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		begun := time.Now()
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(20*time.Second)))
		time.Sleep(30 * time.Second)
		all := make(bands)
		r := readOnce(t, page)
		all.add(r, func(string) bool { return true })
		require.Equal(t, []band{{From: begun.UnixMilli(), Until: begun.Add(20 * time.Second).UnixMilli(), Closer: fleet.ByAnswer}}, r.Budgets[0].Bands)

		permit, err = l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		begun = time.Now()
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(10*time.Second)))
		time.Sleep(3 * time.Second)
		r = readOnce(t, page)
		all.add(r, func(string) bool { return true })
		require.Equal(t, begun.UnixMilli(), r.Budgets[0].Bands[1].From)
		require.Empty(t, r.Budgets[0].By)
	})
}

// TestProcessShadow: what a policy that only counts would have done.
func TestProcessShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		tried := shop
		tried.Shadow = true
		l := newLimiters(t, p, tried)
		readOnce(t, page)
		for range 8 {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)
		}
		b := readOnce(t, page).Budgets[0]
		require.True(t, b.Shadow)
		require.Nil(t, b.Waits)
		require.Equal(t, 5, b.Shadowed.Count)
		require.Positive(t, b.Shadowed.Most)
	})
}

// TestProcessIsBounded: a program that uses many keys is shown by a part of them, and the page says so.
func TestProcessIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		keyed := shop
		keyed.Keyed = true
		l := newLimiters(t, p, keyed)
		for i := range 6000 {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop", Key: string(rune('a' + i))})
			require.NoError(t, err)
		}
		r, err := p.reader(10).read(t.Context(), false)
		require.NoError(t, err)
		require.Len(t, r.Budgets, 10)
		require.Greater(t, r.BudgetsLeftOut, 16*mostInShard-500)
		time.Sleep(soonAgain + time.Second) // and there is room for those that come later
		_, err = l.Acquire(t.Context(), throttle.Demand{Policy: "shop", Key: "new"})
		require.NoError(t, err)
		_, err = p.find(store.BudgetOf("shop", "new").String())
		require.NoError(t, err)
		r, err = p.reader(16*mostInShard).read(t.Context(), false)
		require.NoError(t, err)
		require.Zero(t, r.BudgetsLeftOut, "a budget that found no room is told for a minute")
	})
}

// TestP16_ProcessShowsWhatIsClosed: a budget is shown as long as it is closed or callers wait for it, though callers that wait book nothing
// more, and though 6,000 other budgets are used.
func TestP16_ProcessShowsWhatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		banned, daily, slot := shop, shop, shop
		banned.Name, daily.Name, slot.Name = "banned", "daily", "slot"
		daily.Limit, slot.Limit = throttle.SlidingWindow(1, 24*time.Hour), throttle.Concurrency(1)
		keyed := shop
		keyed.Keyed = true
		l := newLimiters(t, p, banned, daily, slot, keyed)

		crowd := func(name string) {
			for i := range 6000 {
				_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop", Key: fmt.Sprint(name, i)})
				require.NoError(t, err)
			}
		}
		crowd("a")

		ctx, leave := context.WithCancel(t.Context())
		for _, name := range []string{"banned", "daily", "slot"} {
			permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: name})
			require.NoError(t, err)
			if name == "banned" {
				require.NoError(t, permit.Tell(t.Context(), throttle.Refused(10*time.Hour)))
			}
			for range 2 {
				go func() { _, _ = l.Acquire(ctx, throttle.Demand{Policy: name}) }()
			}
		}
		synctest.Wait()

		shown := func() map[string]int {
			callers := make(map[string]int)
			for _, b := range readOnce(t, p.reader(DefaultBudgets)).Budgets {
				if b.Policy != "shop" {
					callers[b.Policy] = b.Callers
				}
				require.Equal(t, b.Policy == "banned", b.Until > 0, b.Policy)
			}
			return callers
		}
		all := map[string]int{"banned": 2, "daily": 2, "slot": 2}
		require.Equal(t, all, shown())
		for i := range 5 {
			time.Sleep(90 * time.Minute)
			crowd(fmt.Sprint("b", i))
			require.Equal(t, all, shown())
		}

		leave()
		synctest.Wait()
		time.Sleep(5 * time.Hour)
		require.Empty(t, readOnce(t, p.reader(DefaultBudgets)).Budgets, "nobody uses them any more")
	})
}

// TestP11_PauseInsideABan: a pause that ends before a ban neither hides the ban nor gives resume the power to open it.
func TestP11_PauseInsideABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, shop)
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(5*time.Minute)))
		begun := time.Now()
		time.Sleep(time.Second)
		id := store.BudgetOf("shop", "").String()
		require.NoError(t, p.pause(t.Context(), id, time.Minute, "ann", "moves"))

		b := readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
		require.Equal(t, []any{fleet.ByAnswer, "", begun.UnixMilli(), begun.Add(5 * time.Minute).UnixMilli()}, []any{b.Closer, b.By, b.Since, b.Until})
		var not *fleet.NotPausedError
		require.ErrorAs(t, p.resume(t.Context(), id, "ann", ""), &not)
		require.Greater(t, not.Closed, 4*time.Minute)

		require.NoError(t, p.pause(t.Context(), id, time.Hour, "ann", "moves"))
		b = readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
		require.Equal(t, []any{fleet.ByOperator, "ann"}, []any{b.Closer, b.By})
		require.NoError(t, p.resume(t.Context(), id, "ann", ""))
		require.Zero(t, readOnce(t, p.reader(DefaultBudgets)).Budgets[0].Until)
	})
}

// TestP11_BanAfterAPause: another program has ended an operator's pause, and an answer closes the budget anew, for less long. Nothing names the
// operator, resume does not open the ban, and a shorter pause is no longer refused.
func TestP11_BanAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New()
		p := NewProcess(shared)
		own, other := newLimiters(t, p, shop), newLimiters(t, NewProcess(shared), shop)
		_, err := own.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		permit, err := other.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		l, err := other.Limiter("shop")
		require.NoError(t, err)
		id := store.BudgetOf("shop", "").String()
		require.NoError(t, p.pause(t.Context(), id, time.Hour, "ann", "moves"))

		// The pause of a note that is young may be on its way.
		require.NoError(t, l.Resume(t.Context(), ""))
		require.ErrorAs(t, p.pause(t.Context(), id, 10*time.Minute, "bob", "an audit"), new(*fleet.LongerError))
		time.Sleep(time.Minute)

		isNotPaused := func(closed time.Duration) {
			t.Helper()
			b := readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
			require.Equal(t, []any{"", "", int64(0)}, []any{b.By, b.Closer, b.Since})
			var not *fleet.NotPausedError
			require.ErrorAs(t, p.resume(t.Context(), id, "bob", ""), &not)
			require.Equal(t, closed, not.Closed)
		}
		isNotPaused(0)

		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(5*time.Minute)))
		isNotPaused(5 * time.Minute)

		require.NoError(t, p.pause(t.Context(), id, 10*time.Minute, "bob", "an audit"))
		b := readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
		require.Equal(t, []any{"bob", fleet.ByOperator}, []any{b.By, b.Closer})
		require.NoError(t, p.resume(t.Context(), id, "bob", ""))
		require.Zero(t, readOnce(t, p.reader(DefaultBudgets)).Budgets[0].Until)
	})
}

// TestP11_BanInsideAPause: an answer that closes a budget within an operator's pause is a closure of its own, and the operator's pause decides.
func TestP11_BanInsideAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		permit, err := newLimiters(t, p, shop).Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		id := store.BudgetOf("shop", "").String()
		require.NoError(t, p.pause(t.Context(), id, time.Minute, "ann", "moves"))
		time.Sleep(time.Second)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(5*time.Second)))
		b := readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
		require.Equal(t, []any{fleet.ByOperator, "ann"}, []any{b.Closer, b.By})

		time.Sleep(2 * time.Minute)
		ended := readOnce(t, p.reader(DefaultBudgets)).Closed[id]
		require.Len(t, ended, 2)
		require.Equal(t, []any{fleet.ByOperator, "ann", time.Minute.Milliseconds()}, []any{ended[0].Closer, ended[0].By, ended[0].Until - ended[0].From})
		require.Equal(t, []any{fleet.ByAnswer, "", (5 * time.Second).Milliseconds()}, []any{ended[1].Closer, ended[1].By, ended[1].Until - ended[1].From})
	})
}

// TestP11_ReasonOfALongerPause: a longer pause has a reason of its own, also for a page that is opened later, and in the history.
func TestP11_ReasonOfALongerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		_, err := newLimiters(t, p, shop).Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		id := store.BudgetOf("shop", "").String()
		require.NoError(t, p.pause(t.Context(), id, time.Minute, "ann", "moves"))
		time.Sleep(30 * time.Second)
		require.NoError(t, p.pause(t.Context(), id, 10*time.Minute, "ann", "an audit"))
		require.Equal(t, "an audit", readOnce(t, p.reader(DefaultBudgets)).Budgets[0].Reason)
		time.Sleep(11 * time.Minute)
		ended := readOnce(t, p.reader(DefaultBudgets)).Closed[id]
		require.Equal(t, "an audit", ended[len(ended)-1].Reason)
	})
}

// TestP11_BansInsideALongPause: many short bans do not make the page forget the pause in which they come.
func TestP11_BansInsideALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		shadow := shop
		shadow.Shadow = true
		l := newLimiters(t, p, shadow)
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		begun := time.Now()
		require.NoError(t, p.pause(t.Context(), store.BudgetOf("shop", "").String(), 6*time.Hour, "ann", "moves"))
		for range mostBands + 10 {
			permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)
			require.NoError(t, permit.Tell(t.Context(), throttle.Refused(time.Second)))
			time.Sleep(10 * time.Second)
		}
		b := readOnce(t, p.reader(DefaultBudgets)).Budgets[0]
		require.Equal(t, []any{fleet.ByOperator, "ann", begun.UnixMilli()}, []any{b.Closer, b.By, b.Since})
	})
}

// TestP11_BandsAreTrue: what pages show as closed was closed, and what was closed they show, whatever closed and opened it: a page that was open all the
// time, a page that is opened at the end, and the source itself.
func TestP11_BandsAreTrue(t *testing.T) {
	for seed := range uint64(soak.Seeds(200, 5)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			p := NewProcess(memstore.New())
			l := newLimiters(t, p, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(1000), Jitter: -1})
			one, err := l.Limiter("shop")
			require.NoError(t, err)
			permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)

			budget, page, all := store.BudgetOf("shop", ""), p.reader(DefaultBudgets), make(bands)
			begun, wasOpen := time.Now(), true
			var live *reading
			var acts []string
			var closed []bool // in each second
			act := func() {
				d := time.Duration(1+r.IntN(120)) * time.Second
				kind := r.IntN(6)
				acts = append(acts, fmt.Sprint(len(closed), ": ", []string{"pause", "pause", "resume", "ban", "program's pause", "program's resume"}[kind], " ", d))
				switch kind {
				case 0, 1: // a shorter pause is refused
					_ = p.pause(t.Context(), budget.String(), d, "ann", []string{"moves", "an audit"}[r.IntN(2)])
				case 2: // a budget that no operator has paused is not resumed
					_ = p.resume(t.Context(), budget.String(), "ann", "")
				case 3:
					require.NoError(t, permit.Tell(t.Context(), throttle.Refused(d)))
				case 4:
					require.NoError(t, one.Pause(t.Context(), "", d))
				case 5:
					require.NoError(t, one.Resume(t.Context(), ""))
				}
			}

			for range 600 {
				if r.IntN(40) == 0 {
					act()
				}
				time.Sleep(500 * time.Millisecond)
				st, err := one.Status(t.Context(), "")
				require.NoError(t, err)
				closed = append(closed, st.Paused > 0)
				live = readOnce(t, page)
				all.add(live, func(string) bool { return wasOpen })
				wasOpen = live.Budgets[0].Until == 0
				time.Sleep(500 * time.Millisecond)
			}

			late := readOnce(t, p.reader(DefaultBudgets))
			make(bands).add(late, func(string) bool { return false })
			for name, shown := range map[string][]band{"open": live.Budgets[0].Bands, "late": late.Budgets[0].Bands, "source": p.closed[budget.Key]} {
				for sec := 2; sec < len(closed)-2; sec++ {
					// Within two seconds of a change, the page may know either.
					if slices.Contains(closed[sec-2:sec+3], !closed[sec]) {
						continue
					}
					at := begun.Add(time.Duration(sec)*time.Second + 500*time.Millisecond).UnixMilli()
					isShown := slices.ContainsFunc(shown, func(b band) bool { return b.From <= at && at < b.Until })
					require.Equal(t, closed[sec], isShown, "seed %d, %s page, second %d: %v", seed, name, sec, acts)
				}
			}
		})
	}
}

// TestMoreClosedThanShown: closed budgets beyond those that a page shows count as closed.
func TestMoreClosedThanShown(t *testing.T) {
	p := NewProcess(memstore.New())
	keyed := shop
	keyed.Keyed = true
	l, err := newLimiters(t, p, keyed).Limiter("shop")
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "c", "d"} {
		require.NoError(t, l.Pause(t.Context(), key, time.Hour))
	}
	r := readOnce(t, p.reader(1))
	require.Equal(t, []int{1, 3, 3}, []int{len(r.Budgets), r.BudgetsLeftOut, r.ClosedLeftOut})
}

// TestProcessPassesOn: the errors of the store reach the program as they are.
func TestProcessPassesOn(t *testing.T) {
	broken := errors.New("broken")
	p := NewProcess(brokenStore{err: broken})
	_, err := p.Book(t.Context(), &store.Booking{Charges: []store.Charge{{Limit: throttle.PerSecond(1), Cost: 1}}})
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, p.Pause(t.Context(), store.Charge{}, time.Second), broken)
	require.ErrorIs(t, p.Resume(t.Context(), store.Charge{}), broken)
	require.Empty(t, p.closed)
}

// brokenStore is a store that fails.
type brokenStore struct {
	throttle.Store
	err error
}

func (b brokenStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, b.err
}
func (b brokenStore) Pause(context.Context, store.Charge, time.Duration) error { return b.err }
func (b brokenStore) Resume(context.Context, store.Charge) error               { return b.err }

// BenchmarkProcessBook measures what watching adds to a booking; the lower line is the store alone.
func BenchmarkProcessBook(b *testing.B) {
	for _, c := range []struct {
		name  string
		store throttle.Store
	}{{"watched", NewProcess(memstore.New())}, {"alone", memstore.New()}} {
		b.Run(c.name, func(b *testing.B) {
			l, err := throttle.NewLimiter(c.store, throttle.Policy{Name: "x", Limit: throttle.PerSecond(1 << 30)})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Acquire(throttle.WithMaxWait(context.Background(), throttle.Forever), "", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestProcessShares: a budget says which shares wait for it, and no name.
func TestProcessShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, throttle.Policy{Name: "model", Match: "example.com/", Limit: throttle.PerHour(1), Share: throttle.Header("X-Tenant")})
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "model", Share: "acme"})
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		for i := range 5 {
			go func() {
				_, _ = l.Acquire(ctx, throttle.Demand{Policy: "model", Share: []string{"acme", "other"}[i%2], Weight: 2})
			}()
		}
		synctest.Wait()
		b := readOnce(t, page).Budgets[0]
		require.Equal(t, []fleet.Share{
			{Name: fmt.Sprintf("%014x", store.ShareOf("model", "acme")), Weight: 2, Waiting: 3},
			{Name: fmt.Sprintf("%014x", store.ShareOf("model", "other")), Weight: 2, Waiting: 2},
		}, b.Shares)
		leave()
		synctest.Wait()
		require.Nil(t, readOnce(t, page).Budgets[0].Shares)
	})
}

// TestToldLimit: a budget shows the limit that an answer told, and since when, in a process and in a fleet's report.
func TestToldLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		page := p.reader(DefaultBudgets)
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Match: "example.com/", Limit: throttle.Told()})
		must(l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})).Release()

		b := readOnce(t, page).Budgets[0]
		require.Equal(t, []string{"told"}, b.Limits)
		require.Zero(t, b.Told)

		at := time.Now()
		c := store.Charge{Budget: store.BudgetOf("shop", ""), Limit: store.Told(), Cost: 1}
		require.NoError(t, p.Store.Reconcile(t.Context(), c, store.Quota{Told: store.PerMinute(9)}))
		time.Sleep(90 * time.Second)
		b = readOnce(t, page).Budgets[0]
		require.Equal(t, []string{"told", store.PerMinute(9).String()}, b.Limits)
		require.Equal(t, at.UnixMilli(), b.Told)

		reported := fleet.Budget{Name: "shop", Policy: "shop", Limits: []string{"told"}, State: fleet.StateOf(store.Status{Told: store.PerMinute(9), ToldAgo: 90 * time.Second})}
		require.Equal(t, at.UnixMilli(), budgetOfFleet(&reported, time.Now(), time.Now()).Told)
	})
}

// TestPlacesBehindWrappers: callers keep their places behind a process, also one that is behind a fleet's reporter.
func TestPlacesBehindWrappers(t *testing.T) {
	for _, store := range []*Process{NewProcess(memstore.New()), NewProcess(&fleet.Reporter{Store: memstore.New()})} {
		l := newLimiters(t, store, throttle.Policy{Name: "a", Limit: throttle.PerHour(1)})
		require.NoError(t, l.CheckPlaces())
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "a"})
		require.NoError(t, err)
		_, place, err := l.Reserve(t.Context(), nil, throttle.Demand{Policy: "a"})
		require.NoError(t, err)
		require.NotNil(t, place)
	}
}
