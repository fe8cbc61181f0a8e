package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// A viewer has a stream open. It is an http.ResponseWriter.
type viewer struct {
	leave context.CancelFunc

	mu       sync.Mutex
	head     http.Header
	text     strings.Builder
	flushed  int // bytes
	deadline time.Time
}

func (v *viewer) Header() http.Header { return v.head }
func (v *viewer) WriteHeader(int)     {}

func (v *viewer) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(p)
}

func (v *viewer) FlushError() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flushed = v.text.Len()
	return nil
}

func (v *viewer) SetWriteDeadline(at time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deadline = at
	return nil
}

// sent returns all that the viewer was sent, and by when it has to take it.
func (v *viewer) sent() (string, time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.String(), v.deadline
}

// look opens a stream. last is the id of the event that the viewer saw last.
func look(t *testing.T, h http.Handler, last string) *viewer {
	ctx, leave := context.WithCancel(t.Context())
	v := &viewer{leave: leave, head: make(http.Header)}
	r := cameIn("127.0.0.1:7072")
	r.URL.Path = "/events"
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	go h.ServeHTTP(v, r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, r.Context().Value(http.LocalAddrContextKey))))
	return v
}

// An event is one that a viewer got.
type event struct {
	kind, id string
	data     document
}

// events returns what the viewer got.
func (v *viewer) events(t *testing.T) (all []event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	require.Equal(t, v.text.Len(), v.flushed)
	for block := range strings.SplitSeq(strings.TrimSuffix(v.text.String(), "\n\n"), "\n\n") {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				require.NoError(t, json.Unmarshal([]byte(value), &e.data))
			}
		}
		if e.kind != "" {
			all = append(all, e)
		}
	}
	return all
}

// state returns what the viewer knows after all events.
func (v *viewer) state(t *testing.T) document {
	var state any
	for _, e := range v.events(t) {
		if e.kind == "state" {
			state = e.data["state"]
		} else {
			state = merge(state, any(e.data))
		}
	}
	return state.(document)
}

// used returns how much of the budget of counting the viewer knows to be used.
func (v *viewer) used(t *testing.T) any {
	return v.state(t)["budgets"].(document)["shop/1"].(document)["used"]
}

// TestStream: a viewer gets all there is, then what changes each second; the source is read once for all viewers,
// and not at all while nobody looks.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fixed{next: counting}
		h := newHandler(t, Config{Source: source})
		time.Sleep(time.Hour)
		require.Zero(t, source.count())

		var all []*viewer
		for range 100 {
			all = append(all, look(t, h, ""))
		}
		synctest.Wait()
		require.Equal(t, 1, source.count())
		time.Sleep(5500 * time.Millisecond)
		require.Equal(t, 6, source.count())
		for _, v := range all {
			require.Equal(t, float64(6), v.used(t))
		}
		events := all[0].events(t)
		require.Len(t, events, 6)
		require.Equal(t, "state", events[0].kind)
		require.Equal(t, []any{float64(1)}, events[0].data["points"].(document)["shop/1"].(document)["used"])
		require.Equal(t, "change", events[1].kind)
		require.Equal(t, document{"shop/1": document{"used": float64(2)}}, events[1].data["budgets"])
		head := all[0].head
		require.Equal(t, "text/event-stream; charset=utf-8", head.Get("Content-Type"))
		require.Equal(t, "no-store", head.Get("Cache-Control"))
		require.Equal(t, "no", head.Get("X-Accel-Buffering"))
		text, deadline := all[0].sent()
		require.True(t, strings.HasPrefix(text, "retry: 2000\n\n"))
		require.True(t, deadline.After(time.Now()) && !deadline.After(time.Now().Add(writeTime)))

		for _, v := range all {
			v.leave()
		}
		time.Sleep(linger + every)
		read := source.count()
		time.Sleep(time.Hour)
		require.Equal(t, read, source.count())
		require.LessOrEqual(t, read, 6+int(linger/every)+1)

		late := look(t, h, "") // the first thing that it gets is new
		synctest.Wait()
		require.Len(t, late.events(t), 1)
		require.Equal(t, float64(read+1), late.used(t))
		late.leave()
		time.Sleep(linger + every)
	})
}

