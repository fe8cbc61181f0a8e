package proxy

import (
	"net/http"
	"sync/atomic"
)

// A reason is why a request was refused, as [Stats] names it.
type reason int

// The reasons.
const (
	forbidden  reason = iota // as a request of this kind, or to this host
	malformed                // in its path or its body
	noToken                  // without the token, or with another one
	slowBody                 // with a body that came too slowly
	noRoom                   // by a limit, in the time it could wait
	unreadable               // by a policy that cannot read it
	away                     // by an upstream that could not be reached, or has not answered in time
	looped                   // because it has passed such a proxy already
	storeAway                // by a store that does not answer
	hostInside               // because the host is at an address that is not public
	heldFull                 // because too many requests wait, of all or of its budget
	bodiesFull               // because the bodies in memory are too many
	stopping                 // because the proxy ends
	reasonCount
)

// reasonNames are the names of reasons.
var reasonNames = [reasonCount]string{
	"forbidden", "malformed", "token", "slow_body", "limit", "policy", "upstream", "loop", "store", "private_address", "held", "bodies", "stopping",
}

// reasons are those of statuses that have one, or have one that is usual.
var reasons = map[int]reason{
	http.StatusForbidden: forbidden, http.StatusBadRequest: malformed, http.StatusMisdirectedRequest: malformed, http.StatusNotImplemented: malformed, http.StatusProxyAuthRequired: noToken,
	http.StatusRequestTimeout: slowBody, http.StatusTooManyRequests: noRoom, http.StatusInternalServerError: unreadable,
	http.StatusBadGateway: away, http.StatusGatewayTimeout: away, http.StatusLoopDetected: looped, http.StatusServiceUnavailable: heldFull,
}

// Stats are what a [Handler] does, and has done since it was made.
type Stats struct {
	Held         int              // requests that wait now
	BodyBytes    int64            // bodies in memory now: see [Config.Held]
	Refused      map[string]int64 // answers of the proxy itself, by reason; each reason is there from the start
	Left         int64            // callers that left before their request had an answer
	Aborted      int64            // answers that ended in the middle: the caller has left, or the upstream
	LinksRound   int64            // links in answers that lead round the proxy
	Unreadable   int64            // answers in br, zstd or another coding that no policy can read
	TunnelsEnded int64            // tunnels that were idle and made room for others: see [Config.Tunnels]
}

// counts are the counters of a handler.
type counts struct {
	refused                               [reasonCount]atomic.Int64
	left, aborted, linksRound, unreadable atomic.Int64
}

// stats returns the counters.
func (c *counts) stats() Stats {
	s := Stats{
		Refused: make(map[string]int64), Left: c.left.Load(), Aborted: c.aborted.Load(),
		LinksRound: c.linksRound.Load(), Unreadable: c.unreadable.Load(),
	}
	for i, name := range reasonNames {
		s.Refused[name] = c.refused[i].Load()
	}
	return s
}
