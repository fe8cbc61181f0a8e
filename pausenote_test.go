package throttle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func TestPauseNoteText(t *testing.T) {
	require.Equal(t, "paused", throttle.PauseNote{}.String())
	require.Equal(t, `paused by a\nb`, throttle.PauseNote{By: "a\nb"}.String())
	require.Equal(t, `paused: "why"`, throttle.PauseNote{Reason: "why"}.String())
}
