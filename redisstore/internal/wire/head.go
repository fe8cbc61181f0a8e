package wire

import "github.com/fleetthrottle/throttle/internal/farthest"

// A Status is how a reply begins; see lua/book.lua.
type Status int64

const (
	Done            Status = iota // it was done, perhaps by an earlier copy of the call
	NeedsBoundaries               // nothing was done: the calendar's boundaries must reach to Need
	Late                          // nothing was done: a later call of the node was done before
	Shut                          // nothing was done: Gates are shut
)

// A Head is the beginning of every reply.
type Head struct {
	Status
	Now   int64 // the server's time
	Need  int64
	Gates []Gate
}

// A Gate is an unlimited budget that is shut: see lua/gates.lua.
type Gate struct {
	Key  string
	Left int64 // for how long, in microseconds
}

// ReadHead reads the beginning of the reply to a call with those keys, and returns
// what comes after the status if the call was done.
func ReadHead(reply string, keys []string) (Head, Frame, error) {
	f := Frame(reply)
	if f.Size() < 2 || !f.sound() {
		return Head{}, nil, ErrReply
	}
	h, rest := Head{Status: Status(f.At(0)), Now: f.At(1)}, f.From(2)
	switch h.Status {
	case Done:
		return h, f.From(1), nil
	case Late:
		return h, nil, nil
	case NeedsBoundaries:
		if rest.Size() == 1 && rest.At(0)-h.Now <= 2*Micros(farthest.Wait) {
			h.Need = rest.At(0)
			return h, nil, nil
		}
	case Shut:
		for ; rest.Size() >= 2; rest = rest.From(2) {
			i := rest.At(0) - 1
			if i < 1 || i >= int64(len(keys)) {
				return h, nil, ErrReply
			}
			h.Gates = append(h.Gates, Gate{keys[i], rest.At(1)})
		}
		if rest.Size() == 0 && len(h.Gates) > 0 {
			return h, nil, nil
		}
	}
	return h, nil, ErrReply
}
