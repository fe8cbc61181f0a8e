package redisstore

import (
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// While Redis is away it is asked again after pauses that double between these
// two.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// insist makes a call until it is known what became of it, or nobody wants to
// know; then it returns false. A call that is made again has the same number, by
// which Redis knows whether it was done already.
func (s *Store) insist(l *lane, b *batch) bool {
	b.flights = s.takeFloors(b.callers)
	answered := false
	defer func() { s.leaveFloors(b.flights, answered) }()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		sent := time.Now()
		if b.sent.IsZero() {
			b.sent = sent
		}
		if len(b.flights) > 0 && sent.Sub(b.sent) > leaseTime-leaseDoubt {
			// What it took in flight is gone, whatever the record says.
			b.number, b.sent = s.lanes.number(), sent
		}
		got, err := s.callBook(b)
		switch {
		case err != nil && len(b.callers) > 1 && undone(err):
			s.lanes.singly(l, b)
			return true
		case err == nil || !passing(err):
			answered = err == nil
			s.deliver(l, b, got, sent, err)
			s.flights.learn(b, err)
			return true
		case !s.lanes.failed(l, b, err):
			return false
		}
		select {
		case <-time.After(pause):
		case <-l.left:
		}
		b.age(time.Since(sent))
	}
}

// callBook makes the call once.
func (s *Store) callBook(b *batch) ([]outcome, error) {
	var f *form
	sent, again := time.Now(), false
	v, err := s.call(wire.Book, func(e edges) ([]string, numbers) {
		s.sort(b, again, e.shut)
		again = true
		f = s.write(b, e)
		return f.keys, f.args(b.number, time.Since(b.sent))
	}, s.more(b)...)
	if err != nil {
		return nil, err
	}
	return s.read(b, f, v, sent, time.Now())
}

// age takes what has passed off the patience of those who wait.
func (b *batch) age(passed time.Duration) {
	less := func(wait *int64) {
		if *wait > 0 {
			*wait = max(0, *wait-micros(passed))
		}
	}
	for _, c := range b.callers {
		less(&c.maxWait)
	}
	for i := range b.runs {
		less(&b.runs[i].maxWait)
	}
}

// undone reports whether a call failed for good before it did anything: a key held
// something else, its row could not be read, or a start was too far away.
func undone(err error) bool {
	if errors.Is(err, errFar) {
		return true
	}
	var said redis.Error
	return errors.As(err, &said) && !passing(err) &&
		(strings.HasPrefix(said.Error(), "WRONGTYPE ") || strings.HasPrefix(said.Error(), "ERR "))
}

// unready begins what a server says that may serve soon.
var unready = []string{
	"LOADING ", "BUSY ", "ERR max number of clients reached",
	"READONLY ", "MASTERDOWN ", "NOREPLICAS ", // a failover goes on
	"CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", // or a cluster changes
	"OOM ", "MISCONF ", // no memory or no disk for more
}

// passing reports whether asking again may help. What the server itself says is
// final, unless it says that it is not ready.
func passing(err error) bool {
	for _, final := range []error{redis.ErrClosed, errFar, errAnswer, errOvertaken, errLone} {
		if errors.Is(err, final) {
			return false
		}
	}
	var away *net.OpError
	var said redis.Error
	if errors.As(err, &away) || !errors.As(err, &said) {
		return true
	}
	return slices.ContainsFunc(unready, func(p string) bool { return strings.HasPrefix(said.Error(), p) })
}
