package redisstore

import (
	"context"
	"strconv"
	"time"
)

// A proof says since when an ear has heard all that was published: it hears what
// it says itself, by the way that news of pauses take. A connection that is up is
// no proof. It may be half open, or lead to a server that is master no more.
type proof struct {
	subscribed time.Time // when the server had confirmed the channel of pauses; zero: not yet
	since      time.Time // of all that was published since then nothing was lost; zero: of nothing
	until      time.Time // and before then
	said       time.Time // when we said something last
	saying     bool      // and that is still on its way to the server
}

const (
	probeEvery = time.Second
	leastQuiet = 50 * time.Millisecond
	probeMark  = "~"            // begins what an ear says to itself
	trust      = 2 * probeEvery // for how long after the last proof an ear is believed to hear
)

// born is what the times in what ears say are counted from.
var born = time.Now()

// listening notes that the channel of pauses is confirmed.
func (es *ears) listening(e *ear) {
	es.mu.Lock()
	defer es.mu.Unlock()
	e.proof = proof{subscribed: time.Now(), saying: e.proof.saying}
}

// deaf notes that the connection is gone.
func (es *ears) deaf(e *ear) {
	es.mu.Lock()
	defer es.mu.Unlock()
	e.proof = proof{saying: e.proof.saying}
}

// heard notes what the ear heard of itself.
func (es *ears) heard(e *ear, nanos string) {
	n, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil {
		return
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	p, said := &e.proof, born.Add(time.Duration(n))
	if p.subscribed.IsZero() || said.Before(p.subscribed) {
		return // it was said before the connection could hear all
	}
	if p.since.IsZero() {
		p.since = said
	}
	p.until = said
}

// covers reports whether the ear of that channel has surely heard all pauses
// that were stored since a time, but for what is on its way.
func (es *ears) covers(channel string, since time.Time) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	e := es.all[channel]
	if e == nil {
		return false
	}
	p := &e.proof
	return !p.since.IsZero() && !p.since.After(since) && time.Since(p.until) < trust
}

// quiet returns how long to listen before it is time to say something again.
func (es *ears) quiet(e *ear) time.Duration {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e.proof.subscribed.IsZero() || e.proof.saying {
		return earSilent
	}
	return min(earSilent, max(leastQuiet, probeEvery-time.Since(e.proof.said)))
}

// probe says something, if it is time to. The call takes as long as the client
// lets it, so it has a goroutine of its own.
func (s *Store) probe(ctx context.Context, e *ear) {
	s.ears.mu.Lock()
	defer s.ears.mu.Unlock()
	p, now := &e.proof, time.Now()
	if p.subscribed.IsZero() || p.saying || now.Sub(p.said) < probeEvery {
		return
	}
	p.said, p.saying = now, true
	go func() {
		// Whether it worked is for the ear to say.
		_ = s.conn.Publish(ctx, e.wake, probeMark+strconv.FormatInt(int64(now.Sub(born)), 10))
		s.ears.mu.Lock()
		defer s.ears.mu.Unlock()
		e.proof.saying = false
	}()
}
