package throttle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

func BenchmarkWindow(b *testing.B) {
	at := time.Date(2026, 7, 15, 10, 30, 0, 0, time.UTC)
	limits := map[string]throttle.Limit{
		"fixed":          throttle.FixedWindow(1, 20*time.Second),
		"day UTC":        throttle.CalendarWindow(1, throttle.Day, nil),
		"day Berlin":     throttle.CalendarWindow(1, throttle.Day, zone(b, "Europe/Berlin")),
		"month Shanghai": throttle.CalendarWindow(1, throttle.Month, zone(b, "Asia/Shanghai")),
		"month Berlin":   throttle.CalendarWindow(1, throttle.Month, zone(b, "Europe/Berlin")),
	}
	for name, l := range limits {
		b.Run(name, func(b *testing.B) {
			start, end := l.Window(at)
			require.False(b, at.Before(start) || !at.Before(end))
			b.ReportAllocs()
			for b.Loop() {
				l.Window(at)
			}
		})
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	at := time.Date(2026, 3, 29, 10, 30, 0, 0, time.UTC)
	l := throttle.CalendarWindow(1, throttle.Month, zone(t, "Europe/Berlin"))
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Window(at) }))
}
