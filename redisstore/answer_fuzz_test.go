package redisstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A forger is a hook that answers scripts in the server's place, each with the
// next part of a text.
type forger struct {
	mu    sync.Mutex // a call that takes long is repeated while it is on its way
	rest  []byte
	calls int
}

func (*forger) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*forger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *forger) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Millisecond) // meanwhile others may come, who share the next call
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls++
		if f.calls > 10_000 {
			panic("a broken Redis is asked again and again")
		}
		answer := f.answer()
		if err, ok := answer.(error); ok {
			return failing(cmd, err)
		}
		cmd.(interface{ SetVal(any) }).SetVal(answer)
		return nil
	}
}

// forgedNumbers are what a byte above 239 stands for. A lesser one is itself, less
// eight.
var forgedNumbers = []float64{
	math.NaN(), math.Inf(1), math.Inf(-1), 1 << 53, -(1 << 53), 1 << 62, 1 << 63, -(1 << 63), math.MaxFloat64, 0.5, -0.5, 1 << 31, 1e15,
}

// forgedValues are answers that hold no numbers, by the byte behind a byte 239.
var forgedValues = []any{int64(1), true, []any{}, []any{[]any{}}, redis.Nil, said("ERR"), said("WRONGTYPE x"), said("MOVED x y"), said("ASK")}

// answer makes numbers of the text up to the next byte 255, and what 254 says is
// not even numbers.
func (f *forger) answer() any {
	var out []byte
	now := float64(time.Now().UnixMicro())
	for len(f.rest) > 0 {
		b := f.rest[0]
		f.rest = f.rest[1:]
		var v float64
		switch {
		case b == 255:
			return string(out)
		case b == 239 && len(f.rest) > 0:
			which := int(f.rest[0]) % len(forgedValues)
			f.rest = f.rest[1:]
			return forgedValues[which]
		case b == 254:
			out = append(out, 'x')
			continue
		case b == 253:
			v = now
		case b >= 240:
			v = forgedNumbers[b-240]
		case b >= 200:
			v = now + float64(b-220)*1e5
		default:
			v = float64(b) - 8
		}
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
	}
	return string(out)
}

// forge is the other way: small numbers, 253 for the time.
func forge(numbers ...int) (text []byte) {
	for _, n := range numbers {
		if n < 200 {
			n += 8
		}
		text = append(text, byte(n))
	}
	return append(text, 255)
}

// FuzzAnswers has a Redis that is broken or hostile: whatever scripts answer, no
// method panics or takes much, and what it returns makes sense.
func FuzzAnswers(f *testing.F) {
	const now, soon = 253, 230
	budget := []int{1, 1, 1, now, 0}
	row := []int{1, 1, 1, now, 3, 9, 1, 0, 0, 0, 0} // with an earlier generation, and a line
	line := []int{7, 3, 1, 0, 2, 0, 0, 5, 0, 0, 100, 0, 0, 150, 0}
	other := slices.Clone(line)
	other[0], other[2] = 9, 2 // another line, and those whose turn it is are called
	granted := forge(append([]int{0, now, 0, 0, 1, 1, now, 0, 0}, budget...)...)
	again := forge(append([]int{0, now, soon, 1, 1, 1, now, 0, 0}, budget...)...)
	waits := forge(append([]int{0, now, 0, 0, 1, 1, soon, 1, soon}, budget...)...)
	seats := forge(append([]int{0, now, 0, 0, 1, 2, now, 0, 0}, append(budget, 1, 1, 1, 0)...)...)
	inLine := forge(append([]int{0, now, 0, 0, 1, 0, -1, 2, 0}, append(budget, 1, 1, 1, 1, 1)...)...)
	stands := forge(slices.Concat([]int{0, now, 0, 0, 1, 4, soon, 1, 0, soon, 1, 1, 7, 3, 0}, row, line)...)
	called := forge(slices.Concat([]int{0, now, 0, 0, 1, 4, soon, 1, 0, soon, 1, 1, 7, 3, 1}, row, other)...)
	crowd := forge(slices.Concat([]int{0, now, 0, 0, 2, 4, soon, 1, 0, soon + 5, 1, 1, 7, 3, 0}, row, line)...)
	tickets := forge(slices.Concat([]int{0, now, 0, 0, 1, 4, soon, 1, 0, soon, 2, 1, 7, 3, 2, 2, 8, 0, 0}, row, line, row, other)...)
	noTicket := forge(slices.Concat([]int{0, now, 0, 0, 1, 4, soon, 1, 0, soon, 0}, row, line)...)
	notHis := forge(slices.Concat([]int{0, now, 0, 0, 1, 4, soon, 1, 0, soon, 1, 2, 7, 3, 0}, row, line)...)
	edges, late := forge(1, now, soon), forge(2, now)
	for kind := range uint8(18) {
		for _, answers := range [][]byte{granted, again, waits, seats, inLine, stands, called, crowd, tickets, noTicket, notHis, edges, late, {}, {254}, {240, 240, 255},
			{239, 0, 239, 1, 239, 2}, {239, 3, 239, 4, 239, 5}, {239, 6, 239, 7, 239, 8}} {
			f.Add(kind, append(append([]byte{}, answers...), answers...))
		}
		f.Add(kind, append(append([]byte{}, edges...), granted...))
		f.Add(kind, slices.Concat(stands, stands, granted, called))
		f.Add(kind, slices.Concat(granted, crowd, stands, crowd))
		f.Add(kind, append(append([]byte{}, waits...), forge(0, now, 0, 0, 0, 0, 0)...))
	}
	f.Fuzz(func(t *testing.T, kind uint8, script []byte) {
		synctest.Test(t, func(t *testing.T) { playAnswers(t, kind, script) })
	})
}

