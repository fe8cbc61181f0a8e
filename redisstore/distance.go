package redisstore

import (
	"sync"
	"time"
)

// distances are how far the servers' clocks are ahead of ours, by group: those of one
// group are on one server.
type distances struct {
	mu  sync.Mutex
	all map[string]*distance
}

// A distance lies between two bounds. An answer that tells the server's time was decided
// after it was asked for and before it was received, so each answer is a pair of bounds,
// and the fastest one that was ever heard is the best. Half of what lies between the two is
// all that is not known: it is the same for all that a far but steady server says.
type distance struct {
	least, most time.Duration
	heard       time.Time
	answers     int // that agree
}

const (
	worthDistance = time.Millisecond // a server that is nearer is near enough
	mostDistances = 1 << 12
	enoughAnswers = 3
	drift         = 2000 // two clocks drift apart by one part in so many
)

// hear learns from an answer.
func (ds *distances) hear(group string, server int64, sent, received time.Time) {
	at := time.Duration(server) * time.Microsecond
	least, most := at-received.Sub(born), at+time.Microsecond-sent.Sub(born)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.all[group]
	if d == nil {
		if len(ds.all) >= mostDistances {
			clear(ds.all)
		}
		d = &distance{least, most, received, 1}
		ds.all[group] = d
		return
	}
	doubt := received.Sub(d.heard) / drift
	d.least, d.most, d.heard = max(d.least-doubt, least), min(d.most+doubt, most), received
	if d.least > d.most {
		d.least, d.most, d.answers = least, most, 0 // a clock was set, or it is another server
	}
	d.answers++
}

// until returns how long it is until a time of the group's server, and how wrong that can
// be. It is not known before some answers agree.
func (ds *distances) until(group string, server int64) (wait, doubt time.Duration, known bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.all[group]
	if d == nil || d.answers < enoughAnswers {
		return 0, 0, false
	}
	middle := (d.least + d.most) / 2
	return time.Duration(server)*time.Microsecond - middle - time.Since(born), (d.most - d.least) / 2, true
}
