package proxy

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestIsPublic: addresses where no upstream is are known in all their forms.
func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:4700::1111": true, "::ffff:93.184.216.34": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "::ffff:10.0.0.1": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1%eth0": false, "fec0::1": false, "100.100.100.200": false, "100.64.0.1": false,
		"168.63.129.16": false, "192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::7f00:1": false, "64:ff9b::7f00:1": false, "64:ff9b:1::a00:1": false, "2002:7f00:1::": false, "2001::1": false,
	} {
		require.Equal(t, want, isPublic(netip.MustParseAddr(text)), text)
	}
}

// TestMaxWait: a caller may wait for less than the most, and not for more.
func TestMaxWait(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 5 * time.Second, "wait=2": 2 * time.Second, "Wait = 2": 2 * time.Second, `wait="2"`: 2 * time.Second, "respond-async, wait=2;x=1": 2 * time.Second, "wait=0": -1,
		"wait=60": 5 * time.Second, "wait": 5 * time.Second, "wait=-1": 5 * time.Second, "wait=1.5": 5 * time.Second, "wait=99999999999999999999": 5 * time.Second, "await=1": 5 * time.Second,
	} {
		require.Equal(t, want, maxWait(http.Header{"Prefer": {text}}, 5*time.Second), text)
	}
	require.Equal(t, -time.Second, maxWait(http.Header{"Prefer": {"wait=2"}}, -time.Second))
}

// TestPriority: an urgency is a priority.
func TestPriority(t *testing.T) {
	for text, want := range map[string]throttle.Priority{
		"": throttle.Normal, "u=0": throttle.High, "u=2, i": throttle.High, "i, u=3": throttle.Normal, "u=4": throttle.Low, "u=7": throttle.Low, "u=8": throttle.Normal, "u=-1": throttle.Normal, "u": throttle.Normal, "uu=7": throttle.Normal,
	} {
		require.Equal(t, want, priority(http.Header{"Priority": {text}}), text)
	}
}
