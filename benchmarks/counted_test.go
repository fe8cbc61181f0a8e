package benchmarks

import (
	"context"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// A counted client counts what it sends. What a new connection says first is
// not counted.
type counted struct {
	client   *redis.Client
	commands atomic.Int64
	trips    atomic.Int64
	read     func(field string) float64 // from INFO cpu, over another connection
}

func newCounted(b *testing.B, server *redistest.Server) *counted {
	b.Helper()
	c := &counted{client: server.Client(b)}
	c.client.AddHook(c)
	watch := server.Client(b)
	c.read = func(field string) float64 {
		info, err := watch.Info(b.Context(), "cpu").Result()
		require.NoError(b, err)
		m := regexp.MustCompile(`(?m)^` + field + `:([0-9.]+)`).FindStringSubmatch(info)
		require.NotNil(b, m, field)
		seconds, err := strconv.ParseFloat(m[1], 64)
		require.NoError(b, err)
		return seconds
	}
	return c
}

// gauges are for a contestant.
func (c *counted) gauges() map[string]func() float64 {
	return map[string]func() float64{
		"commands": func() float64 { return float64(c.commands.Load()) },
		"trips":    func() float64 { return float64(c.trips.Load()) },
		"redis-us": func() float64 { return 1e6 * (c.read("used_cpu_user") + c.read("used_cpu_sys")) },
	}
}

// DialHook changes nothing.
func (c *counted) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a command, which is a trip.
func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		c.trips.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts several commands, which are one trip.
func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		c.trips.Add(1)
		return next(ctx, cmds)
	}
}
