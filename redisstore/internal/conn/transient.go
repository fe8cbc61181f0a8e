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
// something else, its row could not be read, or a start was too far away. A script that lacks
// a right may have done all that comes before the command.
func Unexecuted(err error) bool {
	if errors.Is(err, ErrFar) {
		return true
	}
	return begins(err, []string{"WRONGTYPE ", "ERR "}) && !Transient(err) && !Denied(err)
}

// denied begins what a server says to a user that may not do what was asked.
var denied = []string{"NOPERM ", "NOAUTH ", "WRONGPASS ", "ERR The user executing the script", "ERR ACL failure in script"}

// Denied reports whether an error says that the user of Redis may not do what was asked.
func Denied(err error) bool { return begins(err, denied) }

// begins reports whether a server said an error that begins with one of some texts.
func begins(err error, texts []string) bool {
	var said redis.Error
	return errors.As(err, &said) && slices.ContainsFunc(texts, func(p string) bool { return strings.HasPrefix(said.Error(), p) })
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
	return begins(err, unready)
}
