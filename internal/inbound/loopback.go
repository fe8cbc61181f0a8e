package inbound

import (
	"net"
	"net/netip"
	"strings"
)

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
