package notify

import (
	"strconv"
	"strings"
	"time"
)

// A Message is one of the types below. The scripts publish most of them; nodes publish a Loss and their own beats.
type Message any

// Subscribed says that messages on a channel are received from now on. Earlier messages
// may be lost.
type Subscribed struct{ Channel string }

// A Pause says until when a budget is paused, of lua/pause.lua.
type Pause struct {
	Key  string
	End  int64         // by the server's clock, in microseconds, or 0 if the pause was lifted
	Left time.Duration // until then
}

// Lifted reports whether the pause was lifted.
func (p Pause) Lifted() bool { return p.End == 0 }

// An Invalidation says that the starts of a budget are void that lie between two times of the server's clock: at or
// after From, and before Until. lua/reconcile.lua publishes it.
type Invalidation struct {
	Key         string
	From, Until int64
}

// Turns says whose turn it is in the line of a budget: the turn of the callers whose tickets are below the cut of
// their class. lua/queue.lua publishes it.
type Turns struct {
	Key   string
	Line  int64
	Cuts  [3]int64 // by class, of callers without a share
	Lanes []Cut    // that have moved, of a line with shares, which has no Cuts
}

// A Cut is the cut of the callers of one class and one share. Callers without a share have the share 0.
type Cut struct {
	Class int64
	Share uint64
	Cut   int64
}

// Slots says for which of this node's waiters a concurrency limit has slots set aside;
// of lua/slots.lua. Waiters are named by their arrivals.
type Slots struct {
	Key      string
	Arrivals []int64
}

// A Loss says that Redis lost a budget. The node that finds out publishes it.
type Loss struct{ Key string }

// A beat is a message that a subscription publishes to itself, at a time since origin.
type beat time.Duration

// The first words of messages. A Pause begins with a number.
const (
	invalidationMark = "anew "
	turnsMark        = "come "
	cutsMark         = "cuts "
	lossMark         = "lost "
	beatMark         = "~"
)

// String returns the message as it is published.
func (l Loss) String() string { return lossMark + l.Key }

// String returns the message as it is published.
func (b beat) String() string { return beatMark + strconv.FormatInt(int64(b), 10) }

// parseShared takes a message apart that all nodes receive. It returns nil if the message makes no sense.
func parseShared(text string) Message {
	if rest, ok := strings.CutPrefix(text, invalidationMark); ok {
		if n, key := numbers(rest, 2); n != nil {
			return Invalidation{key, n[0], n[1]}
		}
	} else if rest, ok := strings.CutPrefix(text, turnsMark); ok {
		if n, key := numbers(rest, 4); n != nil {
			return Turns{Key: key, Line: n[0], Cuts: [3]int64(n[1:])}
		}
	} else if rest, ok := strings.CutPrefix(text, cutsMark); ok {
		return parseCuts(rest)
	} else if key, ok := strings.CutPrefix(text, lossMark); ok {
		return Loss{key}
	} else if n, key := numbers(text, 2); n != nil {
		return Pause{key, n[0], time.Duration(n[1]) * time.Microsecond}
	}

	return nil
}

// maxCuts is how many lanes a line can have.
const maxCuts = 1024

// parseCuts takes a message about lanes of shares apart. It returns nil if the message makes no sense.
func parseCuts(text string) Message {
	n, rest := numbers(text, 2)
	if n == nil || n[1] < 1 || n[1] > maxCuts {
		return nil
	}

	all, key := numbers(rest, 3*int(n[1]))
	if all == nil {
		return nil
	}

	t := Turns{Key: key, Line: n[0]}
	for i := 0; i < len(all); i += 3 {
		t.Lanes = append(t.Lanes, Cut{all[i], uint64(all[i+1]), all[i+2]})
	}

	return t
}

// parseOwn takes a message apart that only this node receives. It returns nil if the message makes no sense.
func parseOwn(text string) Message {
	if nanos, ok := strings.CutPrefix(text, beatMark); ok {
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return nil
		}
		return beat(n)
	}

	// Arrivals are separated by commas, and the key of the budget follows.
	list, key, _ := strings.Cut(text, " ")
	s := Slots{Key: key}
	for name := range strings.SplitSeq(list, ",") {
		if at, err := strconv.ParseInt(name, 10, 64); err == nil {
			s.Arrivals = append(s.Arrivals, at)
		}
	}

	return s
}

// numbers returns the first count numbers of a text, and the rest of the text. It returns nil if the text begins
// with fewer numbers.
func numbers(text string, count int) (n []int64, rest string) {
	for range count {
		number, more, ok := strings.Cut(text, " ")
		v, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil {
			return nil, ""
		}
		n, text = append(n, v), more
	}
	return n, text
}
