package throttle

import "sync"

// mostRedeemed is how many places limiters know at least that they have redeemed.
const mostRedeemed = 8192

// redeemedPlaces are the places that were redeemed last. The zero value is ready.
type redeemedPlaces struct {
	mu         sync.Mutex
	last, more map[[8]byte]struct{} // the last ones, and as many before them
}

// add adds a place, and returns false if it is known.
func (r *redeemedPlaces) add(id [8]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isLast := r.last[id]
	if _, isMore := r.more[id]; isLast || isMore {
		return false
	}
	if r.last == nil || len(r.last) == mostRedeemed {
		r.last, r.more = make(map[[8]byte]struct{}), r.last
	}
	r.last[id] = struct{}{}
	return true
}

// remove takes a place out that was not redeemed after all.
func (r *redeemedPlaces) remove(id [8]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
	delete(r.more, id)
}