// playAnswers asks all that can be asked.
func playAnswers(t *testing.T, kind uint8, script []byte) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("nobody is there")
	}})
	defer client.Close()
	client.AddHook(&forger{rest: script})
	s := redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
	s.Disconnect()
	limit := [...]store.Limit{
		store.PerSecond(3), store.CalendarWindow(3, store.Month, nil), store.TokenBucket(1, time.Second, 5),
		store.LeakyBucket(3, time.Second), store.FixedWindow(3, time.Minute), store.PerSecond(3),
	}[kind%6]
	first := charge("first", limit)
	shadow := charge("shadow", store.PerHour(3))
	shadow.Shadow = true
	charges := [][]store.Charge{{first}, {first, inGroup("first", charge("flight", store.Concurrency(2)))},
		{first, inGroup("first", shadow)}}[kind/6%3]

	var others sync.WaitGroup
	defer func() {
		for others.Wait(); s.Running() > 0; {
			time.Sleep(time.Millisecond)
		}
	}()
	for range 3 {
		others.Go(func() { standAnswers(t, s, charges) })
	}
	b := &store.Booking{Charges: charges, MaxWait: time.Minute}
	g, err := s.Book(t.Context(), b)
	if err == nil {
		require.GreaterOrEqual(t, g.Wait, time.Duration(0))
		require.GreaterOrEqual(t, g.Age, time.Duration(0))
		require.GreaterOrEqual(t, g.HeldBy, -1)
		require.Less(t, g.HeldBy, len(charges))
		news := make(chan struct{}, 1)
		if g.OK {
			w := s.Watch(b, g, news)
			_, _ = w.Confirm(t.Context(), -1)
			w.Stop()
			_ = s.Settle(t.Context(), b, g, make([]int, len(charges)))
		}
		s.Release(b, g)
		s.Cancel(b, g)
	}
	_ = s.Pause(t.Context(), first, math.MaxInt64)
	_ = s.Resume(t.Context(), first)
	_ = s.Reconcile(t.Context(), first, store.Quota{Left: math.MaxInt, Reset: math.MaxInt64})
	for _, c := range charges {
		if st, err := s.Status(t.Context(), c); err == nil {
			require.GreaterOrEqual(t, st.Wait, time.Duration(0))
			require.GreaterOrEqual(t, st.Paused, time.Duration(0))
		}
	}
	_, _ = s.Book(t.Context(), b)
}

// standAnswers does what callers do that may stand in line.
func standAnswers(t *testing.T, s *redisstore.Store, charges []store.Charge) {
	b := &store.Booking{Charges: slices.Clone(charges), MaxWait: -1, Horizon: near}
	for range 3 {
		g, err := s.Book(t.Context(), b)
		if err != nil {
			break
		}
		if g.OK || g.Ready == nil {
			s.Release(b, g)
			return
		}
		select {
		case <-g.Ready:
		case <-time.After(time.Second):
		}
		b.Turn, b.Instead, b.Returns = g.Turn, g.Handle, true
		defer s.Cancel(b, g)
	}
}
