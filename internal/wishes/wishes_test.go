package wishes_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/wishes"
)

// TestMaxWait: a caller may wait for less than the most, and not for more.
func TestMaxWait(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 5 * time.Second, "wait=2": 2 * time.Second, "Wait = 2": 2 * time.Second, `wait="2"`: 2 * time.Second, "respond-async, wait=2;x=1": 2 * time.Second, "wait=0": -1,
		"wait=60": 5 * time.Second, "wait": 5 * time.Second, "wait=-1": 5 * time.Second, "wait=1.5": 5 * time.Second, "wait=99999999999999999999": 5 * time.Second, "await=1": 5 * time.Second,
	} {
		require.Equal(t, want, wishes.MaxWait(http.Header{"Prefer": {text}}, 5*time.Second), text)
	}
	require.Equal(t, -time.Second, wishes.MaxWait(http.Header{"Prefer": {"wait=2"}}, -time.Second))
}

// TestPriority: an urgency is a priority.
func TestPriority(t *testing.T) {
	for text, want := range map[string]throttle.Priority{
		"": throttle.PriorityNormal, "u=0": throttle.PriorityHigh, "u=2, i": throttle.PriorityHigh, "i, u=3": throttle.PriorityNormal, "u=4": throttle.PriorityLow, "u=7": throttle.PriorityLow, "u=8": throttle.PriorityNormal, "u=-1": throttle.PriorityNormal, "u": throttle.PriorityNormal, "uu=7": throttle.PriorityNormal,
	} {
		require.Equal(t, want, wishes.Priority(http.Header{"Priority": {text}}), text)
	}
}