// TestReplay: a viewer that comes back gets what it has missed, and all there is if that is too much.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fixed{next: counting}
		h := newHandler(t, Config{Source: source})
		stays := look(t, h, "")
		time.Sleep(3500 * time.Millisecond)
		seen := stays.events(t)[1].id
		back := look(t, h, seen)
		synctest.Wait()
		events := back.events(t)
		require.Len(t, events, 2)
		require.Equal(t, "change", events[0].kind)
		require.Equal(t, stays.events(t)[2:], events)

		other := look(t, h, "OTHER-2") // an id of a server that was there before
		synctest.Wait()
		require.Equal(t, "state", other.events(t)[0].kind)
		time.Sleep(2 * (replayed + 1) * every)
		tooLate := look(t, h, seen)
		synctest.Wait()
		require.Equal(t, "state", tooLate.events(t)[0].kind)
		for _, v := range []*viewer{stays, back, other, tooLate} {
			v.leave()
		}
		time.Sleep(linger + every)
	})
}

// TestHeartbeat: a stream is never silent for long, also while the source does not answer.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		h := newHandler(t, Config{Source: &fixed{next: func(n int) (*reading, error) {
			<-block
			return counting(n)
		}}})
		v := look(t, h, "")
		time.Sleep(heartbeat + time.Millisecond)
		text, _ := v.sent()
		require.Contains(t, text, "\n: still here\n\n")
		close(block)
		v.leave()
		time.Sleep(linger + every)
	})
}

// TestFailure: a source that cannot be read is said to be so, and since when; what was known stays.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Source: &fixed{next: func(n int) (*reading, error) {
			if n == 3 || n == 4 {
				return nil, errors.New("no answer \x1b[2J")
			}
			return counting(n)
		}}})
		v := look(t, h, "")
		begun := time.Now()
		time.Sleep(3500 * time.Millisecond)
		require.Equal(t, `no answer \x1b[2J`, v.state(t)["failed"])
		require.Equal(t, float64(begun.Add(2*time.Second).UnixMilli()), v.state(t)["failedAt"])
		require.Equal(t, float64(begun.Add(time.Second).UnixMilli()), v.state(t)["at"], "the moment of the data, not of the failure")
		require.Equal(t, float64(2), v.used(t))

		late := look(t, h, "")
		synctest.Wait()
		require.Equal(t, float64(begun.Add(time.Second).UnixMilli()), late.state(t)["at"])
		require.Equal(t, float64(begun.Add(2*time.Second).UnixMilli()), late.state(t)["failedAt"])
		late.leave()
		time.Sleep(time.Second)
		require.NotContains(t, v.state(t), "failed")
		require.Equal(t, float64(5), v.used(t))
		v.leave()
		time.Sleep(linger + every)
	})
}

// TestTooManyViewers: there is a bound, and the place of who leaves is free again.
func TestTooManyViewers(t *testing.T) {
	s := newSampler(&fixed{}, "x")
	s.running = true // nothing is read
	for range mostViewers {
		require.True(t, s.join())
	}
	require.False(t, s.join())
	s.leave()
	require.True(t, s.join())
}

// TestNoData: a source that was never read has no moment, so nothing claims to be as of now.
func TestNoData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Source: &fixed{next: func(int) (*reading, error) { return nil, errors.New("away") }}})
		v := look(t, h, "")
		synctest.Wait()
		require.Equal(t, float64(0), v.state(t)["at"])
		require.Equal(t, "away", v.state(t)["failed"])
		v.leave()
		time.Sleep(linger + every)
	})
}

