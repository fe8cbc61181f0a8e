package promthrottle_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A quiet logger keeps the client from telling that Redis is away: that is what is tested.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }
