// Package inbound is what the servers of this project share on the side of their callers: it reads how long a caller
// waits, its priority, and whether it comes from this machine, and it bounds the requests that wait.
package inbound

import (
	"net"
	"net/http"
	"net/netip"
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

// IsLoopbackHost reports whether the Host field of a request names the loopback. A web page cannot send such a field,
// unless it was loaded from the loopback.
func IsLoopbackHost(host string) bool {
	// A host without a port is an error of SplitHostPort, and stays as it is.
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}

// IsLoopbackAddress reports whether an address with a port, to listen at, is on the loopback.
func IsLoopbackAddress(listen string) bool {
	_, _, err := net.SplitHostPort(listen)
	return err == nil && IsLoopbackHost(listen)
}