// TestWatch: while a page is watched over, the source is read though nobody looks, and who comes later finds what was before.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fixed{next: counting}
		h := newHandler(t, Config{Source: source})
		ctx, end := context.WithCancel(t.Context())
		go h.Watch(ctx)
		begun := time.Now()
		time.Sleep(3*time.Hour - time.Millisecond)
		require.Equal(t, 3*60*6, source.count())

		v := look(t, h, "")
		synctest.Wait()
		require.Equal(t, 3*60*6+1, source.count(), "who comes need not wait ten seconds")
		require.Equal(t, true, v.state(t)["watched"])
		time.Sleep(10*time.Second - time.Millisecond)
		require.Equal(t, 3*60*6+10, source.count())

		all, known := h.sampler.history("shop/1")
		require.True(t, known)
		require.Equal(t, begun.UnixMilli()-begun.UnixMilli()%coarseStep.Milliseconds(), all.At[0])
		require.Less(t, len(all.At), 600)
		for i := 1; i < len(all.At); i++ {
			apart := time.Duration(all.At[i]-all.At[i-1]) * time.Millisecond
			require.Positive(t, apart)
			require.LessOrEqual(t, apart, 2*coarseStep)
			if all.At[i-1] > time.Now().Add(-remembered).UnixMilli() {
				require.LessOrEqual(t, apart, seldom)
			}
		}
		_, sentence, known := h.sampler.why("shop/1", begun.Add(30*time.Minute).UnixMilli())
		require.True(t, known)
		require.NotEmpty(t, sentence.English)

		v.leave()
		end()
		time.Sleep(linger + seldom)
		read := source.count()
		time.Sleep(time.Hour)
		require.Equal(t, read, source.count())
	})
}

// A blind viewer forgets what it is sent.
type blind struct{ head http.Header }

func (b *blind) Header() http.Header              { return b.head }
func (b *blind) WriteHeader(int)                  {}
func (b *blind) Write(p []byte) (int, error)      { return len(p), nil }
func (b *blind) FlushError() error                { return nil }
func (b *blind) SetWriteDeadline(time.Time) error { return nil }

// TestViewersShareBytes: a thousand viewers take the memory of one, at their first event and at the next ones.
func TestViewersShareBytes(t *testing.T) {
	soak.WithoutRace(t)
	synctest.Test(t, func(t *testing.T) {
		many := func(n int) (*reading, error) {
			r := &reading{At: time.Now(), Kind: kindProcess}
			for i := range 300 {
				id := fmt.Sprintf("shop/%03d", i)
				r.Budgets = append(r.Budgets, budget{ID: id, Name: id, Policy: "shop", Limits: []string{"20/s"}, Kind: windowed, Capacity: 20, Used: n % 20})
			}
			return r, nil
		}
		h := newHandler(t, Config{Source: &fixed{next: many}})
		first := look(t, h, "")
		time.Sleep(3 * time.Minute)
		text, _ := h.sampler.all()
		require.Greater(t, len(text.text), 1<<20, "else the test says nothing")

		ctx, leave := context.WithCancel(t.Context())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range mostViewers - 1 {
			r := cameIn("127.0.0.1:7072").WithContext(ctx)
			go h.sampler.stream(&blind{make(http.Header)}, r)
		}
		synctest.Wait()
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mostViewers/20*len(text.text)), "one in twenty has bytes of its own")

		leave()
		first.leave()
		time.Sleep(linger + every)
	})
}

// TestLabels: a viewer sees what Config.Label calls a budget. Without it, and where it has no name, there is none.
func TestLabels(t *testing.T) {
	for want, label := range map[string]func(policy, budget string) string{
		"":                nil,
		"shop's \\u202e1": func(policy, budget string) string { return policy + "'s \u202e" + strings.TrimPrefix(budget, "shop/") },
	} {
		synctest.Test(t, func(t *testing.T) {
			v := look(t, newHandler(t, Config{Source: &fixed{next: counting}, Label: label}), "")
			synctest.Wait()
			got, _ := v.state(t)["budgets"].(document)["shop/1"].(document)["label"].(string)
			require.Equal(t, want, got)
			v.leave()
			time.Sleep(time.Minute) // the source is not read any more
		})
	}
}
