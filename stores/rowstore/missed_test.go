package rowstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A troubled is a database with news whose next looks and steps fail: looks before or when the rows have been read.
type troubled struct {
	notifier
	blind, looks, steps atomic.Int32  // how many of them fail
	gate                chan struct{} // steps that are saved return when it is closed; nil: at once
}

func (d *troubled) Read(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if d.blind.Load() > 0 {
		return d.fail(&d.blind, nil)
	}
	return d.fail(&d.looks, d.notifier.Transact(ctx, group, keys, do))
}

func (d *troubled) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if d.steps.Load() > 0 {
		return d.fail(&d.steps, nil)
	}
	err := d.notifier.Transact(ctx, group, keys, do)
	if d.gate != nil {
		<-d.gate
	}
	return err
}

func (d *troubled) fail(left *atomic.Int32, err error) error {
	if left.Load() > 0 {
		left.Add(-1)
		return errLost
	}
	return err
}

// TestP11_NewsOutliveErrors: a sleeper hears of a penalty though the database fails for a moment just when the node looks, or takes
// in what it has seen.
func TestP11_NewsOutliveErrors(t *testing.T) {
	for name, breaks := range map[string]func(*troubled){
		"the look sees nothing": func(d *troubled) { d.blind.Store(2) }, // a look is made twice
		"the look fails":        func(d *troubled) { d.looks.Store(2) },
		"more looks fail":       func(d *troubled) { d.looks.Store(4) },
		"the step fails":        func(d *troubled) { d.steps.Store(1) },
		"more steps fail":       func(d *troubled) { d.steps.Store(2) },
		"first one, then other": func(d *troubled) { d.looks.Store(2); d.steps.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := notifier{newMemory()}
				d := &troubled{notifier: m}
				news := sleeper(t, must(rowstore.New(d, rowstore.Options{})))
				synctest.Wait()
				breaks(d)
				began := time.Now()
				c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
				require.NoError(t, must(rowstore.New(m, rowstore.Options{})).Pause(t.Context(), c, time.Hour))
				select {
				case <-news:
					require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
				case <-time.After(10 * time.Second):
					t.Fatal("the news are lost")
				}
			})
		})
	}
}

// TestP11_NewsOutliveStepsOfOthers: a sleeper hears of a penalty though its node was to look by a step for another caller, which failed.
func TestP11_NewsOutliveStepsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := notifier{newMemory()}
		d := &troubled{notifier: m}
		s := must(rowstore.New(d, rowstore.Options{}))
		news, w := watched(t, s)
		defer w.Stop()
		synctest.Wait()
		d.gate = make(chan struct{})
		book := func() { _, _ = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(9)}}) }
		go book()
		synctest.Wait() // it is saved, and what comes now comes together
		c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
		require.NoError(t, must(rowstore.New(m, rowstore.Options{})).Pause(t.Context(), c, time.Hour))
		go book()
		synctest.Wait()
		d.steps.Store(1)
		began := time.Now()
		close(d.gate)
		<-news
		require.Zero(t, d.steps.Load(), "nothing has failed")
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
	})
}

// TestP10_NobodyLooksForNobody: a node that cannot look does not go on trying when nobody is to hear news any more.
func TestP10_NobodyLooksForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := notifier{newMemory()}
		d := &troubled{notifier: m}
		_, w := watched(t, must(rowstore.New(d, rowstore.Options{})))
		synctest.Wait()
		d.blind.Store(1000)
		c := store.Charge{Budget: store.Budget{Policy: "minutely", Key: [16]byte{3}}, Limit: store.PerMinute(1), Cost: 1}
		require.NoError(t, must(rowstore.New(m, rowstore.Options{})).Pause(t.Context(), c, time.Hour))
		time.Sleep(10 * time.Second)
		require.Less(t, d.blind.Load(), int32(960), "nobody has looked")
		w.Stop()
		time.Sleep(time.Minute)
		left := d.blind.Load()
		time.Sleep(time.Hour)
		require.Equal(t, left, d.blind.Load())
	})
}

// TestP3_TurnsOutliveErrors: the database fails for a moment just when it is a waiter's turn. Its node goes on soon, however
// long its lease is.
func TestP3_TurnsOutliveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &troubled{notifier: notifier{newMemory()}}
		l, err := throttle.NewLimiter(must(rowstore.New(d, rowstore.Options{Lease: 2 * time.Hour})),
			throttle.Policy{Name: "one", Limit: store.PerMinute(1)})
		require.NoError(t, err)
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		began := time.Now()
		time.AfterFunc(40*time.Second, func() { d.steps.Store(1) })
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		require.Zero(t, d.steps.Load(), "nothing has failed")
		require.LessOrEqual(t, time.Since(began), 61*time.Second)
	})
}

// TestP4_ReleasesOutliveErrors: what could not be given back because the database failed is given back soon, however long the lease of the
// node is.
func TestP4_ReleasesOutliveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := notifier{newMemory()}
		d, o := &troubled{notifier: m}, rowstore.Options{Lease: 2 * time.Hour}
		held, err := limiter(t, must(rowstore.New(d, o))).Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		d.steps.Store(1)
		held.Release()
		began := time.Now()
		_, err = limiter(t, must(rowstore.New(m, o))).Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), time.Second)
	})
}

// TestP12_DoubtsEndSoon: a reply is lost, and the database is away for some seconds. When it is there again callers go on soon.
func TestP12_DoubtsEndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &accident{err: errLost}
		a.loses.Store(true)
		s := must(rowstore.New(&broken{newMemory(), a.before, a.after}, rowstore.Options{}))
		began, away := time.Now(), 4600*time.Millisecond
		time.AfterFunc(away, a.isOver)
		require.True(t, now(t, s, hourly(9)))
		require.LessOrEqual(t, time.Since(began)-away, 250*time.Millisecond)
		require.Equal(t, 1, used(t, s, hourly(9)))
	})
}
