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

// MaxWait returns for how long a caller may be held: the seconds of "Prefer: wait=5" (RFC 7240), but no longer
// than most. Without a whole number of seconds it returns most. For a wait of 0 it returns [throttle.NoWait],
// because [throttle.WithMaxWait] takes 0 as the default, a minute.
func MaxWait(h http.Header, most time.Duration) time.Duration {
	text, ok := parameter(h["Prefer"], "wait")
	seconds, err := strconv.ParseUint(text, 10, 31) // 31 bits of seconds fit into a time.Duration
	switch wanted := time.Duration(seconds) * time.Second; {
	case !ok || err != nil || wanted >= most:
		return most
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

// parameter returns the value of the first "name=value" in comma-separated lists, without its quotes. It ignores the
// case of the name, and the part of an element after a semicolon. It returns false if no element has the name and a value.
func parameter(lists []string, name string) (string, bool) {
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
