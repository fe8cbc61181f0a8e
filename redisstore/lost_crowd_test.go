package redisstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP8_LostBatch loses the answer of a call that serves many callers. Each gets
// a start of its own, without a gap, and each is charged once.
func TestP8_LostBatch(t *testing.T) {
	t.Parallel()
	const callers = 50
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	for _, how := range []redistest.How{redistest.CutBefore, redistest.CutAfter} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, tap := loaded(t, proxy.Client(t), isScript)
				paced := charge("paced", throttle.LeakyBucket(1, time.Second))
				hourly := charge("hourly", throttle.PerHour(1000))
				var all []**outcome // the first is on its way, the others share the next call
				for range 1 + callers {
					all = append(all, bookAside(t.Context(), s, booking(paced, hourly)))
				}
				f := proxy.Disturb(how)
				close(tap.pass)
				f.Await(t)
				time.Sleep(time.Second) // the store may pause before it repeats
				synctest.Wait()
				starts := make(map[time.Duration]bool)
				for _, got := range all {
					require.NoError(t, (*got).err)
					starts[time.Duration((*got).grant.Handle.Start-(*all[0]).grant.Handle.Start)*time.Microsecond] = true
				}
				for i := range 1 + callers {
					require.True(t, starts[time.Duration(i)*time.Second], "nobody starts at %d s", i)
				}
				st, err := s.Status(t.Context(), hourly)
				require.NoError(t, err)
				require.Equal(t, 1+callers, st.Used+st.Waiting)
			})
		})
	}
}

// TestP8_CrowdAfterLosses lets many callers come at once while answers are lost
// in every way.
func TestP8_CrowdAfterLosses(t *testing.T) {
	t.Parallel()
	const callers = 50
	for name, change := range clients {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, change)
			w.five.Limit = throttle.PerHour(callers)
			var late []*redistest.Fault
			for _, how := range hows {
				f := w.proxy.Disturb(how)
				if how == redistest.HoldCall || how == redistest.HoldReply {
					late = append(late, f)
				}
			}
			waits := make(chan time.Duration)
			for range callers {
				go func() {
					g, err := w.store.Book(t.Context(), booking(w.five))
					if err != nil || !g.OK {
						g.Wait = throttle.Never
					}
					waits <- g.Wait
				}()
			}
			for range callers {
				require.Zero(t, <-waits)
			}
			w.charged(callers)
			// There may have been fewer calls than losses.
			for range hows {
				book(t, w.store, inGroup("other", charge("other", throttle.PerHour(1))))
			}
			for _, f := range late {
				f.Pass(t)
			}
			w.charged(callers)
			w.room(0)
		})
	}
}
