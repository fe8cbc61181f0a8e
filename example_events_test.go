package throttle_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// Events are logged with log/slog.
func ExampleEvent_slog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: steady}))
	logEvent := func(ctx context.Context, e throttle.Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case throttle.Penalized, throttle.Closed, throttle.Opened, throttle.StillWaiting:
			level = slog.LevelInfo
		case throttle.Refused, throttle.GaveUp, throttle.Late, throttle.StoreFailed, throttle.FunctionFailed, throttle.Illegible, throttle.Lowered:
			level = slog.LevelWarn
		}
		logger.LogAttrs(ctx, level, e.Kind.String(), slog.String("policy", e.Policy), slog.String("budget", e.Budget),
			slog.Bool("paused", e.Paused), slog.Duration("duration", e.Duration), slog.Any("error", e.Err))
	}
	limits, err := throttle.NewLimiters(throttle.Config{
		Store: memstore.New(), Observe: logEvent,
		Policies: []throttle.Policy{{Name: "mails", Limit: throttle.PerHour(500)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	permit, err := limits.Acquire(ctx, throttle.Demand{Policy: "mails"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = permit.Penalize(ctx, time.Minute)
	_, _ = limits.TryAcquire(ctx, throttle.Demand{Policy: "mails"})
	// Output:
	// level=INFO msg=penalized policy=mails budget=mails/afe800e91f7e paused=false duration=1m0s error=<nil>
	// level=WARN msg=refused policy=mails budget=mails/afe800e91f7e paused=true duration=0s error="throttle: policy \"mails\" (500/h): closed by a penalty, would wait 1m0s, but may not wait at all"
}

// steady takes out of a log what differs from run to run.
func steady(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey:
		return slog.Attr{}
	case "duration":
		return slog.Duration(a.Key, a.Value.Duration().Round(time.Second))
	}
	return a
}
