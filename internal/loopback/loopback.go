// Package loopback tells what only programs of this machine reach.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// IsHost reports whether the Host field of a request names the loopback. A web page cannot send one
// that does, unless it was loaded from there.
func IsHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}

// IsAddress reports whether an address with a port, to listen at, is on the loopback.
func IsAddress(listen string) bool {
	_, _, err := net.SplitHostPort(listen)
	return err == nil && IsHost(listen)
}
