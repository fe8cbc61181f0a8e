package conn

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// ErrFar means that no start could be planned within all boundaries that were sent.
var ErrFar = errors.New("redisstore: the start is more calendar windows away than can be planned")

// ErrOvertaken means that a call arrived after a later one of its queue. It did
// nothing.
var ErrOvertaken = errors.New("redisstore: the call was overtaken by a later one")

// Unexecuted reports whether a call failed for good before it did anything: a key held
// something else, its row could not be read, or a start was too far away.
func Unexecuted(err error) bool {
	if errors.Is(err, ErrFar) {
		return true
	}
	var said redis.Error
	return errors.As(err, &said) && !Transient(err) &&
		(strings.HasPrefix(said.Error(), "WRONGTYPE ") || strings.HasPrefix(said.Error(), "ERR "))
}

// unready begins what a server says that may serve soon.
var unready = []string{
	"LOADING ", "BUSY ", "ERR max number of clients reached",
	"READONLY ", "MASTERDOWN ", "NOREPLICAS ", // a failover goes on
	"CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", // or a cluster changes
	"OOM ", "MISCONF ", // no memory or no disk for more
}

// Transient reports whether asking again may help. What the server itself says is
// final, unless it says that it is not ready.
func Transient(err error) bool {
	for _, final := range []error{redis.ErrClosed, ErrFar, wire.ErrReply, ErrOvertaken, ErrSingle} {
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
