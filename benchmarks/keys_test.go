package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyKeys is how many keys a crowd has.
const manyKeys = 10_000

// draws is how many keys are drawn beforehand; a power of two.
const draws = 1 << 16

// crowd draws from many keys by Zipf's law, as customers come: a few come all
// the time and most hardly ever. It always draws the same.
func crowd(b *testing.B) []string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(2026, 11)), 1.1, 1, manyKeys-1)
	drawn := make([]string, draws)
	seen := make(map[string]int)
	for i := range drawn {
		drawn[i] = fmt.Sprintf("customer-%d", zipf.Uint64())
		seen[drawn[i]]++
	}
	require.Greater(b, len(seen), manyKeys*4/10, "premise: many different keys are drawn")
	require.Greater(b, seen["customer-0"], draws/20, "premise: some are drawn all the time")
	return drawn
}

// perKey is what a user of a limiter without keys has to write: it makes one
// for each key.
func perKey[T any](make func() T) func(key string) T {
	var all sync.Map
	return func(key string) T {
		if l, ok := all.Load(key); ok {
			return l.(T)
		}
		l, _ := all.LoadOrStore(key, make())
		return l.(T)
	}
}
