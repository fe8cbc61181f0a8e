// Package inbound is what the servers of this project share on the side of their callers: it reads how long a caller
// waits and its priority, and bounds the requests that wait.
package inbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// MaxWait returns how long a caller wants to be held at most, as "Prefer: wait=5" says in seconds
// (RFC 7240), but no longer than max. Without a legible number it is max. A wait of 0 is -1, which
// is [throttle.NoWait], because a MaxWait of 0 is the default of a minute.
func MaxWait(h http.Header, max time.Duration) time.Duration {
	text, ok := parameter(h["Prefer"], "wait")
	seconds, err := strconv.ParseUint(text, 10, 31)
	switch wanted := time.Duration(seconds) * time.Second; {
	case !ok || err != nil || wanted >= max:
		return max
	case wanted == 0:
		return throttle.NoWait
	default:
		return wanted
	}
}

// normalUrgency is the urgency of RFC 9218 that a request has which names none.
const normalUrgency = 3

// Priority returns the priority of "Priority: u=1" (RFC 9218), where u is from 0, the most urgent, to 7:
// High below 3, Low above 3, and Normal for 3, for a request without the field, and for every other value.
func Priority(h http.Header) throttle.Priority {
	text, _ := parameter(h["Priority"], "u")
	if len(text) != 1 || text[0] < '0' || text[0] > '7' {
		return throttle.PriorityNormal
	}

	switch u := int(text[0] - '0'); {
	case u < normalUrgency:
		return throttle.PriorityHigh
	case u > normalUrgency:
		return throttle.PriorityLow
	}

	return throttle.PriorityNormal
}

// parameter returns the value of the first "name=value" in lists that commas separate. What comes
// after a semicolon belongs to the element before it.
func parameter(lists []string, name string) (value string, ok bool) {
	for _, list := range lists {
		for element := range strings.SplitSeq(list, ",") {
			element, _, _ = strings.Cut(element, ";")
			key, value, ok := strings.Cut(element, "=")
			if ok && strings.EqualFold(strings.TrimSpace(key), name) {
				return strings.Trim(strings.TrimSpace(value), `"`), true
			}
		}
	}
	return "", false
}
