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
var crowd = sync.OnceValue(func() []string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(2026, 11)), 1.1, 1, manyKeys-1)
	drawn := make([]string, draws)
	for i := range drawn {
		drawn[i] = fmt.Sprintf("customer-%d", zipf.Uint64())
	}
	return drawn
})

func TestCrowd(t *testing.T) {
	seen := make(map[string]int)
	for _, key := range crowd() {
		seen[key]++
	}
	require.Greater(t, len(seen), manyKeys*4/10, "many different keys are drawn")
	require.Greater(t, seen["customer-0"], draws/20, "some are drawn all the time")
}
