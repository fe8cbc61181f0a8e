// Package line keeps the callers of a node that wait: for starts that are further away than
// they may be booked ([Starts]), and for slots of budgets of concurrency ([Slots]). Redis
// knows how much waits, and of slots the first waiters of each node; which caller
// is meant by what Redis says is known here. See docs/line.md and docs/in-flight.md.
package line

import (
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
)

// Lines are those of a node. They implement [commit.Line].
type Lines struct {
	Starts
	Slots
}

// New returns lines in which nobody waits.
func New(o *Options) *Lines {
	return &Lines{
		Starts: Starts{Options: o, all: make(map[string]*queue), full: full{all: make(map[[16]byte]*busy)}, coming: make(gatherings)},
		Slots:  Slots{RenewEvery: renewEvery, options: o, all: make(map[string]*lease)},
	}
}

// Report implements [commit.Line].
func (l *Lines) Report(ops []*commit.Op) commit.Reports {
	if leases := l.Slots.lockRecords(ops); len(leases) > 0 {
		return &reports{&l.Slots, leases}
	}
	return nil
}

// Settled implements [commit.Line].
func (l *Lines) Settled(op *commit.Op) {
	l.Slots.settled(op)
	if op.Err == nil {
		l.Starts.settled(op)
	}
}
