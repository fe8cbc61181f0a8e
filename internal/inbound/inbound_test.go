package inbound_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
)

// TestMaxWait: a caller may wait for less than the most, and not for more.
func TestMaxWait(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 5 * time.Second, "wait=2": 2 * time.Second, "Wait = 2": 2 * time.Second, `wait="2"`: 2 * time.Second, "respond-async, wait=2;x=1": 2 * time.Second, "wait=0": -1,
		"wait=60": 5 * time.Second, "wait": 5 * time.Second, "wait=-1": 5 * time.Second, "wait=1.5": 5 * time.Second, "wait=99999999999999999999": 5 * time.Second, "await=1": 5 * time.Second,
	} {
		require.Equal(t, want, inbound.MaxWait(http.Header{"Prefer": {text}}, 5*time.Second), text)
	}
	require.Equal(t, -time.Second, inbound.MaxWait(http.Header{"Prefer": {"wait=2"}}, -time.Second))
}

// TestPriority: an urgency is a priority.
func TestPriority(t *testing.T) {
	for text, want := range map[string]throttle.Priority{
		"": throttle.PriorityNormal, "u=0": throttle.PriorityHigh, "u=2, i": throttle.PriorityHigh, "i, u=3": throttle.PriorityNormal, "u=4": throttle.PriorityLow, "u=7": throttle.PriorityLow, "u=8": throttle.PriorityNormal, "u=-1": throttle.PriorityNormal, "u": throttle.PriorityNormal, "uu=7": throttle.PriorityNormal,
	} {
		require.Equal(t, want, inbound.Priority(http.Header{"Priority": {text}}), text)
	}
}

// TestIsLoopbackHost: names and addresses of the loopback, with a port or without.
func TestIsLoopbackHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:7070": true, "127.0.0.1": true, "127.9.9.9:1": true, "::1": true, "[::1]": true, "[::1]:7070": true, "[::ffff:127.0.0.1]:1": true,
		"": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:1": false, "10.0.0.1": false, "0.0.0.0:1": false, ":7070": false,
	} {
		require.Equal(t, want, inbound.IsLoopbackHost(host), host)
	}
}

// TestIsLoopbackAddress: an address to listen at has a port.
func TestIsLoopbackAddress(t *testing.T) {
	for listen, want := range map[string]bool{
		"localhost:0": true, "127.0.0.1:7070": true, "[::1]:7070": true,
		"127.0.0.1": false, "7070": false, ":7070": false, "0.0.0.0:7070": false, "[::]:7070": false, "example.com:7070": false,
	} {
		require.Equal(t, want, inbound.IsLoopbackAddress(listen), listen)
	}
}
