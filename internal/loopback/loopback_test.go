package loopback_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/loopback"
)

// TestIsHost: names and addresses of the loopback, with a port or without.
func TestIsHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:7070": true, "127.0.0.1": true, "127.9.9.9:1": true, "::1": true, "[::1]": true, "[::1]:7070": true, "[::ffff:127.0.0.1]:1": true,
		"": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:1": false, "10.0.0.1": false, "0.0.0.0:1": false, ":7070": false,
	} {
		require.Equal(t, want, loopback.IsHost(host), host)
	}
}

// TestIsAddress: an address to listen at has a port.
func TestIsAddress(t *testing.T) {
	for listen, want := range map[string]bool{
		"localhost:0": true, "127.0.0.1:7070": true, "[::1]:7070": true,
		"127.0.0.1": false, "7070": false, ":7070": false, "0.0.0.0:7070": false, "[::]:7070": false, "example.com:7070": false,
	} {
		require.Equal(t, want, loopback.IsAddress(listen), listen)
	}
}
